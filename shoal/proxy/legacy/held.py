"""What a legacy client's connection holds of its broker's last answer: the record sets that are not converted to their end, and the
lease that pays for them, and for what converting takes. When the budget takes the lease back, all of it is dropped in that moment;
where each set would have gone on is still known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from shoal.proxy.legacy.budget import GRACE

if TYPE_CHECKING:
    from shoal.proxy.legacy.budget import Budget, Lease
    from shoal.proxy.legacy.source import PartitionConversion
    from shoal.proxy.legacy.turns import Place

__all__ = ["LeasedAnswer"]

_LONG_ENOUGH = 2 * GRACE


class LeasedAnswer:
    """The sources of one answer, and its lease. One for each connection, used for one answer after the other.

    `beside`: bytes that the sources hold beside the answer; one of them converts at a time. `expected`: what the next answer may take
    for that.
    """

    def __init__(self, budget: Budget, working_bytes: int) -> None:
        self.sources: dict[Place, PartitionConversion] = {}
        self.beside = 0
        self.expected = 0
        self._budget = budget
        self._working = working_bytes
        self._lease: Lease | None = None
        self._answer_bytes = 0
        self._working_bytes = 0  # paid for, beside the answer
        self._dropped = trio.Event()

    @property
    def is_wanted(self) -> bool:
        """Somebody waits for what this connection may have, too."""
        return self._budget.is_waited_for

    async def gate(self, size: int) -> None:
        """An answer of so many bytes wants to come: wait until it may."""
        assert self._lease is None
        self._answer_bytes, self._working_bytes = size, max(self._working, self.expected)
        self._dropped = trio.Event()
        self._lease = await self._budget.lease(size + self._working_bytes, self._drop)

    def allowance(self, source: PartitionConversion) -> int:
        """Bytes that this one may hold beside the answer."""
        return self._working_bytes - self.beside + source.holds

    def afford(self, wants: int, source: PartitionConversion) -> bool:
        """Pay for so many, if that can be done at once."""
        working = self.beside - source.holds + wants
        if self._lease is None or not self._lease.grow(self._answer_bytes + working):
            return False
        self._working_bytes = working
        return True

    def idle(self) -> None:
        """The client is waited for."""
        if self._lease is not None:
            self._lease.idle()

    def busy(self) -> None:
        """The client has moved. What was taken back meanwhile is `dropped`."""
        if self._lease is not None:
            self._lease.busy()

    async def give_way(self) -> None:
        """Be idle for long enough to lose the lease to somebody who waits."""
        self.idle()
        with trio.move_on_after(_LONG_ENOUGH):
            await self._dropped.wait()

    def settle(self) -> None:
        """An answer is done: keep what is left over for the client's next question."""
        for place, source in [*self.sources.items()]:
            if not source.left:
                del self.sources[place]
                self.beside -= source.holds
        if self.sources:
            self.idle()
        else:
            self.release()

    def release(self) -> None:
        self._drop()
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    def _drop(self) -> None:
        for source in self.sources.values():
            source.drop()
        self.sources = {}
        self.beside = 0
        self._dropped.set()
