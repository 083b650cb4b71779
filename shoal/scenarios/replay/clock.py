"""Scenario time: the seconds of a case or a capture, and how long they take in a run."""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from shoal.scenarios.progress import Progress

__all__ = ["MAX", "Clock", "check_speed", "parse_speed", "showing_time"]

MAX = math.inf


def parse_speed(text: str) -> float:
    """ "1x", "10x", "0.5x" or "max" (which is infinity). Raises ValueError."""
    if text == "max":
        return MAX
    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = 0.0
    if not 0 < speed <= 1e6:
        raise ValueError(f"{text!r} is not a speed: write 1x, 10x or max")
    return speed


def check_speed(text: str) -> str:
    """Returns `text` if it is a speed. Raises ValueError."""
    parse_speed(text)
    return text


class Clock:
    """Starts when created or restarted. `now` is a monotonic clock in seconds."""

    def __init__(self, speed: float, now: Callable[[], float] = trio.current_time) -> None:
        self.speed = speed
        self._now = now
        self._begin = now()

    def restart(self) -> None:
        self._begin = self._now()

    def elapsed(self) -> float:
        """Real seconds."""
        return self._now() - self._begin

    async def until(self, at: float) -> float:
        """Sleep until scenario second `at`; returns the delay in real seconds (0.0 at speed `max`)."""
        due = at / self.speed
        if (early := due - self.elapsed()) > 0:
            await trio.sleep(early)
        return max(0.0, self.elapsed() - due) if self.speed != MAX else 0.0


@asynccontextmanager
async def showing_time(progress: Progress, text: str, seconds: float = 0.0) -> AsyncIterator[None]:
    """Show on a terminal how long the block has run, of `seconds` if they are known."""
    async with trio.open_nursery() as nursery:
        if progress.is_live:
            nursery.start_soon(_show_time, progress, text, seconds)
        yield
        nursery.cancel_scope.cancel()
    progress.clear()


async def _show_time(progress: Progress, text: str, seconds: float) -> None:
    start = trio.current_time()
    while True:
        passed = trio.current_time() - start
        progress.update(f"{text}: {passed:,.0f} s", passed, seconds)
        await trio.sleep(0.2)
