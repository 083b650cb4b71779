"""Mirror topics whose names Shoal gets to know late, or whose ids change: they are neither raw nor forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import trio
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from shoal.protocol.messages.metadata import MetadataResponse
from shoal.protocol.mirror_topics.probe import PROBE_BATCH
from shoal.protocol.records.batch import NewRecord, encode_batch, open_batch, read_batch_header
from tests.support.shallow.brokers import ORDERS, ORDERS_ID, SourceBroker, TargetBroker, make
from tests.support.shallow.partition import Partition
from tests.support.shallow.rig import Consumer, shallow_rig

if TYPE_CHECKING:
    import pytest

    from tests.support.shallow.brokers import Entity
    from tests.support.shallow.rig import ShallowRig

SET = encode_batch([NewRecord(1, b"k", b"v")])
LOCATOR = b"shoal.same-offsets/"


class Session:
    """The fetch session of a Java consumer: the partition is listed only when the session begins."""

    def __init__(self, consumer: Consumer) -> None:
        consumer.version = 13
        self._consumer = consumer
        self._epoch = 0

    async def fetch(self) -> bytes | None:
        """None: the session was to begin anew."""
        listed: dict[tuple[str | UUID, int], int] = {} if self._epoch else {(ORDERS_ID, 0): 0}
        session = {"session_id": 7 if self._epoch else 0, "session_epoch": self._epoch}
        await self._consumer.send(self._consumer.request(listed, **session))
        answer = await self._consumer.answer()
        self._epoch += 1
        if answer.error_code is not ErrorCode.none:
            self._epoch = 0
            return None
        return bytes(answer.responses[0].partitions[0].records or b"")


async def test_a_topic_whose_name_is_unknown_at_first_is_mirrored_later() -> None:
    """And meanwhile the mirror does not ask as fast as it can."""
    source = SourceBroker(sets=[{(ORDERS_ID, 0): SET}] * 1000, session_id=7)
    async with shallow_rig(source=source, same_offsets="orders") as rig:
        session = Session(await rig.consumer())
        began = trio.current_time()
        answers = [await session.fetch() for _ in range(4)]
        assert not any(answers)
        assert trio.current_time() - began >= 1.0
        source.topics[ORDERS_ID] = ("orders", 1)
        while not (given := await session.fetch()):
            assert trio.current_time() - began < 30
        assert LOCATOR in given


class Copy(Partition):
    """A mirror topic on a broker with the agent: what the probe says of its end."""

    def produce(self, records: bytes) -> tuple[int, int]:
        assert records == PROBE_BATCH
        return 0, 30


async def test_a_source_that_was_created_again_is_compared_with_the_copy_again() -> None:
    """The mirror goes on where it was, and the new topic has records there."""
    other_id = UUID(int=0x8765_4321)
    source = SourceBroker(topics={ORDERS_ID: ("orders", 1), other_id: ("orders", 1)})
    target = TargetBroker()
    target.logs[ORDERS, 0] = Copy()
    async with shallow_rig(source=source, target=target, same_offsets="orders") as rig:
        consumer, producer = await rig.consumer(), await rig.producer()
        consumer.version = 13

        async def fetch(topic_id: UUID, position: int) -> tuple[bool, int]:
            """-> whether the mirror gets a locator, and the offset that the source was asked for."""
            source.sets = [{(topic_id, 0): encode_batch([NewRecord(1, b"k", b"v")], base_offset=29)}]
            given = await consumer.fetch(position, topic=topic_id)
            (asked,) = source.requests[-1].topics[0].partitions
            if LOCATOR in given:
                await producer.produce(given)
                await producer.answers()
            return LOCATOR in given, asked.fetch_offset

        assert await fetch(ORDERS_ID, 30) == (True, 30)
        assert await fetch(ORDERS_ID, 31) == (False, 29)  # the last record of the copy, to be compared
        assert await fetch(ORDERS_ID, 32) == (False, 30)
        assert await fetch(other_id, 32) == (True, 32)
        assert await fetch(other_id, 33) == (False, 29)


class Expiring(SourceBroker):
    """With an `error`, that is its answer about orders-0."""

    error = ErrorCode.none

    def _fetch(self, request: Entity, schema: type[Entity]) -> Entity:
        if self.error is ErrorCode.none:
            return super()._fetch(request, schema)
        return self.fetched(schema, {(ORDERS, 0): b""}, self.error)


async def test_the_ends_of_a_log_that_has_expired_since_are_not_what_it_has_now(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An operator reads them beside the offset that the source does not have."""
    source, target = Expiring(topics={ORDERS_ID: ("orders", 1)}), TargetBroker()
    target.logs[ORDERS, 0] = Copy()
    async with shallow_rig(source=source, target=target, same_offsets="orders") as rig:
        consumer, producer = await rig.consumer(), await rig.producer()
        source.sets = [{(ORDERS, 0): encode_batch([NewRecord(1, b"k", b"v")], base_offset=30)}]
        await producer.produce(await consumer.fetch(30))
        await producer.answers()
        source.error = ErrorCode.offset_out_of_range
        await consumer.fetch(31)
    assert "the source has no offset 29, where the copy ends (its log was from " in caplog.text


class Growing(Copy):
    """It takes the batches of a mirror, too."""

    end = 30

    def produce(self, records: bytes) -> tuple[int, int]:
        if records != PROBE_BATCH:
            self.end = max(self.end, read_batch_header(records, 0, len(records)).last_offset + 1)
        return 0, self.end


async def test_a_mirror_is_located_when_the_copy_has_what_it_was_given_before() -> None:
    """It connects again, and its producer still has an envelope. What the source gives at these offsets now may be
    compacted since: the copy would differ from it.
    """
    source, target = SourceBroker(topics={ORDERS_ID: ("orders", 1)}), TargetBroker()
    target.logs[ORDERS, 0] = Growing()
    async with shallow_rig(source=source, target=target, same_offsets="orders") as rig:
        consumer, producer = await rig.consumer(), await rig.producer()

        async def fetch(position: int, *there: int) -> bytes:
            records = [encode_batch([NewRecord(1, b"k", b"v")], base_offset=offset) for offset in there]
            source.sets = [{(ORDERS, 0): b"".join(records)}]
            return await consumer.fetch(position)

        async def produce(*given: bytes) -> None:
            records = [record for one in given for record in open_batch(one, 0, len(one), limit=10_000)[1]]
            made = [NewRecord(1, record.key, record.value, record.headers) for record in records]
            await producer.produce(encode_batch(made))
            await producer.answers()

        await produce(await fetch(30, 30))
        envelope = await fetch(31, 29, 30)
        consumer = await rig.consumer()
        locator = await fetch(32, 31)
        assert LOCATOR in locator
        await produce(envelope, locator)
        again = await fetch(33, 31)
        assert LOCATOR in again
        await produce(again)
        assert await fetch(34, 30, 31)
        (asked,) = source.requests[-1].topics[0].partitions
        assert asked.fetch_offset == 30, "the last record of the copy, to be compared"


class Learning(SourceBroker):
    """The name of a new id becomes known while a Fetch with this id is at the broker."""

    other: UUID | None = None
    rig: ShallowRig | None = None

    def _fetch(self, request: Entity, schema: type[Entity]) -> Entity:
        if self.other is not None and self.rig is not None:
            topics = (("orders", self.other.bytes),)
            learnt = MetadataResponse(brokers=(), cluster_id=None, topics=topics, partition_counts=(1,))
            self.rig.server.clusters["from"].learn(learnt)
        return super()._fetch(request, schema)


async def test_a_new_id_whose_name_was_unknown_when_it_was_asked_for_gives_nothing() -> None:
    """The mirror's own offset was asked for, of another topic than the place is of."""
    source, target = Learning(topics={ORDERS_ID: ("orders", 1)}), TargetBroker()
    target.logs[ORDERS, 0] = Copy()
    async with shallow_rig(source=source, target=target, same_offsets="orders") as rig:
        consumer, producer = await rig.consumer(), await rig.producer()
        consumer.version, source.rig = 13, rig

        async def fetch(topic_id: UUID, position: int, *there: int) -> bytes:
            records = [encode_batch([NewRecord(1, b"k", b"v")], base_offset=offset) for offset in there]
            source.sets = [{(topic_id, 0): b"".join(records)}]
            return await consumer.fetch(position, topic=topic_id)

        await producer.produce(await fetch(ORDERS_ID, 30, 30))
        await producer.answers()
        assert await fetch(ORDERS_ID, 31, 29)  # the last record of the copy, to be compared
        assert await fetch(ORDERS_ID, 32, 30)
        assert not await fetch(ORDERS_ID, 33)
        source.other = UUID(int=0x8765_4321)
        assert not await fetch(source.other, 33, 33)
        assert LOCATOR in await fetch(source.other, 33, 33)


async def test_a_new_id_takes_the_place_of_the_old_one_in_a_session() -> None:
    """A Java consumer forgets the old id in the request that has the new one."""
    other_id = UUID(int=0x8765_4321)
    source = SourceBroker(topics={ORDERS_ID: ("orders", 1), other_id: ("orders", 1)}, session_id=7)
    async with shallow_rig(source=source, same_offsets="orders") as rig:
        consumer = await rig.consumer()
        consumer.version = 13
        await consumer.send(consumer.request({(ORDERS_ID, 0): 0}, session_id=0, session_epoch=0))
        await consumer.answer()
        forgotten = make(load_request_schema(1, 13), "ForgottenTopic", topic_id=ORDERS_ID, partitions=(0,))
        session = {"session_id": 7, "session_epoch": 1, "forgotten_topics_data": (forgotten,)}
        await consumer.send(consumer.request({(other_id, 0): 0}, **session))
        await consumer.answer()
        assert rig.wrap.gauges()["same_offsets"]["unknown"] == 1
