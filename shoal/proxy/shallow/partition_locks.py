"""A partition is worked on by one connection at a time, however many there are."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from shoal.protocol.shallow.unwrap.delivery import Target

__all__ = ["PartitionLocks"]


class PartitionLocks:
    """A lock for each partition that somebody works on or waits for; no more than there are held requests."""

    def __init__(self) -> None:
        self._locks: dict[Target, trio.Lock] = {}
        self._users: Counter[Target] = Counter()

    @asynccontextmanager
    async def held(self, targets: Iterable[Target]) -> AsyncIterator[None]:
        """All of `targets`, taken in one global order, so that two requests never wait for each other."""
        async with AsyncExitStack() as stack:
            for target in sorted(targets):
                await stack.enter_async_context(self._one(target))
            yield

    @asynccontextmanager
    async def _one(self, target: Target) -> AsyncIterator[None]:
        lock = self._locks.setdefault(target, trio.Lock())
        self._users[target] += 1
        try:
            async with lock:
                yield
        finally:
            self._users[target] -= 1
            if not self._users[target]:
                del self._users[target], self._locks[target]
