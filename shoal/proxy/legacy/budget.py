"""One budget for what all legacy fetches of a listener hold: the answers of brokers that are converted piece by piece (KIP-283).

A client's answer is made from a broker's, which lies here whole from its first converted message to its last. How long that takes
is up to the client: a slow one takes minutes for a megabyte. So what lies here is paid for, by a `Lease` on one `Budget`, and taken
before the first byte is read from the broker's socket (the gate of `Asked`); what has no lease waits in the broker's own buffers.

    (waits) ── granted ──► busy ◄──────► idle ── somebody waits, and idle for `grace` ──► taken back
                             └── release ──┴──► (returned)

    busy   is filled, or converts: its connection works, and will be done without anybody's help
    idle   waits for its client: to read what was sent to it, or to ask for more

Rules:
 1. Turns: leases are granted in the order in which they were asked for. Nobody overtakes one that is large.
 2. An idle lease may be taken back while somebody waits, the longest idle first. Its owner is told at once, by a call that drops
    the source synchronously; what was converted and is not sent yet stays (it is at most a piece, and not part of the budget). The
    owner asks the broker again, at the offset where it was, when its client reads on.
 3. Who asks for a lease holds none.
 4. A request for more than the whole budget is one for all of it: a batch larger than that is served, alone.
 5. A lease has room for what converting takes, as a rule. Where a batch or a record takes more (a raw block of snappy can be twenty times
    its size), that is known before a byte of it is opened. If so much is free, and nobody waits, the lease grows. Else its owner returns
    it, and asks the broker again, with a lease for as much (rule 3).

Nobody starves: the first in the queue gets what is free and what is idle; a busy lease becomes idle or ends in bounded time (a broker
that stops in the middle of a frame is limits.frame_timeout's business); and while somebody waits nobody else is granted anything, so
what can become busy again gets less with every piece. There is no deadlock, for nobody holds one lease and waits for another.

The grace is for clients that read fast: they block for a moment behind each piece, and a source taken then is fetched and
decompressed once more for nothing. Taking back what is idle for a moment was tried on paper: with more fast readers than leases,
everybody gets one piece for each fetch. Rejected, too: dividing the budget by connections (most are idle, and a share of
500 is smaller than a batch), and taking from whoever holds the most (the largest batch would never be read to its end).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Budget", "BudgetStatistics", "Lease"]

GRACE = 0.05  # seconds: far above a round trip to a client that reads, far below its request timeout


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetStatistics:
    size: int
    leased: int  # bytes
    idle: int  # leases
    waiting: int  # requests for a lease
    waits: int  # that had to wait, since the start
    waited_seconds: float  # all of them together
    evictions: int  # leases taken back


class Lease:
    """So many bytes of a budget. Every method may be called in every state, and none of them waits."""

    __slots__ = ("_budget", "_taken", "size")

    def __init__(self, budget: Budget, size: int, taken: Callable[[], None]) -> None:
        self.size = size
        self._budget: Budget | None = budget
        self._taken = taken

    @property
    def held(self) -> bool:
        return self._budget is not None

    def idle(self) -> None:
        """From here on it may be taken back."""
        if self._budget is not None:
            self._budget._now_idle(self)

    def busy(self) -> bool:
        """It stays; False: it has been taken back, or returned."""
        if self._budget is None:
            return False
        self._budget._idle.pop(self, None)
        return True

    def grow(self, size: int) -> bool:
        """It needs so much in all; False: that can't be had at once (rule 5), or it is no more."""
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
        self.look = trio.CancelScope()  # ends when there may be something to take back


class Budget:
    def __init__(self, size: int) -> None:
        self.size = size
        self.free = size
        self._grace = GRACE
        self._waiting: dict[_Wait, None] = {}  # in turn
        self._idle: dict[Lease, float] = {}  # since when; the longest first
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
        """Wait for `size` bytes; the lease is busy. `taken` is called, from wherever, when it has been taken back: it must not
        ask anything of the budget. A checkpoint only where it has to wait; cancelled, nothing is held."""
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
        """Its task was cancelled, perhaps in the moment in which it was granted."""
        if wait.lease is not None:
            wait.lease.release()
        else:
            del self._waiting[wait]
            self._grant()

    def _grant(self) -> None:
        """To whom it is due, and set the time at which the first that goes on waiting looks again."""
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
        return next(iter(self._idle.values())) + self._grace if self._idle else inf

    # -- what leases tell --------------------------------------------------------------------------------------------

    def _now_idle(self, lease: Lease) -> None:
        if lease not in self._idle:
            self._idle[lease] = trio.current_time()
            self._grant()

    def _returned(self, lease: Lease) -> None:
        self._idle.pop(lease, None)
        self.free += lease.size
        self._grant()
