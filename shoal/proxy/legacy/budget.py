"""One memory budget for all legacy fetches of a listener: broker answers that are converted piece by piece (KIP-283).

A client's answer is made from a broker's answer, which stays in memory until its last message is converted. The client
decides how long that takes: a slow one needs minutes for a megabyte. So this memory is paid for by a `Lease` on one
`Budget`, before the first byte is read from the broker's socket (the gate of `OwnRequest`). Answers without a lease
stay in the broker's buffers.

    (waits) ── granted ──► busy ◄──────► idle ── others wait, and idle for `grace` ──► evicted
                             └── release ──┴──► (returned)

    busy   is filled or converted: it makes progress without its client
    idle   waits for its client to read, or to send the next request

Rules:
 1. Leases are granted in the order of the requests. A large one is never overtaken.
 2. An idle lease may be evicted while others wait, the longest idle first. Its owner is notified by a synchronous call,
    which drops the source. Converted, unsent bytes stay (at most one piece, not part of the budget). When its client
    reads on, the owner asks the broker again, from its offset.
 3. The owner of a request for a lease holds no lease.
 4. A request for more than the whole budget gets the whole budget: a batch larger than that is served alone.
 5. A lease usually covers conversion, too. If a batch or record needs more (a raw snappy block can expand 20 times),
    that is known before any byte of it is opened. If enough is free and none wait, the lease grows. Otherwise its owner
    returns it, and asks the broker again, with a larger lease (rule 3).

No client starves: the first in the queue gets all free and idle memory; a busy lease becomes idle or ends in bounded
time (limits.frame_timeout ends a frame that stops midway); and while one waits, no other lease is granted. There is no
deadlock: no owner holds one lease and waits for another.

The grace is for fast clients, which block briefly after each piece: evicting them then would fetch and decompress their
source again. Rejected: eviction without grace (with more fast readers than leases, each fetch gives one piece);
dividing the budget by connections (most are idle, and a share of 1/500 is smaller than a batch); evicting the largest
lease (the largest batch would never be completed).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["GRACE", "Budget", "BudgetStatistics", "Lease"]

GRACE = 0.05  # seconds: far above a client's round trip, far below its request timeout


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetStatistics:
    size: int
    leased: int  # bytes
    idle: int  # leases
    waiting: int  # requests for a lease
    waits: int  # requests that had to wait, since the start
    waited_seconds: float  # of all waits
    evictions: int  # leases taken back


class Lease:
    """A number of bytes of a budget. Every method is valid in every state, and none waits."""

    __slots__ = ("_budget", "_taken", "size")

    def __init__(self, budget: Budget, size: int, taken: Callable[[], None]) -> None:
        self.size = size
        self._budget: Budget | None = budget
        self._taken = taken

    @property
    def held(self) -> bool:
        return self._budget is not None

    def idle(self) -> None:
        """From now on it may be evicted."""
        if self._budget is not None:
            self._budget._now_idle(self)

    def busy(self) -> bool:
        """Keep it; False: it was evicted or returned."""
        if self._budget is None:
            return False
        self._budget._idle.pop(self, None)
        return True

    def grow(self, size: int) -> bool:
        """Grow to `size` in total; False: not possible at once (rule 5), or it was evicted or returned."""
        budget = self._budget
        if budget is None or (size > self.size and (budget.is_waited_for or size - self.size > budget.free)):
            return False
        budget.free -= max(size - self.size, 0)
        self.size = max(size, self.size)
        return True

    def release(self) -> None:
        budget, self._budget = self._budget, None
        if budget is not None:
            budget._returned(self)

    def _take(self) -> None:
        self._budget = None
        self._taken()


class _Wait:
    """A request for a lease that has not been granted."""

    __slots__ = ("granted", "lease", "look", "size", "taken")

    def __init__(self, size: int, taken: Callable[[], None]) -> None:
        self.size = size
        self.taken = taken
        self.lease: Lease | None = None
        self.granted = trio.Event()
        self.look = trio.CancelScope()  # cancelled when a lease may be evicted


class Budget:
    def __init__(self, size: int, *, grace: float = GRACE) -> None:
        self.size = size
        self.free = size
        self.grace = grace  # seconds
        self._waiting: dict[_Wait, None] = {}  # in order
        self._idle: dict[Lease, float] = {}  # lease -> idle since; the longest first
        self._waits = self._evictions = 0
        self._waited_seconds = 0.0

    def statistics(self) -> BudgetStatistics:
        return BudgetStatistics(
            size=self.size,
            leased=self.size - self.free,
            idle=len(self._idle),
            waiting=len(self._waiting),
            waits=self._waits,
            waited_seconds=self._waited_seconds,
            evictions=self._evictions,
        )

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    async def lease(self, size: int, taken: Callable[[], None]) -> Lease:
        """Wait for `size` bytes; the lease is then busy. `taken` is called, from any task, when it is evicted; it must
        not call the budget. A checkpoint only if it has to wait; if cancelled, nothing is held.
        """
        wait = _Wait(min(size, self.size), taken)
        self._waiting[wait] = None
        self._grant()
        if wait.lease is None:
            await self._wait(wait)
        assert wait.lease is not None
        return wait.lease

    async def _wait(self, wait: _Wait) -> None:
        self._waits += 1
        since = trio.current_time()
        try:
            while wait.lease is None:
                with trio.CancelScope() as wait.look:
                    self._grant()
                    await wait.granted.wait()
        except BaseException:
            self._withdraw(wait)
            raise
        finally:
            self._waited_seconds += trio.current_time() - since

    def _withdraw(self, wait: _Wait) -> None:
        """Its task was cancelled, perhaps just when it was granted."""
        if wait.lease is not None:
            wait.lease.release()
        else:
            del self._waiting[wait]
            self._grant()

    def _grant(self) -> None:
        """Grant what is due, and set the time of the next check of the first waiting request."""
        while self._waiting:
            first = next(iter(self._waiting))
            self._take_back(first.size - self.free)
            if self.free < first.size:
                first.look.deadline = self._next_taking()
                return
            del self._waiting[first]
            self.free -= first.size
            first.lease = Lease(self, first.size, first.taken)
            first.granted.set()

    def _take_back(self, missing: int) -> None:
        while missing > 0 and self._idle and self._next_taking() <= trio.current_time():
            lease = next(iter(self._idle))
            del self._idle[lease]
            self.free += lease.size
            missing -= lease.size
            self._evictions += 1
            lease._take()

    def _next_taking(self) -> float:
        return next(iter(self._idle.values())) + self.grace if self._idle else inf

    # -- called by leases --------------------------------------------------------------------------------------------

    def _now_idle(self, lease: Lease) -> None:
        if lease not in self._idle:
            self._idle[lease] = trio.current_time()
            self._grant()

    def _returned(self, lease: Lease) -> None:
        self._idle.pop(lease, None)
        self.free += lease.size
        self._grant()
