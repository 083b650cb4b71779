"""What the files of a state directory have in common: what is not Shoal's own is never written over, and what is its own but of no use
any more is kept aside under another name, so that nothing is lost by a mistake.

A disk that is full, or fails, never ends the process: what is lost then is the memory over a restart, and one line says so.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from shoal.proxy.errors import OperatorError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["NotOurs", "require_state_dir", "set_aside"]

_KEPT = 3  # of one file that were set aside: a machine that stops often must not fill its disk with them
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class NotOurs(Exception):
    """Somebody else's file has the name of one of ours."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(
            f"{path} is not {what}: Shoal does not write over it. Move it away, or choose another state-dir"
        )


def set_aside(path: Path) -> Path:
    """-> its new name, beside the old one. The oldest that were set aside before are removed. Raises OSError."""
    former = sorted(path.parent.glob(f"{path.name}.discarded-*"))
    aside = path.with_name(f"{path.name}.discarded-{time.strftime('%Y%m%dT%H%M%S')}-{time.time_ns() % 10**9:09d}")
    path.rename(aside)
    for one in former[: max(0, len(former) + 1 - _KEPT)]:
        with suppress(OSError):
            one.unlink()
    return aside


def require_state_dir(directory: Path | None, *, create: bool = True) -> None:
    """Somebody has asked for this directory, so it must be there and take files. Raises OperatorError.

    A full disk is no reason: that may change, and each file says what is lost by it.
    """
    if directory is None:
        return
    try:
        if create:
            directory.mkdir(parents=True, exist_ok=True)
        there = next(one for one in (directory, *directory.parents) if one.exists())
        if not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{there} is no directory")
        if not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, f"{there} is read-only for this user")
    except OSError as error:
        if error.errno not in _FULL:
            what = f"{directory} cannot be written to: {error.strerror}: choose another directory, or change its owner or its rights"
            raise OperatorError.of("state-dir", what) from None
