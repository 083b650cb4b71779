"""The player against a test broker: what is sent over which connection, in which order, and what is counted on
failure."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from shoal.protocol.messages.produce import encode_partition_error, encode_produce_response, read_produce_request
from shoal.protocol.records.batch import read_batch_header
from shoal.protocol.schema.headers import read_request_header
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.types import TopicPartition
from shoal.scenarios.replay.arrivals import Arrival, ArrivedBatch
from shoal.scenarios.replay.clock import MAX, Clock
from shoal.scenarios.replay.index.player import Player
from shoal.scenarios.replay.index.synthetic_batches import Maker
from shoal.scenarios.replay.ledger import ReplayLedger
from shoal.scenarios.replay.sending.wire import Wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shoal.scenarios.replay.sending.statistics import ReplayStatistics

EPOCH = 1_000
VERSION = 9


@dataclass
class Broker:
    """`error`: of every partition. `patience`: number of requests answered; then the connection is closed."""

    error: int = 0
    patience: int = 1_000_000
    address: tuple[str, int] = ("", 0)
    seen: list[tuple[str | None, int, list[int]]] = field(default_factory=list)  # client id, acks, batch numbers

    async def serve(self, stream: trio.SocketStream) -> None:
        wire = Wire(stream)
        try:
            while True:
                frame = await wire.receive()
                if not self.patience:
                    return
                self.patience -= 1
                await self._answer(wire, frame)
        except trio.BrokenResourceError:
            return
        finally:
            await stream.aclose()

    async def _answer(self, wire: Wire, frame: bytes) -> None:
        header, request = read_request_header(frame), read_produce_request(frame, VERSION)
        numbers = [
            read_batch_header(frame, partition.start, partition.end).base_timestamp - EPOCH
            for partition in request.partitions
        ]
        self.seen.append((header.client_id, request.acks, numbers))
        if request.acks:
            parts = [
                encode_partition_error(VERSION, partition.partition, self.error) for partition in request.partitions
            ]
            answer = encode_produce_response(VERSION, header.correlation_id, [("t", parts)], throttle_ms=0)
            await wire.send(b"".join(answer))


@asynccontextmanager
async def serving(*brokers: Broker) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        for broker in brokers:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            broker.address = listener.socket.getsockname()[:2]
            nursery.start_soon(trio.serve_listeners, broker.serve, [listener])
        yield
        nursery.cancel_scope.cancel()


def arrival(connection: int, *partitions: int, acks: int = -1) -> Arrival:
    parts = tuple(ArrivedBatch("t", partition, 2, 200, None, Codec.NONE) for partition in partitions)
    return Arrival(0.0, connection, f"client-{connection}", VERSION, acks, parts)


async def play(arrivals: list[Arrival], leaders: dict[int, Broker]) -> ReplayStatistics:
    addresses = {TopicPartition("t", partition): broker.address for partition, broker in leaders.items()}
    with trio.fail_after(20):
        return await Player(addresses, Maker(EPOCH), ReplayLedger(EPOCH)).play(arrivals, Clock(MAX))


async def test_each_connection_keeps_its_order_and_its_name() -> None:
    broker = Broker()
    async with serving(broker):
        played = await play([arrival(number % 3, 0) for number in range(90)], {0: broker})

    assert (played.requests, played.records, played.connections, len(played.latencies)) == (90, 180, 3, 90)
    assert not played.errors
    for connection in range(3):
        numbers = [batches[0] for name, _, batches in broker.seen if name == f"client-{connection}"]
        assert len(numbers) == 30
        assert numbers == sorted(numbers)


async def test_a_request_goes_to_the_leaders_of_its_partitions() -> None:
    one, other = Broker(), Broker()
    async with serving(one, other):
        played = await play([arrival(1, 0, 1, 2)], {0: one, 1: other, 2: one})

    assert (played.requests, played.batches, played.connections) == (2, 3, 2)
    assert sorted(len(batches) for broker in (one, other) for _, _, batches in broker.seen) == [1, 2]


async def test_nobody_waits_for_the_answer_to_acks_0() -> None:
    broker = Broker()
    async with serving(broker):
        played = await play([arrival(1, 0, acks=0), arrival(1, 0)], {0: broker})

    assert [acks for _, acks, _ in broker.seen] == [0, -1]
    assert len(played.latencies) == 1


async def test_errors_are_counted_by_name() -> None:
    broker = Broker(error=6)
    async with serving(broker):
        played = await play([arrival(1, 0), arrival(1, 0)], {0: broker})

    assert played.errors == {"error 6 (NOT_LEADER_OR_FOLLOWER)": 2}


@pytest.mark.parametrize("answered", [0, 1, 7])
async def test_what_a_lost_connection_takes_with_it_is_counted(answered: int) -> None:
    broker = Broker(patience=answered)
    async with serving(broker):
        played = await play([arrival(1, 0) for _ in range(300)], {0: broker})

    assert played.errors == {"connection lost": 300 - answered}


async def test_a_broker_that_is_not_there_is_a_lost_connection() -> None:
    broker = Broker()
    async with serving(broker):
        pass

    assert (await play([arrival(1, 0), arrival(1, 0)], {0: broker})).errors == {"connection lost": 2}
