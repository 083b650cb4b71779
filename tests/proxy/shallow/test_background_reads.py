"""What is read in the background, with limits; the source is a function. The clock jumps when all tasks wait."""

from __future__ import annotations

from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import pytest
import trio

from shoal.protocol.shallow.unwrap.findings import TRY_AGAIN
from shoal.protocol.shallow.unwrap.plan import Refused
from shoal.proxy.cluster.brokers import NoAnswer
from shoal.proxy.config.settings import MIB
from shoal.proxy.shallow.claims.background_reads import BackgroundReads
from tests.support.shallow.world import some_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from trio.testing import MockClock

    from shoal.protocol.shallow.envelope import EnvelopeKey

WAIT = 10.0


def key_of(partition: int, serial: int = 0) -> EnvelopeKey:
    return some_key(partition=partition, serial=serial, is_claim_check=True)


@dataclass
class Source:
    """`away`: partitions without an answer. Its tasks are those of a listener."""

    tasks: trio.Nursery
    room: int
    kept: set[EnvelopeKey] = field(default_factory=set)
    one_by_one: trio.Lock | None = None  # as one broker is read
    away: set[int] = field(default_factory=set)
    hung: set[int] = field(default_factory=set)
    slow: set[int] = field(default_factory=set)
    lost: dict[EnvelopeKey, float] = field(default_factory=dict)  # seconds until there is no answer
    asked: list[EnvelopeKey] = field(default_factory=list)
    read_so_far: list[EnvelopeKey] = field(default_factory=list)
    may_spawn: bool = True

    def spawn(self, task: Callable[[], Awaitable[None]]) -> None:
        self.tasks.start_soon(task)

    async def read(self, key: EnvelopeKey) -> memoryview | Refused:
        self.asked.append(key)
        if key in self.lost:
            await trio.sleep(self.lost[key])
            raise NoAnswer("lost")
        if key.partition in self.hung:
            await trio.sleep_forever()
        async with self.one_by_one or nullcontext():
            await trio.sleep(12 if key.partition in self.slow else 0.1)
        if key.partition in self.away:
            raise NoAnswer("away")
        self.read_so_far.append(key)
        if key.payload <= self.room:
            self.room -= key.payload
            self.kept.add(key)
        return memoryview(b"batches")


@asynccontextmanager
async def reading(room: int = 1024 * MIB, **limits: int) -> AsyncIterator[tuple[Source, BackgroundReads]]:
    """Afterwards no task may be left. `room`: for what has been read, in bytes."""
    async with trio.open_nursery() as tasks:
        source = Source(tasks, room)
        yield source, (reads := BackgroundReads(source, source.read, lambda: source.room, **limits))
        reads.end()
    assert not tasks.child_tasks


async def results(reads: BackgroundReads, *keys: EnvelopeKey) -> list[bool]:
    """Whether each has been read."""
    found = await reads.wait(keys, trio.current_time() + WAIT)
    assert found.keys() == {*keys}
    assert all(not isinstance(one, Refused) or one.error_code == TRY_AGAIN for one in found.values())
    return [not isinstance(found[key], Refused) for key in keys]


async def test_what_was_not_read_in_time_is_read_later(clock: MockClock) -> None:
    async with reading() as (source, reads):
        source.away.add(0)
        began = trio.current_time()
        assert await results(reads, key_of(0), key_of(1)) == [False, True]
        assert trio.current_time() - began == pytest.approx(WAIT, abs=0.1)
        source.away.clear()
        asked = len(source.asked)
        await trio.sleep(5)
        assert len(source.asked) == asked + 1


@pytest.mark.parametrize("room", [250, 50, 0])
async def test_requests_for_more_than_there_is_room_for_get_theirs_one_after_the_other(
    clock: MockClock, room: int
) -> None:
    """What is kept for a request is not forgotten before the request has got all."""
    async with reading(room) as (source, reads), trio.open_nursery() as asking:
        source.one_by_one = trio.Lock()

        async def ask(partition: int) -> None:
            wanted = [replace(key_of(partition, serial), payload=10) for serial in range(8)]
            again: set[EnvelopeKey] = set()
            while missing := [key for key in wanted if key not in source.kept and key not in again]:
                found = await reads.wait(missing, trio.current_time() + WAIT)
                again = {key for key, one in found.items() if not isinstance(one, Refused)}
                if len(again) < len(missing):
                    await trio.sleep(1)
            for key in source.kept.intersection(wanted):
                source.kept.remove(key)
                source.room += key.payload

        for partition in range(40):
            asking.start_soon(ask, partition)
        asking.cancel_scope.deadline = trio.current_time() + 120
    assert not asking.cancel_scope.cancelled_caught
    assert (source.kept, source.room) == (set(), room)
    assert len(source.read_so_far) <= 1.5 * 40 * 8


async def test_a_partition_that_cannot_be_read_takes_no_room_from_others(clock: MockClock) -> None:
    async with reading(100) as (source, reads):
        source.hung.add(0)
        source.slow = {1, 2}
        lost = [replace(key_of(0, serial), payload=10) for serial in range(8)]
        assert not any(await results(reads, *lost))
        async with trio.open_nursery() as asking:
            for partition in source.slow:
                asking.start_soon(results, reads, replace(key_of(partition), payload=40))
            await trio.sleep(1)
            assert {key.partition for key in source.asked} == {0, 1, 2}, "both are read at once"


async def test_a_partition_that_is_asked_for_anew_is_not_silent(clock: MockClock) -> None:
    """A request waits for another partition, had this one at once, and gives up while it is read for others."""
    async with reading() as (source, reads):
        source.hung.add(0)
        async with trio.open_nursery() as asking:
            asking.start_soon(results, reads, key_of(0), key_of(1))
            await trio.sleep(WAIT - 0.05)
            asking.start_soon(results, reads, key_of(1, 1))
            await trio.sleep(0.07)
            assert await results(reads, key_of(1, 2)) == [True]


async def all_of(reads: BackgroundReads, *keys: EnvelopeKey, within: float) -> bool:
    """Whether a request that is retried gets all of them at once, as a batch of the mirror needs it."""
    began = trio.current_time()
    while trio.current_time() - began < within:
        if all(await results(reads, *keys)):
            return True
        await trio.sleep(1)
    return False


@pytest.mark.parametrize("room", [0, 5])
async def test_without_room_a_request_gets_what_takes_longer_than_it_waits(clock: MockClock, room: int) -> None:
    """Also if it is of several partitions; and then another one."""
    async with reading(room) as (source, reads):
        source.slow = {0, 1}
        for serial in range(2):
            wanted = [replace(key_of(partition, serial), payload=10) for partition in (0, 1)]
            assert await all_of(reads, *wanted, replace(key_of(2, serial), payload=10), within=60)


async def test_what_a_request_has_got_may_go_while_its_partition_is_read(clock: MockClock) -> None:
    async with reading(0) as (source, reads):
        lost, held = [key_of(0, 1), key_of(0, 2)], key_of(0, 3)
        source.lost = dict.fromkeys(lost, 0.0)
        assert await results(reads, *lost, held) == [False, False, True]
        source.lost = dict.fromkeys(lost, 40.0)
        await trio.sleep(5)
        assert await results(reads, held) == [True]
        await trio.sleep(100)
        source.lost.clear()
        assert await all_of(reads, *lost, within=30)


async def test_what_is_appended_is_not_held_any_more(clock: MockClock) -> None:
    async with reading(0) as (source, reads):
        source.away.add(1)
        for _ in range(2):
            assert await results(reads, key_of(0), key_of(1)) == [True, False]
        assert source.asked.count(key_of(0)) == 1
        reads.release([key_of(0)])
        assert await results(reads, key_of(0), key_of(1)) == [False, False]


async def test_who_keeps_the_others_waiting_for_nothing_makes_way(clock: MockClock) -> None:
    async with reading(0) as (source, reads):
        source.away.add(0)
        async with trio.open_nursery() as asking:
            asking.start_soon(partial(all_of, reads, key_of(0), key_of(1), within=1000))
            await trio.sleep(1)
            assert await all_of(reads, key_of(2), within=120)
            asking.cancel_scope.cancel()


async def test_small_ones_do_not_overtake_a_large_one_for_ever(clock: MockClock) -> None:
    async with reading(100 * MIB) as (source, reads), trio.open_nursery() as asking:

        async def small(partition: int) -> None:
            await trio.sleep(partition / 40)
            for serial in count():
                key = replace(key_of(partition, serial), payload=3 * MIB)
                await reads.wait([key], trio.current_time() + WAIT)
                await trio.sleep(1)
                if key in source.kept:
                    source.kept.remove(key)
                    source.room += key.payload

        source.one_by_one = trio.Lock()
        for partition in range(1, 41):
            asking.start_soon(small, partition)
        await trio.sleep(10)
        assert await all_of(reads, replace(key_of(0), payload=80 * MIB), within=60)
        asking.cancel_scope.cancel()


async def test_what_is_not_asked_for_any_more_is_not_read(clock: MockClock) -> None:
    async with reading() as (source, reads):
        source.away.add(0)
        await results(reads, key_of(0))
        await trio.sleep(60)
        asked = len(source.asked)
        await trio.sleep(60)
        assert len(source.asked) == asked


async def test_a_partition_that_cannot_be_read_leaves_room_for_others(clock: MockClock) -> None:
    async with reading(max_reads=20) as (source, reads):
        source.hung.add(0)
        bad = [key_of(0, serial) for serial in range(30)]
        async with trio.open_nursery() as asking:

            async def ask() -> None:
                while True:
                    await results(reads, *bad)
                    await trio.sleep(0.5)

            asking.start_soon(ask)
            for second in range(40):
                await trio.sleep(1)
                assert await results(reads, key_of(1, second)) == [True]
            asking.cancel_scope.cancel()


async def test_partitions_that_cannot_be_read_make_way(clock: MockClock) -> None:
    async with reading(max_partitions=3) as (source, reads):
        source.hung = {0, 1, 2}
        assert await results(reads, *map(key_of, source.hung)) == [False, False, False]
        assert await results(reads, key_of(3)) == [False]
        await trio.sleep(0.1)
        assert await results(reads, key_of(3)) == [True]


async def test_a_partition_that_wants_too_much_takes_nothing_from_a_slow_one(clock: MockClock) -> None:
    async with reading(max_reads=20) as (source, reads):
        source.slow.add(0)
        async with trio.open_nursery() as asking:

            async def ask() -> None:
                for serial in count():
                    await results(reads, *(key_of(1, 100 * serial + number) for number in range(15)))
                    await trio.sleep(1)

            assert await results(reads, key_of(0)) == [False]
            asking.start_soon(ask)
            for _ in range(5):
                await trio.sleep(1)
                await results(reads, key_of(0))
            assert key_of(0) in source.read_so_far
            asking.cancel_scope.cancel()


async def test_requests_hold_only_so_much(clock: MockClock) -> None:
    """What they do not wait for is read, too, and not held here."""
    async with reading() as (source, reads):
        source.slow.add(0)
        held = list[list[bool]]()

        async def ask(number: int) -> None:
            held.append(await results(reads, replace(key_of(1, number), payload=16 * MIB), key_of(0)))

        async with trio.open_nursery() as asking:
            for number in range(10):
                asking.start_soon(ask, number)
        assert len(source.asked) == 11
        assert sorted(held) == [[False, False]] * 7 + [[True, False]] * 3


async def test_a_deadline_that_is_over_says_nothing_of_the_source(clock: MockClock) -> None:
    async with reading() as (source, reads):
        found = await reads.wait([key_of(0)], trio.current_time())
        assert [isinstance(one, Refused) for one in found.values()] == [True]
        source.away.add(0)
        began = trio.current_time()
        assert await results(reads, key_of(0, 1)) == [False]
        assert trio.current_time() - began == pytest.approx(WAIT, abs=0.1)


async def test_a_listener_that_drains_reads_nothing_more(clock: MockClock) -> None:
    async with reading() as (source, reads):
        source.may_spawn = False
        began = trio.current_time()
        assert await results(reads, key_of(0)) == [False]
        assert trio.current_time() == began


async def test_one_read_serves_all_who_wait(clock: MockClock) -> None:
    async with reading() as (source, reads):
        async with trio.open_nursery() as waiting:
            for _ in range(5):
                waiting.start_soon(results, reads, key_of(0))
        assert source.asked == [key_of(0)]
