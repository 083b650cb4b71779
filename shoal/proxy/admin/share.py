"""The part of a core's time that admin clients may use, whatever they do.

Everything that an admin client causes runs in turns: `run` calls a function that does not await, measures it, and lets
the next turn wait until the work so far is `share` of the time. A quiet admin listener saves up `BURST_SECONDS`, so an
ordinary scrape does not wait.

Turns are of three kinds, which alternate; of one kind, the first come is the first served. So a liveness probe, which
needs a connection and a short request, waits neither for many scrapes nor for a flood of connections to end.
"""

from __future__ import annotations

import time
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BURST_SECONDS", "LOOP_SHARE", "LoopShare", "ShareStatistics", "Turn"]

T = TypeVar("T")

LOOP_SHARE: Final = 0.05
BURST_SECONDS: Final = 2.0  # LOOP_SHARE of it is 100 ms of work
TURN_SECONDS: Final = 0.000_05  # what trio needs for a turn, which `clock` does not see


class Turn(Enum):
    ACCEPT = auto()
    REQUEST = auto()  # HTTP: a tenth of a millisecond
    PAGE = auto()  # a slice of a page: a millisecond


class ShareStatistics(NamedTuple):
    """`seconds` of work since the start; the `longest` turn."""

    seconds: float
    longest: float


class LoopShare:
    """`clock` measures work; waiting is in trio's time.

    Work is CPU time of the event loop's thread, so `share` is one of a core, also where Shoal gets less than that. By
    the wall, a page would wait twenty times as long as other processes kept Shoal from its core: no scrape would be
    answered just when the machine is too busy.
    """

    def __init__(self, share: float = LOOP_SHARE, clock: Callable[[], float] = time.thread_time) -> None:
        self._share = share
        self._clock = clock
        self._is_taken = False  # a turn runs, or waits for its time
        self._waiting = {kind: trio.lowlevel.ParkingLot() for kind in Turn}  # in the order in which kinds are next
        self._paid_at = -BURST_SECONDS  # when the work so far has been `share` of the time
        self.seconds = 0.0  # of work
        self.longest = 0.0  # turn

    def statistics(self) -> ShareStatistics:
        return ShareStatistics(self.seconds, self.longest)

    async def run(self, work: Callable[[], T], *, seconds: float = TURN_SECONDS, turn: Turn = Turn.REQUEST) -> T:
        """`seconds`: of the loop, in addition to what is measured. Raises what `work` raises."""
        if self._is_taken:
            await self._waiting[turn].park()  # until `_hand_over`
        self._is_taken = True
        try:
            await trio.sleep_until(self._paid_at)
            begin = self._clock()
            try:
                return work()
            finally:
                self._pay(self._clock() - begin, seconds)
        finally:
            self._hand_over()

    def _hand_over(self) -> None:
        for kind, waiting in self._waiting.items():
            if waiting:
                waiting.unpark()
                self._waiting[kind] = self._waiting.pop(kind)  # the other kinds are next
                return
        self._is_taken = False

    def _pay(self, measured: float, further: float) -> None:
        self.seconds += measured + further
        self.longest = max(self.longest, measured)
        earliest = trio.current_time() - BURST_SECONDS
        self._paid_at = max(self._paid_at, earliest) + (measured + further) / self._share
