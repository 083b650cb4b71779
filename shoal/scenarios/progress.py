"""Progress of a long run: on a terminal one line that is overwritten, with a bar; elsewhere plain lines."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

__all__ = ["PLAIN_INTERVAL", "Progress", "terminal_columns"]

PLAIN_INTERVAL = 5.0  # seconds between lines in a log file
LIVE_INTERVAL = 0.2  # seconds between two updates of the line on a terminal
ERASE = "\r\x1b[2K"
_BAR = 24  # columns


def terminal_columns() -> int:
    return shutil.get_terminal_size().columns


class Progress:
    """`say` prints a permanent line; `update` shows one that the next `say` or `update` replaces."""

    def __init__(
        self, out: TextIO, clock: Callable[[], float] = time.monotonic, columns: Callable[[], int] = terminal_columns
    ) -> None:
        self._out = out
        self._clock = clock
        self._columns = columns
        self._live = out.isatty()
        self._shown = False
        self._next = clock() + (0.0 if self._live else PLAIN_INTERVAL)
        self._began: float | None = None  # the first update with a total

    @property
    def is_live(self) -> bool:
        """On a terminal."""
        return self._live

    def say(self, text: str = "") -> None:
        self._line(text)
        self._began = None

    def _line(self, text: str) -> None:
        self._write(f"{self._erase()}{text}\n")
        self._shown = False
        self._next = self._clock() + (0.0 if self._live else PLAIN_INTERVAL)

    def update(self, text: str, done: float = 0, total: float = 0) -> None:
        """With a `total`: also how much is done, and how long the rest may take."""
        if total > 0 and self._began is None:
            self._began = self._clock()
        if self._clock() < self._next:
            return
        if total > 0:
            text = f"{text}  {self._part(min(done / total, 1.0))}"
        if self._live:
            # A line that wraps cannot be overwritten.
            self._write(f"{self._erase()}{text[: self._columns() - 1]}")
            self._shown = True
            self._next = self._clock() + LIVE_INTERVAL
        else:
            self._line(text)

    def _part(self, part: float) -> str:
        bar = f"{'━' * round(part * _BAR):─<{_BAR}} " if self._live else ""
        seconds = self._clock() - (self._began or 0.0)
        left = f"  {_duration(seconds / part - seconds)} left" if part > 0.01 and seconds >= 1 else ""
        return f"{bar}{part:4.0%}{left}"

    def clear(self) -> None:
        """Remove the temporary line, so that others can write."""
        self._write(self._erase())
        self._shown, self._began = False, None

    def _erase(self) -> str:
        return ERASE if self._shown else ""

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"
