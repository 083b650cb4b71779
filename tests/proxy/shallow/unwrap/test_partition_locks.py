"""Locks of partitions: which task waits, which is next, and one that is cancelled while it waits."""

from __future__ import annotations

import trio
from trio.testing import wait_all_tasks_blocked

from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.shallow.unwrap.partition_locks import PartitionLocks

ONE, TWO = TopicPartition("a", 0), TopicPartition("a", 1)


class Users:
    """Tasks that hold partitions until they may go on."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.locks = PartitionLocks()
        self.holding: list[str] = []
        self._nursery = nursery
        self._may_end: dict[str, trio.Event] = {}
        self._scopes: dict[str, trio.CancelScope] = {}

    async def come(self, name: str, *partitions: TopicPartition) -> None:
        self._may_end[name], self._scopes[name] = trio.Event(), trio.CancelScope()
        self._nursery.start_soon(self._use, name, partitions)
        await wait_all_tasks_blocked()

    async def _use(self, name: str, partitions: tuple[TopicPartition, ...]) -> None:
        with self._scopes[name]:
            async with self.locks.held(partitions):
                self.holding.append(name)
                try:
                    await self._may_end[name].wait()
                finally:
                    self.holding.remove(name)

    async def end(self, name: str) -> None:
        self._may_end[name].set()
        await wait_all_tasks_blocked()

    async def cancel(self, name: str) -> None:
        self._scopes[name].cancel()
        await wait_all_tasks_blocked()


async def test_one_after_the_other_in_the_order_in_which_they_came() -> None:
    async with trio.open_nursery() as nursery:
        users = Users(nursery)
        for name in "xyz":
            await users.come(name, ONE)
        for name in "xyz":
            assert users.holding == [name]
            await users.end(name)
        await users.come("w", ONE)
        assert users.holding == ["w"]
        await users.end("w")


async def test_each_waits_for_its_own_partitions_only() -> None:
    async with trio.open_nursery() as nursery:
        users = Users(nursery)
        await users.come("x", TWO)
        await users.come("y", ONE)
        await users.come("both", TWO, ONE)
        assert users.holding == ["x", "y"]
        await users.end("y")
        await users.come("z", ONE)
        assert users.holding == ["x"], "the first of both is locked, the second is waited for"
        await users.end("x")
        assert users.holding == ["both"]
        await users.end("both")
        assert users.holding == ["z"]
        await users.end("z")


async def test_one_that_gives_up_leaves_nothing_locked() -> None:
    async with trio.open_nursery() as nursery:
        users = Users(nursery)
        await users.come("x", TWO)
        await users.come("both", ONE, TWO)
        await users.come("y", ONE)
        await users.cancel("both")
        assert users.holding == ["x", "y"]
        await users.cancel("x")
        await users.come("z", TWO)
        assert users.holding == ["y", "z"]
        for name in "yz":
            await users.end(name)
