"""A state file that stays open, and is written with every change: to the page cache, so a kill loses nothing."""

from __future__ import annotations

import os
from contextlib import suppress

__all__ = ["OpenFile"]


class OpenFile:
    """`_fd` None: not kept (any more), and changes are only in memory."""

    _fd: int | None = None

    def close(self) -> None:
        """In order, so that a crash of the machine loses nothing either."""
        if self._fd is not None:
            with suppress(OSError):
                os.fsync(self._fd)
        self._let_go()

    def _let_go(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
