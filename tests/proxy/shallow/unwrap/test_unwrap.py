"""The unwrap listener between a mirror's producer and a strict target broker: what passes, what is opened, what is
refused.
"""

from __future__ import annotations

from functools import partial

import pytest
import trio
import trio.testing
from kio.schema.errors import ErrorCode

from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.wire.compression import Codec
from shoal.proxy.config.settings import Limits
from shoal.proxy.connection.state import State
from shoal.proxy.statistics import CloseCause
from tests.support.batches import consumed, damaged
from tests.support.rig import until
from tests.support.shallow.batches import (
    BATCHES,
    EARLIER,
    LATER,
    NONE,
    NOT_LEADER,
    OTHERS,
    envelope,
    of,
    outer,
    records,
)
from tests.support.shallow.brokers import ORDERS, ORDERS_ID, Script
from tests.support.shallow.partition import Partition
from tests.support.shallow.rig import shallow_rig
from tests.support.shallow.world import Seen, produced, some_batch

pytestmark = pytest.mark.usefixtures("lane")

# What passes


@pytest.mark.parametrize("version", range(3, 14))
async def test_a_request_without_envelopes_passes_byte_for_byte(version: int) -> None:
    topic = ORDERS_ID if version >= 13 else ORDERS
    async with shallow_rig() as r:
        client = await r.producer()
        client.version = version
        frame = client.request(
            {(topic, 0): encode_batch([EARLIER]), (topic, 3): encode_batch([LATER], codec=Codec.GZIP)}
        )
        await client.send(frame)
        assert await client.answers() == {0: (NONE, 0), 3: (NONE, 0)}
        assert r.target.frames == [frame]


async def test_plain_requests_are_pipelined() -> None:
    gate = trio.Event()
    async with shallow_rig(scripts={0: Script(gate=gate)}) as r:
        client = await r.producer()
        frames = [client.request({(ORDERS, 0): encode_batch([EARLIER])}) for _ in range(3)]
        await client.send(b"".join(frames))
        (connection,) = r.server.listeners["to"].connections
        await until(lambda: len(connection.in_flight) == 3)
        gate.set()
        assert [await client.answers() for _ in range(3)] == [{0: (NONE, number)} for number in range(3)]
        assert r.target.frames == frames


async def test_nobody_asked_for_an_answer() -> None:
    """acks=0: the broker is still asked to answer, which keeps the order; the producer gets no answer."""
    async with shallow_rig() as r:
        client = await r.producer()
        await client.produce(encode_batch([EARLIER]), acks=0)
        await client.produce(outer(*BATCHES), acks=0)
        await client.produce(encode_batch([LATER]))
        assert await client.answers() == {0: (NONE, 16)}
        assert r.target.log() == [EARLIER, *records(*BATCHES), LATER]
        assert r.target.acks == [0, 1, 1, 1, -1]


@pytest.mark.parametrize("partition", range(2))
async def test_an_error_without_an_answer_closes_the_connection(partition: int) -> None:
    """acks=0: as a broker does. Otherwise the producer would send everything to a former leader until its metadata
    is five minutes old."""
    async with shallow_rig(scripts={0: Script(errors={partition: NOT_LEADER})}) as r:
        client = await r.producer()
        await client.produce(outer(*BATCHES), encode_batch([LATER]), acks=0)
        assert await client.at_end()
        assert await r.closed() == {CloseCause.UPSTREAM_CLOSED: 1}
        assert r.target.log(1 - partition) == ([LATER], records(*BATCHES))[partition]


async def test_behind_an_error_without_an_answer_nothing_reaches_the_broker() -> None:
    """acks=0: it is not read, as at a broker."""
    async with shallow_rig(scripts={0: Script(errors={0: NOT_LEADER})}) as r:
        client = await r.producer()
        frames = [client.request({(ORDERS, partition): outer(*BATCHES)}, acks=0) for partition in range(2)]
        await client.send(b"".join(frames))
        assert await client.at_end()
        assert await r.closed() == {CloseCause.UPSTREAM_CLOSED: 1}
        assert len(r.target.requests) == 1


# Rounds and the folded answer


@pytest.mark.parametrize("version", range(3, 14))
async def test_envelopes_of_several_partitions_go_out_in_rounds(version: int) -> None:
    topic = ORDERS_ID if version >= 13 else ORDERS
    async with shallow_rig() as r:
        client = await r.producer()
        client.version = version
        await client.produce(outer(*BATCHES), outer(*OTHERS), outer(BATCHES[0]), topic=topic)
        assert await client.answers() == {0: (NONE, 14), 1: (NONE, 4), 2: (NONE, 3)}
        assert [[place[1] for place in sent] for sent in r.target.requests] == [[0, 1, 2], [0, 1], [0]]
        assert r.target.payloads() == of(*BATCHES)
        assert r.target.payloads(1) == of(*OTHERS)
        assert r.target.log(0) == records(*BATCHES)
        assert r.target.log(1) == records(*OTHERS)
        assert r.target.log(2) == records(BATCHES[0])


async def test_the_answer_is_folded() -> None:
    """One answer: the longest throttle time, the last log start offset, and the broker's address under one of Shoal's
    ports."""
    scripts = {
        0: Script(throttle_ms=5, log_start=1),
        1: Script(throttle_ms=30, log_start=2, leader=(7, "broker-7.example", 9092)),
        2: Script(throttle_ms=10, log_start=3),
    }
    async with shallow_rig(scripts=scripts) as r:
        client = await r.producer()
        client.version = 12
        await client.produce(outer(*BATCHES))
        answer = await client.answer()
        ((one,),) = (topic.partition_responses for topic in answer.responses)
        assert (one.error_code, one.base_offset, one.log_start_offset) == (NONE, 14, 3)
        assert answer.throttle_time.total_seconds() == 0.03
        (leader,) = answer.node_endpoints
        assert (leader.node_id, leader.host) == (7, "127.0.0.1")
        assert leader.port == r.server.listeners["to"].ports.bound[7].port


async def test_a_plain_partition_beside_an_envelope_goes_out_once_and_as_it_is() -> None:
    batch = encode_batch([EARLIER, LATER], codec=Codec.LZ4)
    async with shallow_rig() as r:
        client = await r.producer()
        await client.produce(outer(*BATCHES), batch)
        assert await client.answers() == {0: (NONE, 14), 1: (NONE, 0)}
        assert [sent.get((ORDERS, 1)) for sent in r.target.requests] == [batch, None, None]
        assert r.target.log(0) == records(*BATCHES)


async def test_plain_records_beside_envelopes_keep_their_place() -> None:
    seen = [Seen(0, EARLIER), *envelope(*OTHERS), Seen(2, LATER), *envelope(*BATCHES), Seen(4, EARLIER)]
    async with shallow_rig() as r:
        r.target.logs[ORDERS, 0].log = [LATER] * 50
        client = await r.producer()
        await client.produce(produced(seen))
        assert await client.answers() == {0: (NONE, 50)}  # of the first record; no later answer may be higher
        wanted = [EARLIER, *records(*OTHERS), LATER, *records(*BATCHES), EARLIER]
        assert r.target.log()[50:] == wanted


async def test_requests_behind_an_envelope_wait_for_their_turn() -> None:
    gate = trio.Event()
    async with shallow_rig(scripts={1: Script(gate=gate)}) as r:
        client = await r.producer()
        await client.produce(outer(*BATCHES))
        await client.produce(encode_batch([LATER]))
        await r.arrived(2)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(r.target.requests) == 2
        gate.set()
        assert [await client.answers() for _ in range(2)] == [{0: (NONE, 14)}, {0: (NONE, 15)}]
        assert r.target.log() == [*records(*BATCHES), LATER]


# Refused


IN_AN_EPOCH = partial(encode_batch, producer_id=5, producer_epoch=0, base_sequence=7)


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (IN_AN_EPOCH([item.record for item in envelope(*BATCHES)]), ErrorCode.out_of_order_sequence_number),
        (IN_AN_EPOCH([EARLIER]), ErrorCode.out_of_order_sequence_number),
        (damaged(outer(*BATCHES), -200), ErrorCode.corrupt_message),
        (damaged(produced(envelope(*BATCHES), Codec.GZIP), -50), ErrorCode.corrupt_message),
    ],
    ids=["numbers not known", "nor those of plain records", "damaged", "damaged and compressed"],
)
async def test_what_cannot_be_opened_is_refused_and_nothing_of_it_sent(
    batch: bytes, error: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    async with shallow_rig() as r:
        client = await r.producer()
        await client.produce(batch)
        assert await client.answers() == {0: (error, -1)}
        assert not r.target.requests
        assert "orders-0 of cluster 'to': error" in caplog.text
        await client.produce(batch, outer(*OTHERS), encode_batch([LATER]))
        assert await client.answers() == {0: (error, -1), 1: (NONE, 4), 2: (NONE, 0)}
        assert not r.target.log(0)


async def test_a_partition_that_stands_twice_in_a_request_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with shallow_rig() as r:
        client = await r.producer()
        await client.send(client.request([((ORDERS, 0), outer(*BATCHES)), ((ORDERS, 0), outer(*OTHERS))]))
        assert await client.at_end()
        assert await r.closed() == {CloseCause.CLIENT_PROTOCOL: 1}
        assert not r.target.requests
    assert "is twice in a produce request" in caplog.text


async def test_a_request_larger_than_what_is_held_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with shallow_rig(limits=Limits(held_request_bytes=1000)) as r:
        client = await r.producer()
        await client.produce(encode_batch([NewRecord(1, None, bytes(1000))]))
        assert await client.at_end()
        assert await r.closed() == {CloseCause.CLIENT_PROTOCOL: 1}
        assert not r.target.requests
    assert "limits.held-request-bytes (1000)" in caplog.text


# Batches that change


async def test_what_a_request_opens_is_bounded_in_all() -> None:
    """Some kilobytes on the wire, tens of megabytes when decompressed, in each of its partitions."""
    large = NewRecord(1, None, bytes(40 * 1024 * 1024))
    sets = [encode_batch([*[item.record for item in envelope(*OTHERS)], large], codec=Codec.ZSTD) for _ in range(2)]
    async with shallow_rig() as r:
        client = await r.producer()
        await client.produce(sets[0], sets[1], outer(*BATCHES))
        answers = await client.answers()
        assert answers[0][0] is NONE
        assert answers[1] == (ErrorCode.message_too_large, -1)
        assert answers[2] == (NONE, 14)


async def test_a_batch_that_the_broker_finds_too_large_is_split_and_keeps_its_place() -> None:
    large = encode_batch([NewRecord(5, b"%d" % at, bytes([at]) * 300) for at in range(16)], base_offset=104)
    log = [BATCHES[0], large, some_batch(120)]
    async with shallow_rig(scripts={3: Script(errors={0: NOT_LEADER})}) as r:
        r.target.logs[ORDERS, 0] = Partition(max_message_bytes=2000)
        client = await r.producer()
        await client.produce(outer(*log))
        assert await client.answers() == {0: (NOT_LEADER, -1)}
        assert 4 < len(r.target.log()) < 20, "the error is to come between two pieces"
        await client.produce(outer(*log))
        assert await client.answers() == {0: (NONE, 22)}
        assert r.target.log() == records(*log)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_plain_batches_are_compressed_where_that_was_asked_for(codec: str) -> None:
    many = [NewRecord(at, b"key", b"a value much like the others") for at in range(50)]
    async with shallow_rig(plain_compression=codec) as r:
        client = await r.producer()
        await client.produce(encode_batch(many), encode_batch(many, codec=Codec.LZ4))
        assert await client.answers() == {0: (NONE, 0), 1: (NONE, 0)}
        await client.produce(produced([*envelope(*BATCHES), *(Seen(0, one) for one in many)]), encode_batch(many))
        assert await client.answers() == {0: (NONE, 64), 1: (NONE, 50)}
        sent = [sent[ORDERS, 0] for sent in r.target.requests]
        assert [Codec(batch[22] & 7) for batch in (sent[0], sent[-1])] == [Codec[codec.upper()]] * 2
        assert r.target.requests[0][ORDERS, 1] == encode_batch(many, codec=Codec.LZ4)
        assert Codec(r.target.requests[1][ORDERS, 1][22] & 7) is Codec[codec.upper()]
        assert r.target.log() == [*many, *records(*BATCHES), *many]
        assert consumed(sent[0]) == [one._replace(offset_delta=at) for at, one in enumerate(many)]


# Shutdown


async def test_draining_completes_an_exchange() -> None:
    gate = trio.Event()
    async with shallow_rig(scripts={1: Script(gate=gate)}) as r:
        client, idle = await r.producer(), await r.producer()
        await client.produce(outer(*BATCHES))
        await r.arrived(2)
        r.server.drain()
        await idle.stream.aclose()
        await until(lambda: all(connection.state is State.DRAINING for connection in r.server.connections()))
        gate.set()
        assert await client.answers() == {0: (NONE, 14)}
        assert await client.at_end()
        assert r.target.log() == records(*BATCHES)
        await client.leave()
        assert (await r.closed(number=2))[CloseCause.DRAINED] >= 1


async def test_draining_completes_a_retry_that_waits() -> None:
    gate = trio.Event()
    async with shallow_rig(scripts={1: Script(gate=gate)}) as r:
        first, second = await r.producer(), await r.producer()
        await first.produce(outer(*BATCHES))
        await r.arrived(2)
        await first.leave()
        await second.produce(outer(*BATCHES))
        await until(lambda: sum(connection.handling for connection in r.server.connections()) == 2)
        r.server.drain()
        gate.set()
        assert await second.answers() == {0: (NONE, 14)}
        assert r.target.log() == records(*BATCHES)
        assert len(r.target.requests) == 3


# Reconciliation


async def test_what_reconciles_is_counted() -> None:
    async with shallow_rig() as r:
        client = await r.producer()
        await client.produce(outer(*BATCHES), outer(*OTHERS))
        assert await client.answers() == {0: (NONE, 14), 1: (NONE, 4)}
        statistics = r.unwrap.tally.statistics()
        assert (statistics.reconciled_envelopes, statistics.mismatches) == (2, {})


async def test_headers_that_state_something_else_are_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async with shallow_rig() as r:
        client = await r.producer()
        for batches in (BATCHES, OTHERS):
            (seen,) = envelope(*batches)
            headers = ((b"shoal.records", b"16"),)
            await client.produce(produced([seen._replace(record=seen.record._replace(headers=headers))]))
            assert (await client.answers())[0][0] == NONE
        statistics = r.unwrap.tally.statistics()
        assert r.target.log() == records(*BATCHES, *OTHERS)
    assert statistics.mismatches == {"an envelope's headers state other facts than its batches": 2}
    assert caplog.text.count("orders-0 of cluster 'to' does not reconcile") == 1
    assert "16 records are stated, 15 are there" in caplog.text


async def test_an_envelope_that_is_refused_is_counted() -> None:
    async with shallow_rig() as r:
        client = await r.producer()
        (seen,) = envelope(*BATCHES)
        cut = bytes(seen.record.value or b"")[: -len(BATCHES[-1])]
        await client.produce(produced([seen._replace(record=seen.record._replace(value=cut))]))
        assert (await client.answers())[0][0] == ErrorCode.corrupt_message
        assert r.target.log() == []
        mismatches = r.unwrap.tally.statistics().mismatches
    assert mismatches == {"an envelope was not appended, since it is not what its key says": 1}
