"""A coalescing listener under faults: lost brokers, lost clients, slow partitions, full queues, shutdown."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing
from kio.schema.errors import ErrorCode

from shoal.protocol.schema.headers import write_request_header
from shoal.protocol.wire.types import write_int32
from shoal.proxy.config.settings import Limits
from shoal.proxy.statistics import CloseCause
from tests.support.coalesce_rig import ORDERS, batch, coalesce_rig
from tests.support.rig import BrokerSide, correlation_id, request, response, until
from tests.support.shallow.brokers import Script

if TYPE_CHECKING:
    from trio.testing import MockClock

pytestmark = pytest.mark.usefixtures("lane")

NONE = ErrorCode.none


# Lost brokers


async def test_a_joined_request_that_is_lost_ends_its_owners_connections_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with coalesce_rig() as r:
        bystander = await r.producer()
        await bystander.send_only({7: batch("b")})
        await bystander.answers()
        gate = await r.hold()
        r.broker.scripts[2] = Script(closes=True, appends=False)
        owners = await r.producers(3)
        for number, owner in enumerate(owners):
            await owner.send_only({number: batch("v")})
        await r.taken(5)
        gate.set()
        for owner in owners:
            assert await owner.at_end()
        assert await r.closed(3) == {CloseCause.UPSTREAM_LOST: 3}
        assert "a joined request to broker 7 of cluster 'c' failed, 3 client connections end" in caplog.text
        await bystander.send_only({7: batch("c")})
        assert await bystander.answers() == {7: (NONE, 1)}
        assert r.path.held_bytes == 0


async def test_what_was_not_sent_when_a_request_was_lost_is_sent_over_a_new_connection() -> None:
    async with coalesce_rig(scripts={0: Script(closes=True, appends=False, gate=(gate := trio.Event()))}) as r:
        lost, waiting = await r.producers(2)
        await lost.send_only({0: batch("lost")})
        await until(lambda: len(r.broker.requests) == 1)
        await waiting.send_only({0: batch("w"), 1: batch("w")})
        await r.taken(2)
        gate.set()
        assert await lost.at_end()
        assert await waiting.answers() == {0: (NONE, 0), 1: (NONE, 0)}


async def test_what_a_client_sent_with_acks_0_behind_a_lost_request_is_lost_with_its_connection() -> None:
    async with coalesce_rig(scripts={0: Script(closes=True, appends=False, gate=(gate := trio.Event()))}) as r:
        client, other = await r.producers(2)
        await client.send_only({0: batch("a")}, acks=0)
        await until(lambda: len(r.broker.requests) == 1)
        await client.send_only({0: batch("b")}, acks=0)
        await r.taken(2)
        gate.set()
        assert await client.at_end()
        await other.send_only({0: batch("c")})
        await other.answers()
        assert r.broker.log() == ["c"]


async def test_an_answer_that_does_not_fit_ends_the_owners_connections() -> None:
    async with coalesce_rig(scripts={0: Script(omits=frozenset({1}))}) as r:
        client = await r.producer()
        await client.send_only({0: batch("v"), 1: batch("v")})
        assert await client.at_end()
        assert await r.closed() == {CloseCause.UPSTREAM_PROTOCOL: 1}


async def test_a_lanes_idle_connection_may_close() -> None:
    async with coalesce_rig() as r:
        client = await r.producer()
        for number in range(3):
            await client.send_only({0: batch("v")})
            assert await client.answers() == {0: (NONE, number)}
            await r.broker.sides[-1].stream.aclose()
            await trio.testing.wait_all_tasks_blocked(0.01)


async def test_a_broker_that_cannot_be_reached_ends_the_owners_connections() -> None:
    async with coalesce_rig() as r:
        client = await r.producer()
        await client.send_only({0: batch("v")}, acks=1)
        await client.answers()
        r.server.clusters["c"].brokers[7] = r.server.clusters["c"].brokers[7]._replace(port=1)
        await client.send_only({0: batch("v")})  # another lane, not yet connected
        assert await client.at_end()
        assert await r.closed() == {CloseCause.UPSTREAM_UNREACHABLE: 1}


# Lost clients


async def test_what_a_client_that_was_lost_had_not_sent_yet_is_withdrawn() -> None:
    async with coalesce_rig() as r:
        gate = await r.hold()
        client, other = await r.producers(2)
        await client.send_only({0: batch("a")})
        await r.taken(2)
        await other.send_only({0: batch("b")})
        await r.taken(3)
        await client.reset()
        assert await r.closed() == {CloseCause.CLIENT_LOST: 1}
        gate.set()
        assert await other.answers() == {0: (NONE, 0)}
        assert r.broker.log() == ["b"]


async def test_a_client_that_has_closed_its_side_gets_its_answers() -> None:
    async with coalesce_rig() as r:
        gate = await r.hold()
        client = await r.producer()
        await client.send_only({0: batch("a")})
        await client.send_only({0: batch("b")})
        await client.stream.send_eof()
        await r.taken(3)
        gate.set()
        assert [await client.answers() for _ in range(2)] == [{0: (NONE, 0)}, {0: (NONE, 1)}]
        assert await client.at_end()


async def test_a_client_that_does_not_read_holds_up_nobody() -> None:
    async with coalesce_rig() as r:
        deaf, other = await r.producers(2)
        connections = r.server.listeners["test"].connections
        await until(lambda: len(connections) == 2)
        for connection in connections:
            connection.client.transport.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        deaf.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        frame = deaf.request({(ORDERS, partition): batch("v") for partition in range(100)})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_send_until_cancelled, deaf, frame)
            await until(lambda: any(c.connected and c.client_out.blocked for c in connections))
            await other.send_only({400: batch("v")})
            assert await other.answers() == {400: (NONE, 0)}
            nursery.cancel_scope.cancel()
        assert r.path.held_bytes <= r.path.settings.queue_bytes + 64 * 1024


async def _send_until_cancelled(client: object, frame: bytes) -> None:
    while True:
        await client.stream.send_all(frame)  # type: ignore[attr-defined]


# Slow partitions


async def test_a_slow_partition_holds_up_only_those_in_the_same_request() -> None:
    async with coalesce_rig(patience=0.0) as r:
        gate = await r.hold()
        client, other = await r.producers(2)
        await client.send_only({99: batch("behind it")})
        await other.send_only({1: batch("v")})
        assert await other.answers() == {1: (NONE, 0)}
        gate.set()
        assert await client.answers() == {99: (NONE, 1)}


# Bounds and shutdown


async def test_a_full_queue_reads_nothing_further() -> None:
    async with coalesce_rig(queue_bytes=20_000, request_bytes=20_000) as r:
        gate = await r.hold()
        clients = await r.producers(5)
        async with trio.open_nursery() as nursery:
            for number, client in enumerate(clients):
                frames = b"".join(client.request({(ORDERS, number): batch("x" * 3000)}) for _ in range(20))
                nursery.start_soon(client.send, frames)
            await until(lambda: r.path.held_bytes >= 20_000)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert r.path.held_bytes < 20_000 + 3_200 + 2_304
            gate.set()
            for number, client in enumerate(clients):
                assert [await client.answers() for _ in range(20)] == [{number: (NONE, at)} for at in range(20)]
        assert r.path.held_bytes == 0


async def test_a_client_that_floods_leaves_room_for_others() -> None:
    async with coalesce_rig(queue_bytes=40_000, request_bytes=40_000) as r:
        gate = await r.hold()
        greedy, other = await r.producers(2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                greedy.send, b"".join(greedy.request({(ORDERS, 1): batch("x" * 3000)}) for _ in range(20))
            )
            await until(lambda: r.path.tally.taken >= 3)
            await trio.testing.wait_all_tasks_blocked(0.01)
            taken = r.path.tally.taken
            assert taken < 5
            await other.send_only({2: batch("v")})
            await until(lambda: r.path.tally.taken == taken + 1)
            gate.set()
            assert await other.answers() == {2: (NONE, 0)}
            assert [await greedy.answers() for _ in range(20)] == [{1: (NONE, at)} for at in range(20)]
        assert r.path.held_bytes == 0


async def test_a_lane_that_the_broker_throttles_stops_no_other_client(mock_clock: MockClock) -> None:
    """Its clients go on sending, and wait for minutes."""
    async with coalesce_rig(scripts={0: Script(throttle_ms=600_000)}, queue_bytes=20_000, request_bytes=20_000) as r:
        greedy, other = await r.producers(2)
        greedy.client_id, greedy.version = "greedy", 9
        await greedy.send_only({0: batch("v")})
        await greedy.answers()
        await greedy.send(b"".join(greedy.request({(ORDERS, 1): batch("x" * 3000)}) for _ in range(20)))
        await trio.testing.wait_all_tasks_blocked(0.01)
        await other.send_only({2: batch("v")})
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert r.broker.log(2) == ["v"]
        mock_clock.jump(600)
        assert [await greedy.answers() for _ in range(20)] == [{1: (NONE, at)} for at in range(20)]


async def test_many_throttled_lanes_stop_no_other_client(mock_clock: MockClock) -> None:
    """Each client id has its own lane, and a default quota throttles all of them."""
    throttled = dict.fromkeys(range(30), Script(throttle_ms=600_000))
    async with coalesce_rig(scripts=throttled, queue_bytes=200_000, request_bytes=20_000) as r:
        *greedy, other = await r.producers(31)
        for number, client in enumerate(greedy):
            client.client_id, client.version = f"greedy-{number}", 9
            await client.send_only({number: batch("v")})
            await client.answers()
        for number, client in enumerate(greedy):
            await client.send(client.request({(ORDERS, number): batch("x" * 9000)}) * 20)
        await trio.testing.wait_all_tasks_blocked(0.01)
        await other.send_only({40: batch("v")})
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert r.broker.log(40) == ["v"]
        mock_clock.jump(600)
        for number, client in enumerate(greedy):
            assert [await client.answers() for _ in range(20)] == [{number: (NONE, at)} for at in range(1, 21)]


async def test_a_lane_whose_pause_is_over_takes_requests_beside_lanes_that_are_still_throttled(
    mock_clock: MockClock,
) -> None:
    throttled = dict.fromkeys(range(30), Script(throttle_ms=600_000)) | {30: Script(throttle_ms=1000)}
    async with coalesce_rig(scripts=throttled, queue_bytes=200_000, request_bytes=20_000) as r:
        *greedy, other = await r.producers(31)
        for number, client in enumerate([*greedy, other]):
            client.client_id, client.version = f"greedy-{number}", 9
            await client.send_only({number: batch("v")})
            await client.answers()
        for number, client in enumerate([*greedy, other]):
            await client.send(client.request({(ORDERS, number): batch("x" * 9000)}) * 20)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(r.broker.log(30)) == 1
        mock_clock.jump(2)
        r.path.tick(trio.current_time())
        assert [await other.answers() for _ in range(20)] == [{30: (NONE, at)} for at in range(1, 21)]


async def test_lanes_whose_pause_is_over_do_not_take_more_at_once_than_those_that_are_throttled(
    mock_clock: MockClock,
) -> None:
    """What does not fit into their next request waits for another throttle time."""
    async with coalesce_rig(
        scripts=dict.fromkeys(range(60), Script(throttle_ms=50_000)), queue_bytes=200_000, request_bytes=20_000
    ) as r:
        *greedy, other = await r.producers(31)
        for number, client in enumerate(greedy):
            client.client_id, client.version = f"greedy-{number}", 9
            await client.send_only({number: batch("v")})
            await client.answers()
        mock_clock.jump(51)
        for number, client in enumerate(greedy):
            small, large = (client.request({(ORDERS, number): batch(value)}) for value in ("v", "x" * 5060))
            await client.send(small + large * 20)
        await trio.testing.wait_all_tasks_blocked(0.01)
        await other.send_only({40: batch("v")})
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert r.broker.log(40) == ["v"]


async def test_a_possible_retry_does_not_wait_for_a_throttled_lane_of_other_clients(mock_clock: MockClock) -> None:
    """What it may repeat has its own client id."""
    scripts = {0: Script(throttle_ms=600_000), 1: Script(errors={1: ErrorCode.not_leader_or_follower})}
    async with coalesce_rig(scripts=scripts) as r:
        greedy, other = await r.producers(2)
        greedy.client_id, greedy.version = "greedy", 9
        for value in "ab":
            await greedy.send_only({0: batch(value)})
        await greedy.answers()
        await other.send_only({1: batch("c")})
        assert await other.answers() == {1: (ErrorCode.not_leader_or_follower, -1)}
        for partition in (1, 0):
            await other.send_only({partition: batch("c")})
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert r.broker.log(0) == ["a", "c"]
        mock_clock.jump(600)
        assert await greedy.answers() == {0: (NONE, 2)}


async def test_a_client_that_leaves_while_its_request_waits_is_noticed(mock_clock: MockClock) -> None:
    limits = Limits(linger_seconds=30)
    async with coalesce_rig(scripts={0: Script(throttle_ms=600_000)}, limits=limits, queue_bytes=10_000) as r:
        client = await r.producer()
        client.version = 9
        await client.send_only({0: batch("v")})
        await client.answers()
        await client.send(b"".join(client.request({(ORDERS, 1): batch("x" * 3000)}) for _ in range(20)))
        await trio.testing.wait_all_tasks_blocked(0.01)
        await client.reset()
        for _ in range(32):
            mock_clock.jump(1)
            await trio.testing.wait_all_tasks_blocked(0.001)
        assert r.server.listeners["test"].tally.closed[CloseCause.ABANDONED] == 1
        assert r.path.held_bytes == 0
        assert r.broker.log(1) == []


async def test_a_drain_answers_what_was_taken() -> None:
    async with coalesce_rig(limits=Limits(drain_seconds=20, close_seconds=0.1)) as r:
        gate = await r.hold()
        client = await r.producer()
        await client.send_only({0: batch("v")})
        await r.taken(2)
        r.server.drain()
        await trio.testing.wait_all_tasks_blocked(0.01)
        gate.set()
        assert await client.answers() == {0: (NONE, 0)}
        assert await client.at_end()
        await until(lambda: not r.server.listeners["test"].connections)


async def test_lanes_end_with_the_last_client() -> None:
    async with coalesce_rig() as r:
        clients = await r.producers(3)
        for client in clients:
            await client.send_only({0: batch("v")})
            await client.answers()
        assert len(r.path._lanes) == 1
        for client in clients:
            await client.stream.aclose()
        await r.closed(3)
        await until(lambda: not r.path._lanes)
        again = await r.producer()
        await again.send_only({0: batch("v")})
        assert await again.answers() == {0: (NONE, 3)}


async def test_a_clients_own_unused_connection_is_kept_alive() -> None:
    async with coalesce_rig() as r:
        client = await r.producer()
        await client.send_only({0: batch("v")})
        await client.answers()
        for now in (0.0, 119.0, 120.0, 121.0):
            r.path.tick(now)
        await until(lambda: r.broker.others == [18])
        await client.send_only({0: batch("v")})
        assert await client.answers() == {0: (NONE, 1)}


async def test_a_keep_alive_that_finds_its_broker_lost_ends_that_connection_only() -> None:
    async with coalesce_rig() as r:
        client = await r.producer()
        await client.send_only({0: batch("v")})
        await client.answers()
        (connection,) = r.server.listeners["test"].connections
        connection.upstream.transport.shutdown(socket.SHUT_WR)  # sends fail, as after a reset that no task has noticed
        for now in (0.0, 120.0):
            r.path.tick(now)
        assert await r.closed() == {CloseCause.UPSTREAM_LOST: 1}


async def test_a_client_id_that_cannot_be_sent_on_is_left_out_of_its_keep_alive() -> None:
    """Each byte that is not UTF-8 is read as U+FFFD, three bytes long: more than a header can hold."""
    received: list[bytes] = []

    async def answer(side: BrokerSide, frame: bytes) -> None:
        received.append(frame)
        await side.send(response(correlation_id(frame), bytes(6)))  # no error, no APIs

    async with coalesce_rig(answer=answer) as r:
        client = await r.producer()
        await client.send(request(18, 0, 1, client_id=b"\xff" * 11_000))
        await client.frame()
        for now in (0.0, 120.0):
            r.path.tick(now)
        await until(lambda: len(received) == 2)
        assert received[1] == write_int32(10) + write_request_header(18, 0, 0, None)
