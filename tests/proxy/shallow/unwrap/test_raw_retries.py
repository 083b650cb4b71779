"""Raw batches that a mirror sends again: cut where the target refuses their size; nothing lost, doubled or left out."""

from __future__ import annotations

import pytest
import trio
from kio.schema.errors import ErrorCode

from shoal.protocol.records.batch import NewRecord, encode_batch, read_batch_header
from shoal.protocol.shallow.unwrap.appended_log import NOTHING, Appended
from shoal.protocol.shallow.unwrap.raw_retries import PROGRESS_SECONDS, RECENT, RawRetries
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.types import TopicPartition
from tests.support.rig import until
from tests.support.shallow.batches import BATCHES, NONE, NOT_LEADER, OTHERS, outer, records
from tests.support.shallow.brokers import ORDERS, Script
from tests.support.shallow.rig import Producer, ShallowRig, shallow_rig

pytestmark = pytest.mark.usefixtures("lane")

TOO_LARGE, LIST_TOO_LARGE = ErrorCode.message_too_large, ErrorCode.record_list_too_large
RECORDS = [NewRecord(1000 + at, b"k%d" % at, b"%d" % at * 40, ((b"h", b"%d" % at),)) for at in range(30)]
RAW = encode_batch(RECORDS)
NEXT = encode_batch([NewRecord(2000, b"next", b"one")])
HALF = Appended(records=len(RECORDS) // 2)
LIMIT = 300  # bytes: the target takes a few of these records in a batch
HALVED = len(RAW) * 2 // 3


def limit(r: ShallowRig, most: int, partition: int = 0) -> None:
    r.target.logs[ORDERS, partition].max_message_bytes = most


async def refused(r: ShallowRig, most: int = LIMIT) -> Producer:
    """A client of which the target has refused `RAW`, as larger than `most` bytes."""
    limit(r, most)
    client = await r.producer()
    await client.produce(RAW)
    assert await client.answers() == {0: (TOO_LARGE, -1)}
    assert r.target.log() == []
    return client


async def test_a_raw_batch_that_comes_again_is_cut_to_what_the_target_takes() -> None:
    async with shallow_rig() as r:
        client = await refused(r)
        await client.produce(RAW)
        assert await client.answers() == {0: (NONE, 0)}
        assert r.target.log() == RECORDS
        await client.produce(NEXT)
        assert await client.answers() == {0: (NONE, len(RECORDS))}
        assert [len(batch) for sent in r.target.requests for batch in sent.values()].count(len(RAW)) == 2


async def test_equal_batches_in_a_row_are_all_appended() -> None:
    """As a source may have them; also where each must be cut."""
    for most in (1 << 20, LIMIT):
        async with shallow_rig() as r:
            limit(r, most)
            client = await r.producer()
            done = 0
            for _ in range(5):
                await client.produce(RAW)
                (code, offset), *_ = (await client.answers()).values()
                if code is NONE:
                    assert offset == done * len(RECORDS)
                    done += 1
            assert done == (5 if most > LIMIT else 4)
            assert r.target.log() == RECORDS * done


async def test_after_an_error_amid_the_parts_the_retry_brings_only_the_rest() -> None:
    whole, parts = 2, 1  # requests: the batch, twice, and then its parts
    async with shallow_rig(scripts={whole + parts: Script(errors={0: NOT_LEADER})}) as r:
        client = await refused(r, HALVED)
        for expected in ((NOT_LEADER, -1), (NONE, 0)):
            await client.produce(RAW)
            assert await client.answers() == {0: expected}
        assert r.target.log() == RECORDS


async def test_a_mirror_beside_a_client_whose_batches_are_small_and_many() -> None:
    async with shallow_rig() as r:
        client, other = await refused(r), await r.producer()
        for at in range(2 * RECENT):
            await other.produce(encode_batch([NewRecord(3000 + at, b"small", b"%d" % at)]))
            assert (await other.answers())[0][0] is NONE
        await client.produce(RAW)
        assert (await client.answers())[0][0] is NONE
        assert r.target.log()[-len(RECORDS) :] == RECORDS


async def test_what_was_read_behind_a_slow_request_of_a_client_that_has_left_is_no_retry() -> None:
    """It has sent it again over another connection, and what follows."""
    async with shallow_rig() as r:
        first = await refused(r)
        gate = trio.Event()
        r.target.scripts = {1: Script(gate=gate)}
        await first.send_only({1: outer(*OTHERS)})
        await r.arrived(2)
        await first.send_only({0: RAW})
        await first.leave()
        second = await r.producer()
        for batch in (RAW, NEXT):
            await second.produce(batch)
            assert (await second.answers())[0][0] is NONE
        there = r.target.log()[:]
        gate.set()
        await r.closed(number=1)
        assert r.target.log() == there


async def test_batches_of_several_mirrors_of_a_partition_that_come_in_turns() -> None:
    """Each repeats its own, and may have sent envelopes meanwhile."""
    batches = [encode_batch([record._replace(key=b"%d" % at) for record in RECORDS]) for at in range(RECENT)]
    async with shallow_rig() as r:
        limit(r, LIMIT)
        mirrors = [await r.producer() for _ in batches]
        for mirror, batch in zip(mirrors, batches, strict=True):
            await mirror.produce(batch)
            assert await mirror.answers() == {0: (TOO_LARGE, -1)}
        await mirrors[0].produce(outer(*OTHERS))
        assert (await mirrors[0].answers())[0][0] is NONE
        for mirror, batch in zip(mirrors, batches, strict=True):
            await mirror.produce(batch)
            assert (await mirror.answers())[0][0] is NONE
        keys = [record.key for record in r.target.log()[len(records(*OTHERS)) :]]
        assert keys == [b"%d" % at for at in range(RECENT) for _ in RECORDS]


OTHER = {
    "a raw batch": (NEXT, -1),
    "an envelope": (outer(*OTHERS), -1),
    "a batch without an answer": (NEXT, 0),
    "a batch of an idempotent producer": (
        encode_batch([NewRecord(2000, b"next", b"one")], producer_id=7, producer_epoch=0, base_sequence=0),
        -1,
    ),
}


@pytest.mark.parametrize("other", OTHER)
async def test_what_is_appended_of_a_batch_is_forgotten_when_anything_else_comes(other: str) -> None:
    """A mirror that was restarted sends what came before again, and then this: all of it must follow."""
    between, acks = OTHER[other]
    async with shallow_rig(scripts={3: Script(errors={0: NOT_LEADER})}) as r:
        client = await refused(r, HALVED)
        await client.produce(RAW)
        assert await client.answers() == {0: (NOT_LEADER, -1)}
        begun = r.target.log()[:]
        assert begun == RECORDS[: len(begun)] != []
        sent = len(r.target.requests)
        await client.produce(between, acks=acks)
        await until(lambda: len(r.target.requests) > sent)
        if acks:
            await client.answers()
        await taken(client, RAW)
        assert r.target.log()[-len(RECORDS) :] == RECORDS


async def taken(client: Producer, batch: bytes) -> None:
    """A mirror tries until it is."""
    for _ in range(3):
        await client.produce(batch)
        if (await client.answers())[0][0] is NONE:
            return
    pytest.fail("it is refused")


@pytest.mark.parametrize("waiting", [[RAW] * 3, [NEXT]], ids=["the same batch", "another one"])
async def test_clients_that_have_left_while_they_waited_bring_nothing(waiting: list[bytes]) -> None:
    """A mirror connects again, and sends it again, while Shoal still works on the partition."""
    async with shallow_rig() as r:
        first = await refused(r)
        gate = trio.Event()
        r.target.scripts = {2: Script(gate=gate)}  # the first part
        await first.produce(RAW)
        await r.arrived(3)
        for batch in waiting:
            client = await r.producer()
            await client.produce(batch)
            await until(lambda: sum(connection.handling for connection in r.server.connections()) >= 2)
            await client.leave()
        gate.set()
        assert await first.answers() == {0: (NONE, 0)}
        await r.closed(number=len(waiting))
        assert r.target.log() == RECORDS


def test_progress_is_not_remembered_for_ever() -> None:
    """The target may have been emptied since, and the mirror rewound."""
    retries, partition = RawRetries(), TopicPartition("t", 0)
    header = read_batch_header(RAW, 0, len(RAW))
    for seconds, expected in ((0, None), (1, NOTHING), (PROGRESS_SECONDS, HALF), (2 * PROGRESS_SECONDS, NOTHING)):
        retried = retries.take(partition, RAW, 0, len(RAW), header, float(seconds), origin=1)
        assert (retried is None) == (expected is None)
        if retried is not None:
            (item,) = retried.plan.items
            assert retried.deliveries.recall(partition, item.identity) == expected
            retried.deliveries.record(partition, item.identity, HALF)


def test_of_each_connection_of_a_partition_the_last_batch_is_remembered() -> None:
    retries, partition = RawRetries(), TopicPartition("t", 0)
    batches = [encode_batch([NewRecord(at, b"k", b"v")]) for at in range(3 * RECENT)]

    def comes_again(number: int, origin: int) -> bool:
        batch = batches[number]
        header = read_batch_header(batch, 0, len(batch))
        return retries.take(partition, batch, 0, len(batch), header, 0.0, origin=origin) is not None

    assert not comes_again(0, 0)
    assert not any(comes_again(at, 1) for at in range(2 * RECENT, 3 * RECENT))
    assert comes_again(0, 0)
    assert comes_again(0, 2)
    assert not any(comes_again(at, 2 + at) for at in range(1, RECENT + 1))
    assert not comes_again(0, 0)


def test_a_name_that_no_topic_has_is_not_remembered() -> None:
    retries, header = RawRetries(), read_batch_header(RAW, 0, len(RAW))
    for length, expected in ((249, True), (250, False)):
        partition = TopicPartition("n" * length, 0)
        found = [retries.take(partition, RAW, 0, len(RAW), header, 0.0, origin=1) for _ in range(2)]
        assert (found[1] is not None) is expected


def test_partitions_unused_for_the_longest_time_are_forgotten() -> None:
    retries, header = RawRetries(limit=2), read_batch_header(RAW, 0, len(RAW))
    found = [
        retries.take(TopicPartition("t", at), RAW, 0, len(RAW), header, 0.0, origin=1) for at in (0, 1, 0, 2, 0, 1)
    ]
    assert [one is not None for one in found] == [False, False, True, False, True, False]


async def test_a_batch_that_is_refused_again_gets_the_broker_s_answer_again() -> None:
    refused = Script(errors={0: ErrorCode.invalid_record})
    async with shallow_rig(scripts={0: refused, 1: refused}) as r:
        client, said = await r.producer(), list[str | None]()
        for _ in range(2):
            await client.produce(RAW)
            ((found,),) = (topic.partition_responses for topic in (await client.answer()).responses)
            said.append(found.error_message)
        assert said == ["the broker says invalid_record"] * 2


async def test_a_single_record_that_is_too_large_is_an_error_that_ends_the_retries() -> None:
    large = [*RECORDS[:5], NewRecord(1500, b"large", bytes(2 * LIMIT)), *RECORDS[5:]]
    async with shallow_rig() as r:
        limit(r, LIMIT)
        client = await r.producer()
        await client.produce(encode_batch(large))
        assert await client.answers() == {0: (TOO_LARGE, -1)}
        await client.produce(encode_batch(large))
        answer = await client.answer()
        ((found,),) = (topic.partition_responses for topic in answer.responses)
        assert found.error_code is LIST_TOO_LARGE
        assert "max.message.bytes" in found.error_message
        assert "a single record is too large" in found.error_message
        assert r.target.log() == RECORDS


async def test_beside_an_envelope_and_other_raw_batches_and_compressed() -> None:
    async with shallow_rig(plain_compression="zstd") as r:
        limit(r, LIMIT)
        client = await r.producer()
        await client.produce(RAW, outer(*OTHERS), NEXT)
        assert await client.answers() == {0: (TOO_LARGE, -1), 1: (NONE, 4), 2: (NONE, 0)}
        await client.produce(RAW, outer(*BATCHES), NEXT)
        assert await client.answers() == {0: (NONE, 0), 1: (NONE, 19), 2: (NONE, 1)}
        assert r.target.log() == RECORDS
        assert r.target.log(1) == records(*OTHERS, *BATCHES)
        codecs = {batch[22] & 7 for sent in r.target.requests for (_, index), batch in sent.items() if index == 0}
        assert Codec.ZSTD in codecs


async def test_the_answer_was_lost_so_it_comes_over_another_connection() -> None:
    """As without Shoal, it is appended once more: a mirror without producer id has no other way."""
    async with shallow_rig(scripts={0: Script(closes=True)}) as r:
        first = await r.producer()
        await first.produce(RAW)
        await r.arrived(1)
        again = await r.producer()
        with trio.fail_after(5):
            await again.produce(RAW)
            (answer,) = (await again.answers()).values()
        assert answer[0] is NONE
        assert r.target.log()[-len(RECORDS) :] == RECORDS
        assert len(r.target.log()) % len(RECORDS) == 0


async def test_a_damaged_batch_that_comes_again_stays_the_broker_s() -> None:
    damaged = RAW[:-1] + bytes([RAW[-1] ^ 1])
    async with shallow_rig() as r:
        client = await r.producer()
        for _ in range(3):
            await client.produce(damaged)
            assert await client.answers() == {0: (ErrorCode.corrupt_message, -1)}
        assert r.target.log() == []


async def test_with_acks_0_a_batch_that_comes_again_is_forwarded() -> None:
    async with shallow_rig() as r:
        client = await r.producer()
        for _ in range(3):
            await client.produce(RAW, acks=0)
        await r.arrived(3)
        assert r.target.acks == [0, 0, 0]
        assert r.target.log() == RECORDS * 3
