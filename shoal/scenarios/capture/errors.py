"""Errors that the user of `shoal capture` can fix."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["ToolError", "gone_if_it_fails"]


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
