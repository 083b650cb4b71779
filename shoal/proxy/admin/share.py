"""The part of the event loop's time that admin clients may use, whatever they do.

Everything that an admin client causes runs in turns: `run` calls a function that does not await, measures it, and lets
the next turn wait until the work so far is `share` of the time. A quiet admin listener saves up `BURST_SECONDS`, so an
ordinary scrape does not wait. The turns are first come, first served.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BURST_SECONDS", "LOOP_SHARE", "LoopShare"]

T = TypeVar("T")

LOOP_SHARE: Final = 0.05
BURST_SECONDS: Final = 2.0  # LOOP_SHARE of it is 100 ms of work
TURN_SECONDS: Final = 0.000_05  # what trio needs for a turn, which `clock` does not see


class LoopShare:
    """`clock` measures work; waiting is in trio's time."""

    def __init__(self, share: float = LOOP_SHARE, clock: Callable[[], float] = time.perf_counter) -> None:
        self._share = share
        self._clock = clock
        self._lock = trio.Lock()
        self._paid_at = -BURST_SECONDS  # when the work so far has been `share` of the time
        self.seconds = 0.0  # of work
        self.longest = 0.0  # turn

    async def run(self, work: Callable[[], T], *, seconds: float = TURN_SECONDS) -> T:
        """`seconds`: of the loop, in addition to what is measured. Raises what `work` raises."""
        async with self._lock:
            await trio.sleep_until(self._paid_at)
            begin = self._clock()
            try:
                return work()
            finally:
                self._pay(self._clock() - begin, seconds)

    def _pay(self, measured: float, further: float) -> None:
        self.seconds += measured + further
        self.longest = max(self.longest, measured)
        earliest = trio.current_time() - BURST_SECONDS
        self._paid_at = max(self._paid_at, earliest) + (measured + further) / self._share
