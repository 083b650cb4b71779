"""The memory of a legacy client's connection: record sets of the broker's last answer that are not fully converted, and
the lease that pays for them and for conversion. When the budget evicts the lease, all of it is dropped at once; the
next offset of each set is still known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from shoal.protocol.wire.types import TopicPartition
    from shoal.proxy.legacy.budget import Budget, Lease
    from shoal.proxy.legacy.conversion import PartitionConversion

__all__ = ["LeasedAnswer"]


class LeasedAnswer:
    """The sources of one answer, and its lease. One object per connection, used for one answer after another.

    `beside`: bytes that the sources hold in addition to the answer; one source converts at a time. `expected`: the
    estimate for the next answer.
    """

    def __init__(self, budget: Budget, working_bytes: int) -> None:
        self.sources: dict[TopicPartition, PartitionConversion] = {}
        self.beside = 0
        self.expected = 0
        self._budget = budget
        self._working = working_bytes
        self._lease: Lease | None = None
        self._answer_bytes = 0
        self._working_bytes = 0  # paid for, in addition to the answer
        self._dropped = trio.Event()

    @property
    def is_wanted(self) -> bool:
        """True while another connection is queued for this budget."""
        return self._budget.is_waited_for

    async def gate(self, size: int) -> None:
        """Wait for a lease for an answer of `size` bytes."""
        assert self._lease is None
        self._answer_bytes, self._working_bytes = size, max(self._working, self.expected)
        self._dropped = trio.Event()
        self._lease = await self._budget.lease(size + self._working_bytes, self._drop)

    def allowance(self, source: PartitionConversion) -> int:
        """Bytes that this source may hold in addition to the answer."""
        return self._working_bytes - self.beside + source.holds

    def afford(self, wants: int, source: PartitionConversion) -> bool:
        """Pay for `wants` bytes; False if that is not possible at once."""
        working = self.beside - source.holds + wants
        if self._lease is None or not self._lease.grow(self._answer_bytes + working):
            return False
        self._working_bytes = working
        return True

    def idle(self) -> None:
        """The connection waits for its client."""
        if self._lease is not None:
            self._lease.idle()

    def busy(self) -> None:
        """The client is active again. Evicted sources are `dropped`."""
        if self._lease is not None:
            self._lease.busy()

    async def give_way(self) -> None:
        """Stay idle long enough that a waiting connection can get the lease."""
        self.idle()
        with trio.move_on_after(2 * self._budget.grace):
            await self._dropped.wait()

    def settle(self) -> None:
        """An answer is complete: keep the rest for the client's next request."""
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
