"""Several requests in flight with producer ids of Shoal's own, and sets of batches, at the unwrap listener.

The target keeps producer state as Kafka does, so a record is in its log as often as Shoal delivered it.
"""

from __future__ import annotations

import logging
import socket
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import trio

from shoal.protocol.messages.produce import encode_partition_error, encode_produce_response
from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.records.recordset import split
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.shallow.envelope import decode_key, encode_key
from shoal.protocol.wire.crc import crc32c
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.config.settings import Limits
from shoal.proxy.connection.pumps.response_pump import ResponsePump
from shoal.proxy.shallow.unwrap.answer import ProduceAnswer
from shoal.proxy.shallow.unwrap.exchange import answers_due
from shoal.proxy.statistics import CloseCause
from tests.support.rig import BrokerSide, api_key, response, until
from tests.support.shallow.batches import (
    BATCHES,
    LATER,
    NONE,
    NOT_LEADER,
    OTHERS,
    envelope,
    outer,
    records,
)
from tests.support.shallow.brokers import ORDERS, Script, TargetBroker
from tests.support.shallow.partition import Partition, stamp_of
from tests.support.shallow.proofs import Vouched, vouch
from tests.support.shallow.rig import ShallowRig, shallow_rig
from tests.support.shallow.world import some_batch

if TYPE_CHECKING:
    from shoal.proxy.connection.connection import Connection

pytestmark = pytest.mark.usefixtures("lane")

QUICK = Limits(close_seconds=0.01)
MANY = [some_batch(100 + 2 * at, 2) for at in range(12)]


def in_flight(rig: ShallowRig) -> int:
    return max(len(connection.in_flight) for connection in rig.server.listeners["to"].connections)


def awaited(connection: Connection) -> int:
    return connection.upstream.transport.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


@pytest.fixture
def advised(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For how many bytes pumps should wait. (The socket may know no longer: the advice ends within a second.)"""
    sizes, await_bytes = list[int](), ResponsePump.await_bytes

    def noted(pump: ResponsePump, size: int) -> None:
        sizes.append(size)
        await_bytes(pump, size)

    monkeypatch.setattr(ResponsePump, "await_bytes", noted)
    return sizes


# Pipelining


async def test_five_requests_are_in_flight_after_the_first_was_answered(advised: list[int]) -> None:
    """All answers but the last are awaited together: the broker works on the last request meanwhile."""
    gates = {0: trio.Event(), 1: trio.Event()}
    async with shallow_rig(scripts={at: Script(gate=gate) for at, gate in gates.items()}) as r:
        client = await r.producer(agrees=True)
        await client.produce(outer(*MANY))
        await r.arrived(1)
        assert in_flight(r) == 1
        (connection,) = r.server.listeners["to"].connections
        before = connection.responses.received
        gates[0].set()
        await until(lambda: in_flight(r) == 5)
        answer = connection.responses.received - before
        assert [size for size in advised if size > 1] == [4 * answer]
        gates[1].set()
        assert await client.answers() == {0: (NONE, 23)}
        assert awaited(connection) == 1
        assert r.target.log() == records(*MANY)
        assert r.unwrap.tally.produce_requests == 12
        stamps = [stamp_of(sent[ORDERS, 0]) for sent in r.target.requests]
        assert stamps == [(1001, 0, 2 * at, 2 * at + 1) for at in range(12)]


@pytest.mark.parametrize("appends", [False, True])
@pytest.mark.parametrize("closed_at", [0, 1, 3, 6])
async def test_what_was_in_flight_when_the_broker_was_lost_comes_once(closed_at: int, appends: bool) -> None:
    async with shallow_rig(scripts={closed_at: Script(closes=True, appends=appends)}) as r:
        client = await r.producer(agrees=True)
        await client.produce(outer(*MANY), outer(*OTHERS))
        assert await client.at_end()
        again = await r.producer(agrees=True)
        await again.produce(outer(*MANY), outer(*OTHERS))
        assert await again.answers() == {0: (NONE, 23), 1: (NONE, 4)}
        assert r.target.log() == records(*MANY)
        assert r.target.log(1) == records(*OTHERS)
        assert r.target.next_id == 1001, "the id belongs to the process, not to the connection"


async def test_an_error_in_the_middle_is_the_mirror_s_and_the_retry_brings_the_rest() -> None:
    async with shallow_rig(scripts={3: Script(errors={0: NOT_LEADER})}) as r:
        client = await r.producer(agrees=True)
        await client.produce(outer(*MANY))
        assert await client.answers() == {0: (NOT_LEADER, -1)}
        assert r.target.log() == records(*MANY[:3])
        await client.produce(outer(*MANY))
        assert await client.answers() == {0: (NONE, 23)}
        assert r.target.log() == records(*MANY)


async def test_other_data_after_a_loss_begins_a_new_epoch() -> None:
    async with shallow_rig(scripts={2: Script(closes=True)}) as r:
        client = await r.producer(agrees=True)
        await client.produce(outer(*MANY))
        assert await client.at_end()
        again = await r.producer(agrees=True)
        await again.produce(outer(*OTHERS))
        ((_, last),) = (await again.answers()).values()
        assert last >= 10, "so much was appended before the end, perhaps more of what the broker had read already"
        assert r.target.log() == [*records(*MANY)[: last - 4], *records(*OTHERS)]
        stamp = stamp_of(r.target.requests[-1][ORDERS, 0])
        assert stamp
        assert stamp[:2] == (1001, 1)


async def test_a_client_that_may_not_have_an_id_has_one_request_in_flight(caplog: pytest.LogCaptureFixture) -> None:
    gate = trio.Event()
    with caplog.at_level(logging.INFO, "shoal.unwrap"):
        async with shallow_rig(scripts={1: Script(gate=gate)}) as r:
            r.target.gives_ids = 31
            client = await r.producer(agrees=True)
            await client.produce(outer(*MANY))
            await r.arrived(2)
            assert in_flight(r) == 1
            gate.set()
            assert await client.answers() == {0: (NONE, 23)}
            await client.produce(outer(*BATCHES))
            assert await client.answers() == {0: (NONE, 38)}
            assert r.target.log() == records(*MANY, *BATCHES)
            assert {stamp_of(sent[ORDERS, 0]) for sent in r.target.requests} == {None}
    assert caplog.text.count("no producer id of Shoal's own") == 1


async def test_plain_batches_do_not_suffer_from_stamps_that_a_client_may_not_use() -> None:
    """A broker before 3.0 refuses the whole request with an error that is fatal for a producer."""
    plain = encode_batch([LATER])
    async with shallow_rig() as r:
        r.target.refuses_stamps = True
        client = await r.producer(agrees=True)
        await client.produce(outer(*BATCHES), plain)
        assert await client.answers() == {0: (NONE, 14), 1: (NONE, 0)}
        assert r.target.log() == records(*BATCHES)
        assert r.target.log(1) == [LATER]


async def ask_and_lose(rig: ShallowRig, clients: int) -> None:
    """This many clients lose their connections at the same time while Shoal requests an id."""
    rig.target.asks_lost = clients
    for partition in range(clients):
        client = await rig.producer(agrees=True)
        await client.send_only({partition: outer(*BATCHES)})
    await until(lambda: not rig.server.listeners["to"].tally.active)


async def is_stamped(rig: ShallowRig, batches: list[bytes]) -> bool:
    client = await rig.producer(agrees=True)
    await client.produce(outer(*batches))
    await client.answers()
    return stamp_of(rig.target.requests[-1][ORDERS, 0]) is not None


async def test_many_connections_that_are_lost_at_once_while_they_ask_for_an_id_are_one_loss() -> None:
    async with shallow_rig(limits=QUICK) as r:
        await ask_and_lose(r, clients=5)
        assert await is_stamped(r, BATCHES)


async def test_a_broker_that_always_closes_when_it_is_asked_for_an_id_is_left_alone_for_a_while() -> None:
    now = [0.0]
    async with shallow_rig(limits=QUICK, clock=lambda: now[0]) as r:
        for _ in range(3):
            await ask_and_lose(r, clients=1)
        now[0] = 599
        assert not await is_stamped(r, BATCHES)
        now[0] = 600
        assert await is_stamped(r, OTHERS)


async def test_another_cluster_gives_another_producer_id() -> None:
    async with shallow_rig() as r:
        for number, cluster_id in enumerate(("one", "one", "two")):
            r.server.listeners["to"].cluster.cluster_id = cluster_id
            client = await r.producer(agrees=True)
            await client.produce(outer(some_batch(10 * number, 2)))
            assert await client.answers() == {0: (NONE, 2 * number + 1)}
        stamps = [stamp_of(sent[ORDERS, 0]) for sent in r.target.requests]
        assert [stamp[0] for stamp in stamps if stamp] == [1001, 1001, 1002]


async def test_plain_records_go_between_stamped_ones() -> None:
    async with shallow_rig() as r:
        client = await r.producer(agrees=True)
        for sent in (outer(*BATCHES), encode_batch([LATER]), outer(*OTHERS)):
            await client.produce(sent)
        assert [await client.answers() for _ in range(3)] == [{0: (NONE, at)} for at in (14, 15, 20)]
        assert r.target.log() == [*records(*BATCHES), LATER, *records(*OTHERS)]


# Sets


async def test_all_batches_of_a_proven_partition_go_in_one_request() -> None:
    async with shallow_rig() as r:
        vouch(r, Vouched())
        client = await r.producer(agrees=True)
        await client.produce(outer(*MANY), outer(*OTHERS))
        assert await client.answers() == {0: (NONE, 23), 1: (NONE, 4)}
        assert r.target.log() == records(*MANY)
        assert r.target.log(1) == records(*OTHERS)
        assert len(r.target.requests) == 1
        assert r.unwrap.tally.unwrapped_batches == 14


async def test_sets_are_not_stamped_where_their_batches_are_not_known_again() -> None:
    async with shallow_rig() as r:
        vouch(r, Vouched(stamps=False))
        client = await r.producer(agrees=True)
        await client.produce(outer(*MANY))
        assert await client.answers() == {0: (NONE, 23)}
        assert [stamp_of(sent[ORDERS, 0]) for sent in r.target.requests] == [None]


@pytest.mark.parametrize("appends", [False, True])
async def test_a_set_in_flight_when_the_broker_was_lost_comes_once(appends: bool) -> None:
    async with shallow_rig(scripts={0: Script(closes=True, appends=appends)}) as r:
        proof = Vouched()
        vouch(r, proof)
        client = await r.producer(agrees=True)
        await client.produce(outer(*MANY))
        assert await client.at_end()
        again = await r.producer(agrees=True)
        await again.produce(outer(*MANY))
        assert await again.answers() == {0: (NONE, 23)}
        assert r.target.log() == records(*MANY)
        sets = [len(split(sent[ORDERS, 0], 0, len(sent[ORDERS, 0])).spans) for sent in r.target.requests]
        assert sets == [12, *[1] * 12], "what is in doubt is sent again batch by batch"
        assert proof.holds


async def test_connections_that_end_on_sets_time_and_again_end_the_proof() -> None:
    """A set that was in flight is resent batch by batch; the next envelope is a set again."""
    async with shallow_rig(scripts={at: Script(closes=True, appends=False) for at in (0, 13)}) as r:
        proof = Vouched()
        vouch(r, proof)
        for sent in (MANY, OTHERS):
            client = await r.producer(agrees=True)
            await client.produce(outer(*sent))
            assert await client.at_end()
            assert proof.holds is (sent is MANY)
            again = await r.producer(agrees=True)
            await again.produce(outer(*sent))
            ((code, _),) = (await again.answers()).values()
            assert code is NONE
        assert proof.why == ["the connection ended on a set, twice in a row"]
        assert r.target.log() == records(*MANY, *OTHERS)


async def test_a_broker_that_refuses_sets_after_all_gets_them_one_by_one() -> None:
    async with shallow_rig() as r:
        proof = Vouched()
        vouch(r, proof, partitions=0)
        client = await r.producer(agrees=True)
        await client.produce(outer(*MANY))
        assert await client.answers() == {0: (NONE, 23)}
        assert r.target.log() == records(*MANY)
        assert proof.why == [
            "error 87 (INVALID_RECORD) to a set of batches that were then taken one by one, for orders-0"
        ]
        sizes = [len(sent[ORDERS, 0]) for sent in r.target.requests]
        assert sizes[0] > sum(sizes) / 4, "the set was tried"


async def test_a_batch_that_is_too_large_for_a_set_is_found_cut_and_keeps_its_place() -> None:
    large = encode_batch([NewRecord(5, b"%d" % at, bytes([at]) * 300) for at in range(16)], base_offset=124)
    log = [*MANY, large, *(some_batch(140 + at, 1) for at in range(5))]
    async with shallow_rig() as r:
        proof = Vouched()
        vouch(r, proof)
        r.target.logs[ORDERS, 0] = Partition(max_message_bytes=2000, takes_sets=True)
        client = await r.producer(agrees=True)
        await client.produce(outer(*log))
        assert await client.answers() == {0: (NONE, 44)}
        assert r.target.log() == records(*log)
        assert proof.holds


async def test_a_bad_batch_ends_the_partition_behind_the_good_ones() -> None:
    """Its CRC was already wrong on the source (the envelope is intact), so the target refuses the set with it."""
    bad = bytearray(some_batch(124, 3))
    bad[-1] ^= 1
    log = [*MANY, bytes(bad), some_batch(127, 2)]
    async with shallow_rig() as r:
        proof = Vouched()
        vouch(r, proof)
        client = await r.producer(agrees=True)
        await client.produce(outer_unchecked(log))
        assert (await client.answers())[0][0].name == "corrupt_message"
        assert r.target.log() == records(*MANY)
        assert proof.holds


def outer_unchecked(batches: list[bytes]) -> bytes:
    """An envelope around batches that a wrapping Shoal would have found damaged."""
    whole = [some_batch(124, 3) if index == len(batches) - 2 else batch for index, batch in enumerate(batches)]
    (seen,) = envelope(*whole)
    value = b"".join(batches)
    key = decode_key(seen.record.key or b"")
    assert key
    record = seen.record._replace(key=encode_key(replace(key, payload_crc=crc32c(value))), value=value)
    return encode_batch([record])


async def test_a_client_that_leaves_does_not_end_its_exchange() -> None:
    gate = trio.Event()
    async with shallow_rig(scripts={1: Script(gate=gate)}) as r:
        first, second = await r.producer(agrees=True), await r.producer(agrees=True)
        await first.produce(outer(*MANY))
        await r.arrived(2)
        await first.leave()
        await second.produce(outer(*MANY))
        gate.set()
        assert await second.answers() == {0: (NONE, 23)}
        assert r.target.log() == records(*MANY)
        assert await r.closed() in ({CloseCause.CLIENT_CLOSED: 1}, {CloseCause.CLIENT_LOST: 1})


async def test_nothing_is_sent_to_a_broker_whose_answers_have_ended() -> None:
    """After an answer it sends one to no request. A batch sent then would be appended, and again by the retry."""

    class Confused(TargetBroker):
        async def answer(self, side: BrokerSide, frame: bytes) -> None:
            send = side.send
            if api_key(frame) == ApiKey.PRODUCE and len(self.requests) == 1:
                side.send = lambda data: send(data + response(-1))  # type: ignore[method-assign]
            await super().answer(side, frame)
            side.send = send  # type: ignore[method-assign]

    async with shallow_rig(target=Confused()) as r:
        client = await r.producer()  # without stamps: one request in flight
        await client.produce(outer(*MANY))
        assert await client.at_end()
        assert await r.closed() == {CloseCause.UPSTREAM_PROTOCOL: 1}
        await until(lambda: r.brokers[1].ended == 1)
        assert r.target.log() == records(*MANY[:2])
        again = await r.producer()
        await again.produce(outer(*MANY))
        assert await again.answers() == {0: (NONE, 23)}
        assert r.target.log() == records(*MANY)


# Answers taken together


@pytest.mark.parametrize(
    ("in_flight", "round_trip", "due"),
    [(0, 0.0, 0), (1, 0.0, 1), (4, 0.0, 4), (5, 0.0, 4), (64, 0.0, 63), (0, 0.02, 0), (1, 0.02, 1), (5, 0.02, 1)],
)
def test_a_broker_has_work_while_answers_are_awaited(in_flight: int, round_trip: float, due: int) -> None:
    assert answers_due(in_flight, round_trip) == due


def test_only_the_same_partitions_are_known_to_have_as_long_an_answer() -> None:
    one, other, third = (TopicPartition(ORDERS, at) for at in range(3))
    naming: Any = SimpleNamespace(target=TopicPartition)
    answer = ProduceAnswer(8, naming, lambda *address: address[1:])

    def taken(*partitions: TopicPartition, error: int = 0, text: str | None = None) -> int:
        parts = [encode_partition_error(8, partition.partition, error, text) for partition in partitions]
        frame = bytearray().join(encode_produce_response(8, 1, [(ORDERS, parts)], throttle_ms=0))
        answer.take(frame)
        return len(frame)

    assert answer.shortest([one]) == 0
    size = taken(one, other)
    assert answer.shortest([other, one]) == size
    assert answer.shortest([one]) == answer.shortest([one, third]) == 0
    assert taken(one, other, error=NOT_LEADER, text="it has moved") > size
    assert answer.shortest([one, other]) == 0
