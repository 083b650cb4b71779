"""A file system of a few kilobytes, that a test fills: what a full disk does to every file that Shoal writes."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["TinyDisk", "tiny_disk"]


class TinyDisk:
    """A tmpfs at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self, *, leave: int = 0) -> None:
        """Until there is no room, or only for so many bytes more."""
        with self._filler.open("ab", buffering=0) as file:
            room = os.statvfs(self.path)
            file.write(b"x" * max(0, room.f_bavail * room.f_frsize - leave))

    def empty(self) -> None:
        self._filler.unlink()


@contextmanager
def tiny_disk(path: Path, size: int) -> Iterator[TinyDisk]:
    """Mounted for the duration of a block; skips the test if mounting is not permitted."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "shoal-test", str(path)]
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a file system that can be filled")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount a file system that can be filled: {done.stderr.strip()}")
    try:
        yield TinyDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
