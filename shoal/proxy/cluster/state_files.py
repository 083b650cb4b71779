"""Rules for the files of a state directory, so that no mistake loses a file.

A file that is not Shoal's is never overwritten. A file of Shoal that cannot be used is renamed. A full or failing disk
never ends the process: only state across a restart is lost, and one log line says so.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from shoal.proxy.config.problems import OperatorError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["NotOurs", "put_away", "require_state_dir", "set_aside", "sync_directory", "unreadable", "write_lines"]

_KEPT = 3  # renamed versions per file: a machine that crashes often must not fill its disk with them
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class NotOurs(Exception):
    """A file that is not Shoal's has the name of one of Shoal's."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(
            f"{path} is not {what}: Shoal does not write over it. Move it away, or choose another state-dir"
        )


def unreadable(path: Path, error: OSError) -> str:
    """For the operator."""
    return (
        f"cannot read {path}: {error.strerror}: correct its owner, its rights or the disk, or choose another state-dir"
    )


def set_aside(path: Path) -> Path:
    """Rename the file; -> its new path. The oldest renamed versions are removed. Raises OSError."""
    former = sorted(path.parent.glob(f"{path.name}.discarded-*"))
    aside = path.with_name(f"{path.name}.discarded-{time.strftime('%Y%m%dT%H%M%S')}-{time.time_ns() % 10**9:09d}")
    path.rename(aside)
    for path_aside in former[: max(0, len(former) + 1 - _KEPT)]:
        with suppress(OSError):
            path_aside.unlink()
    return aside


def put_away(path: Path, why: str) -> tuple[str, str | None]:
    """`set_aside` a file that is of no use -> what a log line says, and its new name; None: it cannot be renamed."""
    try:
        kept_as = set_aside(path).name
    except OSError as error:
        return f"discarded {path} ({why}), which cannot be renamed ({error.strerror})", None
    return f"discarded {path} ({why}), kept as {kept_as}", kept_as


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Replace the file atomically. A machine crash leaves the former one or this one, whole. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    try:
        with new.open("w") as file:
            file.write("".join(f"{line}\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())  # otherwise a machine crash may leave an empty file
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise


def sync_directory(directory: Path) -> None:
    """What was made or removed in it stays so after a machine crash. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_state_dir(directory: Path | None, *, create: bool = True) -> None:
    """The operator has set this directory, so it must exist and be writable. Raises OperatorError.

    A full disk is not an error here: that may change, and Shoal logs what is lost for each file.
    """
    if directory is None:
        return
    try:
        if create:
            directory.mkdir(parents=True, exist_ok=True)
        there = next(folder for folder in (directory, *directory.parents) if folder.exists())
        if not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{there} is not a directory")
        if not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, f"{there} is read-only for this user")
    except OSError as error:
        if error.errno not in _FULL:
            way_out = "choose another directory, or change its owner or its rights"
            raise OperatorError.of(
                "state-dir", f"{directory} cannot be written to: {error.strerror}: {way_out}"
            ) from None
