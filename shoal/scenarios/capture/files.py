"""Capture files: `shoal-PROXY-NUMBER.kxb` (the index) and `.pcapng` (raw captures), by process and in order.

`ToolError`: a problem that the user of `shoal capture` can fix.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["INDEX", "RAW", "CaptureFile", "ToolError", "capture_files", "gone_if_it_fails"]

INDEX: Final = "kxb"
RAW: Final = "pcapng"
_NAME: Final = re.compile(r"shoal-([0-9a-f]{8})-(\d{8,})\.(kxb|pcapng)")


class CaptureFile(NamedTuple):
    """`proxy` and `number` as in the file name; empty and 0 for a file that was given by path."""

    proxy: str
    number: int
    path: Path


def capture_files(path: Path, suffix: str = INDEX) -> list[CaptureFile]:
    """The files of a directory, or this file. Raises OSError."""
    if not path.is_dir():
        path.stat()
        return [_described(path) or CaptureFile("", 0, path)]
    found = (_described(file) for file in path.iterdir() if file.suffix == f".{suffix}")
    return sorted(capture for capture in found if capture is not None)


def _described(path: Path) -> CaptureFile | None:
    parts = _NAME.fullmatch(path.name)
    return CaptureFile(parts[1], int(parts[2]), path) if parts else None


class ToolError(Exception):
    """Reported in one line, exit code 2."""


@contextmanager
def gone_if_it_fails(path: Path) -> Iterator[None]:
    """Wraps the writing of a file: on an error the partial file is removed, and the error names it. Raises OSError."""
    try:
        yield
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise
