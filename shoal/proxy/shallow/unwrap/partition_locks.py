"""Locks: only one connection at a time writes to a partition."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from shoal.protocol.wire.types import TopicPartition


__all__ = ["PartitionLocks"]


class PartitionLocks:
    """A lock for each partition that a request uses or waits for."""

    def __init__(self) -> None:
        self._locks: dict[TopicPartition, trio.Lock] = {}
        self._users: Counter[TopicPartition] = Counter()

    @asynccontextmanager
    async def held(self, partitions: Iterable[TopicPartition]) -> AsyncIterator[None]:
        """Hold all of `partitions`, locked in one global order to avoid deadlocks."""
        async with AsyncExitStack() as stack:
            for partition in sorted(partitions):
                await stack.enter_async_context(self._held(partition))
            yield

    @asynccontextmanager
    async def _held(self, partition: TopicPartition) -> AsyncIterator[None]:
        lock = self._locks.setdefault(partition, trio.Lock())
        self._users[partition] += 1
        try:
            async with lock:
                yield
        finally:
            self._users[partition] -= 1
            if not self._users[partition]:
                del self._users[partition], self._locks[partition]
