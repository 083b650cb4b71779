"""A file system of some MiB for Shoal's files, so that it can be full. Its private mount ends with this process."""

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
    """Call it once, before any thread: mounts become private to this process and its children. False: not root."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) != 0:
        return False
    return subprocess.run(("mount", "--make-rprivate", "/"), check=False).returncode == 0


def small_disk(path: Path) -> bool:
    """Mount one at `path`. False: not root."""
    path.mkdir(parents=True, exist_ok=True)
    mount = ("mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "none", str(path))
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


def unmount(path: Path) -> None:
    subprocess.run(("umount", "--lazy", str(path)), capture_output=True, check=False)


def fill(path: Path) -> Path:
    """Use all free space; removing the returned file frees it."""
    filler = path / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(os.urandom(4096))
    return filler
