"""A coalescing listener where something ends, breaks or blocks while a taken request is unanswered, or its answer is
only half sent.
"""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing
from kio.schema.errors import ErrorCode

from shoal.protocol.coalesce.joinable import WhyAlone
from shoal.proxy.coalesce.path import CoalescePath
from shoal.proxy.config.settings import Limits
from shoal.proxy.statistics import CloseCause
from tests.support.coalesce_rig import NODE, ORDERS, KafkaLike, batch, coalesce_rig
from tests.support.rig import api_key, request, until
from tests.support.shallow.brokers import Script
from tests.support.shallow.rig import Producer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from shoal.protocol.coalesce.policy import Batch
    from shoal.protocol.wire.types import Buffer, PartitionRef
    from shoal.proxy.coalesce.client import TakenRequest
    from tests.support.coalesce_rig import CoalesceRig
    from tests.support.rig import BrokerSide

pytestmark = pytest.mark.usefixtures("lane")

NONE = ErrorCode.none
OTHER = 50  # an API that Shoal does not read


async def deaf_producer(r: CoalesceRig) -> Producer:
    """It reads nothing for now, and both kernels hold only a few kilobytes for it."""
    sock = trio.socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await sock.connect(("127.0.0.1", r.server.listeners["test"].ports.bound[NODE].port))
    connections = r.server.listeners["test"].connections
    await until(lambda: len(connections) == 1)
    (connection,) = connections
    connection.client.transport.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return Producer(await r.clients.enter_async_context(trio.SocketStream(sock)))


async def test_nothing_else_is_sent_to_a_client_until_its_answer_is_sent_as_a_whole() -> None:
    others, broker = list[bytes](), KafkaLike()

    async def answer(side: BrokerSide, frame: bytes) -> None:
        if api_key(frame) == OTHER:
            others.append(frame)
        await broker.answer(side, frame)

    async with coalesce_rig(answer=answer) as r:
        client = await deaf_producer(r)
        await client.send(client.request({(ORDERS, number): batch("v") for number in range(700)}))
        (connection,) = r.server.listeners["test"].connections
        await until(lambda: connection.connected and connection.client_out.blocked)
        await client.send(request(OTHER, 0, 77_777))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert not others
        assert len(await client.answers()) == 700
        assert int.from_bytes((await client.frame())[4:8], "big") == 77_777


async def test_an_idle_timeout_does_not_end_a_client_whose_request_is_unanswered() -> None:
    async with coalesce_rig(limits=Limits(idle_timeout=10)) as r:
        gate = await r.hold()
        taken, retrying = await r.producers(2)
        await taken.send_only({0: batch("v", producer=5, sequence=0)})
        await r.taken(2)
        await retrying.send_only({0: batch("v", producer=5, sequence=0)})  # waits for the batch ahead of it
        await until(lambda: len(r.server.listeners["test"].connections) == 3)
        await trio.testing.wait_all_tasks_blocked(0.01)
        now = trio.current_time()
        for connection in r.server.listeners["test"].connections:
            for seconds in (1, 5, 11, 12, 100):
                connection.check_progress(now + seconds)
        gate.set()
        assert await taken.answers() == {0: (NONE, 0)}
        assert await retrying.answers() == {0: (NONE, 0)}
        assert r.broker.log() == ["v"]


async def test_what_has_no_room_in_a_full_request_does_not_wait_for_its_answer() -> None:
    scripts = {0: Script(gate=(gate := trio.Event()))}
    async with coalesce_rig(scripts=scripts, linger=0.3, patience=0.01, request_bytes=1000) as r:
        slow, other = await r.producers(2)
        await slow.send_only({0: batch("s" * 600)})
        await r.taken(1)
        await other.send_only({1: batch("o" * 600)})
        assert await other.answers() == {1: (NONE, 0)}
        gate.set()
        assert await slow.answers() == {0: (NONE, 0)}


async def test_a_request_that_waits_makes_no_lane() -> None:
    async with coalesce_rig() as r:
        gate = await r.hold()
        client = await r.producer()
        await client.send_only({0: batch("a")})
        await r.taken(2)
        client.timeout = timedelta(milliseconds=5_001)  # of another lane
        await client.send_only({0: batch("b")})
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert r.path.status()["lanes"] == 1
        await client.reset()
        gate.set()
        await r.closed()
        assert r.path.status()["lanes"] == 1


async def test_a_client_whose_own_broker_connection_ends_gets_the_answers_to_its_taken_requests() -> None:
    async with coalesce_rig(scripts={0: Script(gate=(gate := trio.Event()))}) as r:
        client = await r.producer()
        await client.send_only({0: batch("v")})
        await until(lambda: len(r.broker.requests) == 1)
        (own,) = [side for side in r.fake.sides if side is not r.broker.sides[0]]
        await own.stream.aclose()
        (connection,) = r.server.listeners["test"].connections
        await until(lambda: connection.requests.without_answers)
        gate.set()
        assert await client.answers() == {0: (NONE, 0)}
        assert await client.at_end()


@pytest.mark.parametrize("size", [1, 70_000])
async def test_a_retry_waits_for_what_is_left_of_a_connection_that_was_closed(size: int) -> None:
    async with coalesce_rig() as r:
        gate = await r.hold()
        first = await r.producer()
        await first.send_only({0: batch("a")})
        await r.taken(2)
        connections = r.server.listeners["test"].connections
        (left,) = [connection for connection in connections if connection.peer.port == port(first)]
        await first.leave()
        await until(lambda: left.cause is not None)
        again = await r.producer()
        await again.send_only({0: batch("a"), 1: batch("x" * size)})
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(r.broker.requests) == 1
        gate.set()
        assert await again.answers() == {0: (NONE, 1), 1: (NONE, 0)}
        assert r.path.tally.taken == 2
        await again.send_only({0: batch("b"), 1: batch("x" * size)})
        await again.answers()
        assert r.broker.log() == ["a", "a", "b"]


def port(client: Producer) -> int:
    return int(client.stream.socket.getsockname()[1])


@pytest.mark.parametrize("end", [Producer.reset, Producer.leave])
async def test_a_client_whose_request_that_went_alone_is_unanswered_may_retry_it(
    end: Callable[[Producer], Awaitable[None]],
) -> None:
    scripts = {0: Script(errors={0: ErrorCode.not_enough_replicas}), 1: Script(gate=(gate := trio.Event()))}
    async with coalesce_rig(scripts=scripts) as r:
        first = await r.producer()
        await first.send_only({0: batch("v")})
        await first.answers()
        await first.send_only({0: batch("w")})
        await until(lambda: len(r.broker.requests) == 2)
        (connection,) = r.server.listeners["test"].connections
        await end(first)
        await until(lambda: connection.cause is not None)
        again = await r.producer()
        await again.send_only({1: batch("w")})
        await again.answers()
        assert r.path.tally.alone[WhyAlone.RETRY] == 2
        gate.set()


async def test_batches_with_a_producer_id_are_not_joined_with_others() -> None:
    """A broker before 3.0 fails the whole request if the principal may not write them (IDEMPOTENT_WRITE)."""
    async with coalesce_rig() as r:
        gate = await r.hold()
        clients = await r.producers(4)
        for number, client in enumerate(clients):
            producer, sequence = (number, 0) if number % 2 else (-1, -1)
            await client.send_only({number: batch("v", producer=producer, sequence=sequence)})
        await r.taken(5)
        gate.set()
        for number, client in enumerate(clients):
            assert await client.answers() == {number: (NONE, 0)}
        assert sorted(map(sorted, r.broker.places()[1:])) in ([[0, 2], [1, 3]], [[0, 2], [1], [3]])


async def test_a_broken_lane_ends_its_own_clients_and_sends_nothing_more() -> None:
    async with coalesce_rig(patience=0.0, path=Faulty) as r:
        gate, other_gate = trio.Event(), trio.Event()
        refuses = Script(errors={1: ErrorCode.not_enough_replicas})
        r.broker.scripts |= {0: Script(gate=gate), 1: Script(gate=other_gate), 2: refuses}
        in_flight, unsent, owner, elsewhere = await r.producers(4)
        await in_flight.send_only({9: batch("f")})
        await until(lambda: len(r.broker.requests) == 1)
        elsewhere.timeout = timedelta(milliseconds=5_001)
        await elsewhere.send_only({5: batch("e")})
        await until(lambda: len(r.broker.requests) == 2)
        await unsent.send_only({9: batch("u")})
        await r.taken(3)
        await owner.send_only({1: batch("o")})
        for client in (owner, in_flight, unsent):
            assert await client.at_end()
        gate.set()
        other_gate.set()
        assert await elsewhere.answers() == {5: (NONE, 0)}
        assert r.path.held_bytes == 0
        assert all(places != [9] for places in r.broker.places()[1:])
        closed = r.server.listeners["test"].tally.closed
        assert closed[CloseCause.INTERNAL] == 3
        closed[CloseCause.INTERNAL] = 0  # the rig allows none


class Faulty(CoalescePath):
    """It has a fault of its own where a broker refuses a batch."""

    def refused(self, taken: TakenRequest, target: PartitionRef, error_code: int, frame: bytes | None) -> Buffer:
        raise LookupError("a fault of Shoal")


async def test_a_client_that_leaves_while_nothing_reads_it_is_noticed() -> None:
    """Its metadata request waits for its produce request, so its FIN is not read."""
    async with coalesce_rig() as r:
        gate = await r.hold()
        first = await r.producer()
        await first.send_only({0: batch("a")})
        await r.taken(2)
        await first.send(request(OTHER, 0, 9))
        await trio.testing.wait_all_tasks_blocked(0.01)
        await first.leave()
        again = await r.producer()
        await again.send_only({0: batch("a"), 1: batch("x" * 70_000)})
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(r.broker.requests) == 1
        gate.set()
        assert await again.answers() == {0: (NONE, 1), 1: (NONE, 0)}


async def test_a_client_without_its_broker_connection_that_leaves_is_ended() -> None:
    async with coalesce_rig(scripts={0: Script(gate=trio.Event())}, limits=Limits(close_seconds=0.01)) as r:
        client = await r.producer()
        await client.send_only({0: batch("v")})
        await until(lambda: len(r.broker.requests) == 1)
        (own,) = [side for side in r.fake.sides if side is not r.broker.sides[0]]
        await own.stream.aclose()
        (connection,) = r.server.listeners["test"].connections
        await until(lambda: connection.requests.without_answers)
        await trio.testing.wait_all_tasks_blocked(0.01)
        connection.check_progress(trio.current_time())
        await client.reset()
        await until(connection.client_has_left)
        connection.check_progress(trio.current_time())
        await r.closed()
        again = await r.producer()
        await again.send_only({1: batch("v")})
        await again.answers()
        assert r.path.tally.alone[WhyAlone.RETRY] == 1


class Undeliverable(CoalescePath):
    """It has a fault of its own after the answer to a joined request was taken apart."""

    faults = 0

    def released(self, batches: Iterable[Batch]) -> None:
        given = list(batches)
        if given and not self.faults:
            self.faults += 1
            raise LookupError("a fault of Shoal")
        super().released(given)


async def test_a_lane_that_breaks_behind_an_answer_leaves_nothing() -> None:
    async with coalesce_rig(path=Undeliverable) as r:
        clients = await r.producers(2)
        for number, client in enumerate(clients):
            await client.send_only({number: batch("v")})
        path = r.path
        assert isinstance(path, Undeliverable)
        await until(lambda: path.faults == 1)
        await until(lambda: not any(lane.policy.in_flight for lane in path._lanes.values()))
        await until(lambda: path.held_bytes == 0)
        closed = r.server.listeners["test"].tally.closed
        closed[CloseCause.INTERNAL] = 0  # the rig allows none
