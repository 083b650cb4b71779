"""Memory for converting for legacy clients, besides the answer: it is leased before it is used, and large answers are
sent in parts."""

from __future__ import annotations

import random
import weakref
from typing import TYPE_CHECKING

import pytest
import trio

from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.wire.compression import Codec
from shoal.proxy.config.settings import KIB, MIB, SetCompression
from tests.support.batches import raw_snappy_batch
from tests.support.legacy.rig import PLACE, LegacyRig, Message, Place, as_messages, legacy_rig, records
from tests.support.rig import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.proxy.legacy.budget import Budget

CHUNK = 16 * KIB
OTHER = ("t", 1)


def with_raw_blocks(r: LegacyRig, batches: int, size: int = 4000, place: Place = PLACE) -> list[Message]:
    """Batches of one raw block of snappy each, with this many records of 1000 bytes."""
    log, sent = r.broker.log(place), []
    for number in range(batches):
        made = [NewRecord(number, None, b"%d" % at + bytes(1000)) for at in range(size)]
        sent += as_messages(log.end, made)
        log.append_batch(raw_snappy_batch(made))
    return sent


class Watch(trio.abc.Instrument):
    """The least free memory, and the most used besides answers, after any step of any task."""

    def __init__(self, r: LegacyRig) -> None:
        self.least_free = r.path.fetches.budget.size
        self.beside = 0
        self._fetches = r.path.fetches
        trio.lowlevel.add_instrument(self)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.least_free = min(self.least_free, self._fetches.budget.free)
        self.beside = max(self.beside, sum(reader.held.beside for reader in self._fetches._readers.values()))


async def test_what_opening_takes_is_leased_where_it_is_free() -> None:
    async with legacy_rig(chunk_bytes=CHUNK) as r:
        sent = with_raw_blocks(r, 1)
        slow = await r.slow_consumer()
        await slow.ask({PLACE: 0})
        await r.blocked(slow)
        assert r.budget.leased > 4_000_000
        got = (await slow.answer())[PLACE].messages
        assert got == sent[: len(got)]
        assert len(r.broker.fetches) == 1


@pytest.mark.parametrize("compression", SetCompression)
async def test_what_is_not_free_is_waited_for_with_nothing_in_hand(
    compression: SetCompression,
) -> None:
    """Ten clients, and room for one block and a half."""
    async with legacy_rig(grace=0.005, chunk_bytes=CHUNK, budget_bytes=6 * MIB, compression=compression) as r:
        watch = Watch(r)
        sent = with_raw_blocks(r, 3)
        equal: list[bool] = []

        async def read(number: int) -> None:
            consumer = await (r.slow_consumer if number % 3 else r.consumer)()
            got = await consumer.consume({PLACE: 0}, {PLACE: len(sent)}, most=(1 << 20, 5 << 20)[number % 2])
            equal.append(got[PLACE] == sent)

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(read, number)
        assert equal == [True] * 10
        assert watch.least_free >= 0
        assert 4_000_000 < watch.beside < 6 * MIB
        assert r.budget.waits > 0


async def test_two_partitions_are_not_both_opened_where_there_is_room_for_one() -> None:
    async with legacy_rig(chunk_bytes=CHUNK, budget_bytes=6 * MIB) as r:
        watch = Watch(r)
        sent = {place: with_raw_blocks(r, 1, place=place) for place in (PLACE, OTHER)}
        consumer = await r.consumer()
        got = await consumer.consume({PLACE: 0, OTHER: 0}, {PLACE: 4000, OTHER: 4000}, most=2_000_000)
        assert got == sent
        assert watch.beside < 6 * MIB


async def test_what_takes_more_than_the_whole_budget_is_served_alone() -> None:
    async with legacy_rig(chunk_bytes=CHUNK, budget_bytes=MIB) as r:
        watch = Watch(r)
        sent = with_raw_blocks(r, 2)
        r.broker.log(OTHER).append(records(0, 100))
        consumer = await r.consumer()
        got = await consumer.consume({PLACE: 0, OTHER: 0}, {PLACE: len(sent), OTHER: 100})
        assert got == {PLACE: sent, OTHER: as_messages(0, records(0, 100))}
        assert watch.least_free >= 0


async def test_what_a_partition_took_is_paid_for_at_once_the_next_time() -> None:
    async with legacy_rig(chunk_bytes=CHUNK, budget_bytes=MIB, fetch_bytes=64 * KIB) as r:
        sent = with_raw_blocks(r, 4)
        consumer = await r.consumer()
        assert (await consumer.consume({PLACE: 0}, {PLACE: len(sent)}, most=5 << 20))[PLACE] == sent
        assert len(r.broker.fetches) == 5  # the first one twice


def noise(size: int) -> bytes:
    return random.Random(5).randbytes(size)


def with_large_message(r: LegacyRig, codec: Codec, size: int = 3 * MIB) -> list[Message]:
    made = [*records(0, 20), NewRecord(5, b"large", noise(size)), *records(20, 20)]
    r.broker.log().append(made, codec)
    return as_messages(0, made)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4])
async def test_of_a_large_message_a_part_is_given_and_the_rest_can_be_taken(codec: Codec) -> None:
    async with legacy_rig(chunk_bytes=CHUNK, budget_bytes=30 * MIB, fetch_bytes=64 * KIB) as r:
        sent = with_large_message(r, codec)
        slow = await r.slow_consumer()
        await slow.ask({PLACE: 20}, most=4 << 20)
        connection = await r.blocked(slow)
        source = r.path.fetches._readers[connection].held.sources[PLACE]
        assert source.owed > 2 * MIB
        assert source.holds > 3 * MIB
        conversion = weakref.ref(source._conversion)
        (await r.path.fetches.budget.lease(30 * MIB, lambda: None)).release()
        assert (conversion(), source.holds) == (None, 0)
        got = (await slow.answer())[PLACE].messages
        assert got == sent[20 : 20 + len(got)]
        assert len(got) > 1
        assert r.path.tally.resumed == 1


async def test_a_large_message_taken_again_and_again_is_the_same() -> None:
    async with legacy_rig(grace=0.0, chunk_bytes=CHUNK, budget_bytes=30 * MIB) as r:
        sent = with_large_message(r, Codec.GZIP, MIB)
        budget = r.path.fetches.budget

        async def take_all_again_and_again() -> None:
            while True:
                (await budget.lease(budget.size, lambda: None)).release()
                await trio.sleep(0.001)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take_all_again_and_again)
            slow = await r.slow_consumer()
            got = await slow.consume({PLACE: 0}, {PLACE: len(sent)}, most=300_000)
            nursery.cancel_scope.cancel()
        assert got[PLACE] == sent
        assert r.path.tally.resumed > 5


async def test_a_quota_delays_the_rest_of_a_message_that_was_begun() -> None:
    async with legacy_rig(chunk_bytes=CHUNK, budget_bytes=30 * MIB) as r:
        sent = with_large_message(r, Codec.GZIP)
        slow = await r.slow_consumer()
        await slow.ask({PLACE: 20}, most=4 << 20)
        await r.blocked(slow)
        r.broker.over_quota = 3
        (await r.path.fetches.budget.lease(30 * MIB, lambda: None)).release()
        got = (await slow.answer())[PLACE].messages
        assert got[0] == sent[20]
        assert got == sent[20 : 20 + len(got)]
        assert r.broker.over_quota == 0


def compacted(r: LegacyRig) -> None:
    (batch,) = r.broker.log().batches
    made = [*records(0, 20), NewRecord(5, b"large", noise(2 * MIB)), *records(20, 20)]
    r.broker.log().batches = [batch._replace(content=encode_batch(made, codec=Codec.GZIP))]


def moved(r: LegacyRig) -> None:
    r.broker.log().error = 6


def cut(r: LegacyRig) -> None:
    r.broker.log().batches = []


@pytest.mark.parametrize("change", [compacted, moved, cut])
async def test_a_message_that_was_begun_is_never_ended_with_something_else(change: Callable[[LegacyRig], None]) -> None:
    """The connection ends: the client requests it again, as after any lost connection."""
    async with legacy_rig(chunk_bytes=CHUNK, budget_bytes=30 * MIB) as r:
        with_large_message(r, Codec.GZIP)
        slow = await r.slow_consumer()
        await slow.ask({PLACE: 20}, most=4 << 20)
        await r.blocked(slow)
        change(r)
        (await r.path.fetches.budget.lease(30 * MIB, lambda: None)).release()
        size = int.from_bytes(await slow.stream.receive_some(4), "big")
        got = 0
        while data := await slow.stream.receive_some(64 * KIB):
            got += len(data)
        assert got < size - MIB
        await until(lambda: not r.inner.listener.connections)


async def test_what_a_partition_needs_is_leased_although_another_one_has_an_error() -> None:
    """The client gets the error at once, and its source is evicted before its next request. Others wait for memory from
    then on, so a lease cannot grow: the next one must be large enough from the start."""
    async with legacy_rig(grace=0.0, chunk_bytes=CHUNK, budget_bytes=6 * MIB) as r:
        sent = with_raw_blocks(r, 1)
        r.broker.log(OTHER).error = 3
        budget, nobody = r.path.fetches.budget, lambda: None
        taken = await budget.lease(5 * MIB, nobody)
        consumer = await r.consumer()
        given = await consumer.fetch({PLACE: 0, OTHER: 0})
        assert (given[PLACE].messages, given[OTHER].error) == ([], 3)
        evicting = await budget.lease(MIB, nobody)
        await consumer.ask({PLACE: 0, OTHER: 0})
        await until(lambda: r.budget.waiting == 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lease_for_a_moment, budget, 6 * MIB)
            await until(lambda: r.budget.waiting == 2)
            taken.release()
            evicting.release()
            given = await consumer.answer()
        assert given[PLACE].messages == sent[: len(given[PLACE].messages)] != []


async def lease_for_a_moment(budget: Budget, size: int) -> None:
    (await budget.lease(size, lambda: None)).release()
