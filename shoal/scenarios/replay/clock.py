"""Scenario time: the seconds of a case or a capture, and how long they take in a run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MAX", "Clock", "parse_speed"]

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
