"""A file system of some MiB for what Shoal keeps, so that it can be full. It vanishes with this process: its mounts are nobody else's."""

from __future__ import annotations

import ctypes
import os
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_CLONE_NEWNS = 0x00020000
_SIZE = "24m"  # the file of sequence numbers has 8 MiB of address space


def private_mounts() -> bool:
    """Call it once, before any thread: mounts of this process and its children are theirs alone. False: that takes root."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) != 0:
        return False
    return subprocess.run(("mount", "--make-rprivate", "/"), check=False).returncode == 0


def small_disk(path: Path) -> bool:
    """Mounts one at `path`. False: that takes root."""
    path.mkdir(parents=True, exist_ok=True)
    mount = ("mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "none", str(path))
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


def unmount(path: Path) -> None:
    subprocess.run(("umount", "--lazy", str(path)), capture_output=True, check=False)


def fill(path: Path) -> Path:
    """Takes all that is left; the file that holds it can be removed."""
    filler = path / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(os.urandom(4096))
    return filler
