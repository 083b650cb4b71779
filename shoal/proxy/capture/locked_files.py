"""Files of one kind in a directory, of all processes that write there, with a limit of their total size.

A file is locked (flock) while it is open, so that other processes do not delete it. The lock ends with its process in
any case. All functions block.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["create_locked", "make_room"]


def create_locked(path: Path) -> int:
    """A file descriptor that appends to a new file. Raises OSError, and leaves no file then."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError:
        os.close(fd)
        with suppress(OSError):
            path.unlink()
        raise
    return fd


def make_room(directory: Path, pattern: str, *, wanted: int, limit: int) -> None:
    """Delete the oldest files that are not open, so that `wanted` bytes more stay below `limit`. Raises OSError."""
    found = []
    for path in directory.glob(pattern):
        with suppress(FileNotFoundError):
            stat = path.stat()
            found.append((stat.st_mtime, path, stat.st_size))
    excess = sum(size for _, _, size in found) + wanted - limit
    for _, path, size in sorted(found):
        if excess <= 0:
            return
        if _removed(path):
            excess -= size


def _removed(path: Path) -> bool:
    """Delete a file unless a process has it open, or it is not ours to delete."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    except OSError:
        return False
    return True
