"""Locks: only one connection at a time writes to a partition."""

from __future__ import annotations

from contextlib import asynccontextmanager
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

    @asynccontextmanager
    async def held(self, partitions: Iterable[TopicPartition]) -> AsyncIterator[bool]:
        """Hold all of `partitions`, locked in one global order to avoid deadlocks. -> whether it has waited for any."""
        held: list[TopicPartition] = []
        has_waited = False
        try:
            for partition in sorted(partitions):
                has_waited |= await self._take(partition)
                held.append(partition)
            yield has_waited
        finally:
            for partition in held:
                self._release(partition)

    async def _take(self, partition: TopicPartition) -> bool:
        """Nearly always it is free. Then the task goes on: a turn of the scheduler is a tenth of a small request."""
        lock = self._locks.setdefault(partition, trio.Lock())
        try:
            lock.acquire_nowait()
        except trio.WouldBlock:
            await lock.acquire()
            return True
        return False

    def _release(self, partition: TopicPartition) -> None:
        lock = self._locks[partition]
        lock.release()
        if not lock.locked():  # no other task waits for it
            del self._locks[partition]
