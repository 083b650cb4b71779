"""How connections begin and end: which side closes first, what is still delivered, and what is logged."""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from shoal.proxy.config.settings import MIB, Address, Limits
from shoal.proxy.connection.routes import Route, table
from shoal.proxy.connection.state import State
from shoal.proxy.listener.plain import PlainPath
from shoal.proxy.net.upstream import Upstream, UpstreamUnreachable
from shoal.proxy.statistics import CloseCause
from tests.support.held_answers import HeldAnswers
from tests.support.rig import (
    DEADLINE,
    TLS,
    BrokerSide,
    Tls,
    api_key,
    correlation_id,
    echo,
    request,
    response,
    rig,
    silent,
    until,
)

if TYPE_CHECKING:
    from trio.testing import MockClock

    from shoal.protocol.schema.headers import RequestHeader
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.listener.listener import Listener
    from tests.support.rig import Peer, Rig

pytestmark = pytest.mark.usefixtures("lane")

UNKNOWN_KEY = 300
HELD_KEY = 12  # its header can be read


async def _client_that_has_read(r: Rig) -> Peer:
    """Over TLS, a client that has yet to read the session tickets closes with a reset."""
    client = await r.client()
    await client.send(request(UNKNOWN_KEY, 0, 1))
    await client.frame()
    return client


async def test_a_client_that_closes_its_sending_side_gets_what_is_due() -> None:
    closed = trio.Event()

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await closed.wait()
        await echo(broker, frame)

    async with rig(answer) as r:
        client = await r.client()
        await client.send(request(UNKNOWN_KEY, 0, 1, b"question"))
        await until(lambda: len(r.broker.received) == 1)
        await client.stream.send_eof()
        await until(lambda: r.connection.state is State.CLIENT_DONE)
        closed.set()
        assert api_key(r.broker.received[0]) == UNKNOWN_KEY
        assert (await client.frame())[8:] == r.broker.received[0][12:]
        assert await client.at_end()
        assert await r.closed() == {CloseCause.CLIENT_CLOSED: 1}


@pytest.mark.parametrize(("reset", "seen"), [(True, "RST"), (False, "FIN")])
async def test_a_reset_is_passed_on_as_a_reset_and_a_fin_as_a_fin(reset: bool, seen: str) -> None:
    ends: list[str] = []

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        if correlation_id(frame) == 1:
            return await echo(broker, frame)
        try:
            ends.append("data" if await broker.stream.receive_some() else "FIN")
        except trio.BrokenResourceError:
            ends.append("RST")

    async with rig(answer) as r:
        client = await _client_that_has_read(r)
        await client.send(request(UNKNOWN_KEY, 0, 2))
        await until(lambda: len(r.broker.received) == 2)
        if reset:
            client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await client.stream.aclose()
        await until(lambda: bool(ends))
        assert ends == [seen]


async def test_what_a_client_has_sent_right_before_its_reset_reaches_the_broker() -> None:
    """As without Shoal: it is in the broker's kernel and can be read there."""
    async with rig(silent) as r:
        client = await r.client()
        for number in range(3):
            await client.send(request(UNKNOWN_KEY, 0, number, bytes(1000)))
        await until(lambda: len(r.broker.received) == 3)
        await client.send(request(UNKNOWN_KEY, 0, 3))
        client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await client.stream.aclose()
        assert await r.closed() == {CloseCause.CLIENT_LOST: 1}
        await until(lambda: r.broker.ended == 1)
        assert len(r.broker.received) == 4


async def test_a_reset_in_the_middle_of_a_handler_is_a_fin_at_the_broker() -> None:
    """Shoal's own requests there are completed."""
    ends: list[str] = []
    asked, gone = trio.Event(), trio.Event()

    async def handle(connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        await connection.broker.post([request(UNKNOWN_KEY, 0, 1)])
        asked.set()
        await gone.wait()

    def path(listener: Listener) -> PlainPath:
        made = PlainPath(listener)
        made.routes = table({HELD_KEY: Route(handle=handle)})
        return made

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        try:
            ends.append("data" if await broker.stream.receive_some() else "FIN")
        except trio.BrokenResourceError:
            ends.append("RST")

    async with rig(answer, path=path, limits=Limits(linger_seconds=0.05)) as r:
        client = await r.client()
        await client.send(request(HELD_KEY, 0, 1))
        with trio.fail_after(DEADLINE):
            await asked.wait()
        client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await client.stream.aclose()
        await until(lambda: r.connection.client_has_left())
        gone.set()
        await until(lambda: bool(ends))
        assert ends == ["FIN"]


async def test_a_client_that_goes_takes_its_broker_connection_along() -> None:
    async with rig() as r:
        client = await r.client()
        await client.send(request(UNKNOWN_KEY, 0, 1))
        await client.frame()
        await client.stream.aclose()
        await until(lambda: r.broker.ended == 1)
        assert await r.closed() == {CloseCause.CLIENT_CLOSED: 1}


async def test_a_client_that_closes_in_the_middle_of_a_frame_is_lost() -> None:
    async with rig(silent) as r:
        client = await r.client()
        await client.send(request(UNKNOWN_KEY, 0, 1, bytes(100))[:50])
        await until(lambda: bool(r.broker.sides))
        await client.stream.aclose()
        assert await r.closed() == {CloseCause.CLIENT_LOST: 1}


async def test_a_client_that_says_nothing_never_reaches_the_broker() -> None:
    async with rig() as r:
        client = await r.client()
        await client.stream.aclose()
        assert await r.closed() == {CloseCause.CLIENT_CLOSED: 1}
        assert not r.broker.sides


async def test_a_broker_that_closes_is_heard_to_the_end() -> None:
    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await broker.send(response(correlation_id(frame), b"last words" * 100_000))
        await broker.stream.aclose()

    async with rig(answer) as r:
        client = await r.client()
        await client.send(request(36, 2, 1, b"wrong password"))
        assert await client.frame() == response(1, b"last words" * 100_000)
        assert await client.at_end()
        await client.stream.aclose()
        assert await r.closed() == {CloseCause.UPSTREAM_CLOSED: 1}


async def test_a_broker_that_has_closed_is_heard_to_the_end_also_by_a_client_that_goes_on_sending() -> None:
    """A request for it fails while the answers before are still to be read."""
    held = HeldAnswers(HELD_KEY)

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        if correlation_id(frame) == 3:
            for number in range(1, 4):
                await broker.send(response(number, b"%d" % number))
            await broker.stream.aclose()

    async with rig(answer, path=held.path) as r:
        client = await r.client()
        await client.send(request(HELD_KEY, 3, 1) + request(UNKNOWN_KEY, 0, 2) + request(UNKNOWN_KEY, 0, 3))
        await held.is_held.wait()
        await until(lambda: r.broker.ended == 1)
        connection = r.connection
        with trio.fail_after(DEADLINE):
            while connection.cause is None:
                await client.send(request(UNKNOWN_KEY, 0, 4))
                await trio.testing.wait_all_tasks_blocked(0.001)
        await client.send(request(UNKNOWN_KEY, 0, 5))  # not read
        held.go_on.set()
        assert [await client.frame() for _ in range(3)] == [response(number, b"%d" % number) for number in range(1, 4)]
        assert await client.at_end()
        assert await r.closed() == {CloseCause.UPSTREAM_LOST: 1}


async def test_a_broker_that_is_not_there_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async with rig() as r:
        (cluster,) = r.server.clusters.values()
        with trio.socket.socket() as unused:
            await unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            cluster.bootstrap = (cluster.bootstrap[0]._replace(port=port),)
            for number in range(5):  # clients reconnect; only the first is logged
                client = await r.client()
                await client.send(request(18, 0, number))
                assert await client.at_end()
        assert await r.closed(5) == {CloseCause.UPSTREAM_UNREACHABLE: 5}
    told = [line.getMessage() for line in caplog.records if line.levelname == "WARNING" and line.name != "shoal.server"]
    assert len(told) == 1
    assert f"127.0.0.1:{port}: Connection refused" in told[0]


async def test_a_broker_that_does_not_answer_is_given_up_after_the_connect_timeout() -> None:
    """A listening socket without an accept and with a full backlog is like a host that drops every packet."""
    with ExitStack() as sockets:
        deaf = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = Address(*deaf.getsockname())
        for _ in range(3):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        with pytest.raises(UpstreamUnreachable, match=f"{address}: no answer within 0.2 s"):
            await Upstream(Limits(connect_timeout=0.2)).connect([address])


async def test_both_sides_are_probed_by_keepalive() -> None:
    """So the kernel detects half-open connections on either side."""
    limits = Limits(keepalive_idle=7, keepalive_interval=3, keepalive_count=2)
    async with rig(limits=limits) as r:
        client = await r.client()
        await client.send(request(UNKNOWN_KEY, 0, 1))
        await client.frame()
        for sock in (r.connection.client.transport, r.connection.upstream.transport):
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            assert [sock.getsockopt(socket.IPPROTO_TCP, name) for name in names] == [7, 3, 2]


async def test_bootstrap_addresses_are_tried_in_turn() -> None:
    async with rig() as r:
        (cluster,) = r.server.clusters.values()
        with trio.socket.socket() as unused:
            await unused.bind(("127.0.0.1", 0))
            cluster.bootstrap = (cluster.bootstrap[0]._replace(port=unused.getsockname()[1]), *cluster.bootstrap)
            client = await r.client()
            await client.send(request(UNKNOWN_KEY, 0, 1, b"hello"))
            assert (await client.frame()).endswith(b"hello")


async def test_connections_above_the_limit_are_refused_in_clear_words(caplog: pytest.LogCaptureFixture) -> None:
    async with rig(max_connections=2) as r:
        clients = [await r.client() for _ in range(2)]
        with suppress(OSError, trio.BrokenResourceError):  # already reset
            assert await (await r.client()).at_end()
        assert await r.closed() == {CloseCause.REFUSED: 1}
        for client in clients[:2]:
            await client.send(request(UNKNOWN_KEY, 0, 1))
            await client.frame()
    assert "refused one connection from 127.0.0.1: too many connections (max-connections = 2)" in caplog.text


async def test_a_broker_learns_at_once_that_its_client_has_gone() -> None:
    async def answer(broker: BrokerSide, frame: bytes) -> None:
        if correlation_id(frame) == 1:
            await echo(broker, frame)

    async with rig(answer, limits=Limits(close_seconds=1000)) as r:
        client = await _client_that_has_read(r)
        await client.send(request(1, 11, 2))
        await until(lambda: len(r.broker.received) == 2)
        await client.stream.aclose()
        await until(lambda: r.broker.ended == 1)
        assert await r.closed() == {CloseCause.CLIENT_CLOSED: 1}


async def test_a_drained_client_gets_its_last_answer_even_if_it_went_on_sending() -> None:
    """Closing a socket with unread bytes would be a reset, and would destroy what the client has not read yet."""
    go_on = trio.Event()

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await go_on.wait()
        await broker.send(response(correlation_id(frame), bytes(MIB)))

    async with rig(answer) as r:
        client = await r.client()
        await client.send(request(UNKNOWN_KEY, 0, 1))
        await until(lambda: len(r.broker.received) == 1)
        connection = r.connection
        r.server.drain()
        await until(lambda: connection.state is State.CLIENT_DONE)
        await client.send(request(UNKNOWN_KEY, 0, 2, bytes(1000)))
        go_on.set()
        await until(lambda: connection.cause is CloseCause.DRAINED)
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert await client.frame() == response(1, bytes(MIB))
        assert await client.at_end()


async def test_a_client_that_sends_without_reading_learns_that_its_broker_has_closed(clock: MockClock) -> None:
    """With acks=0: what it sends until then is lost."""
    async with rig(limits=Limits(close_seconds=1000)) as r:
        client = await r.client()
        await client.send(request(UNKNOWN_KEY, 0, 1))
        await client.frame()
        await r.broker.sides[0].leave()

        async def go_on() -> None:
            while True:
                await client.stream.send_all(request(UNKNOWN_KEY, 0, 2))
                await trio.sleep(0.1)

        with trio.fail_after(DEADLINE), pytest.raises(trio.BrokenResourceError):
            await go_on()


async def test_a_client_that_was_never_answered_learns_at_once_that_its_broker_has_closed(clock: MockClock) -> None:
    """As with acks=0 over a new connection: it has nothing to read."""
    async with rig(silent, limits=Limits(close_seconds=1000)) as r:
        client = await r.client()
        await client.send(request(UNKNOWN_KEY, 0, 1))
        await until(lambda: len(r.broker.received) == 1)
        await r.broker.sides[0].leave()
        await until(lambda: r.connection.state is State.CLOSING)

        async def go_on() -> None:
            for _ in range(20):
                await client.send(request(UNKNOWN_KEY, 0, 2))
                await trio.sleep(0.1)

        with pytest.raises(trio.BrokenResourceError):
            await go_on()


@pytest.mark.parametrize("tls", [TLS, Tls.TO_CLIENTS])
async def test_a_client_that_pauses_may_send_before_it_reads_its_last_answers(tls: Tls, clock: MockClock) -> None:
    """Its kernel has them, and many clients give a connection up when they cannot send."""

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await echo(broker, frame)
        if correlation_id(frame) == 2:
            await broker.leave()

    async with rig(answer, limits=Limits(close_seconds=1000), tls=tls) as r:
        client = await r.client()
        await client.send(request(UNKNOWN_KEY, 0, 1) + request(UNKNOWN_KEY, 0, 2))
        await until(lambda: r.connection.state is State.CLOSING)
        end = trio.current_time() + 3
        while trio.current_time() < end:
            await client.send(request(UNKNOWN_KEY, 0, 3))
            await trio.sleep(0.5)
        assert [correlation_id(b"1234" + await client.frame()) for _ in range(2)] == [1, 2]


async def test_a_client_that_goes_on_sending_before_it_reads_gets_its_last_answer(clock: MockClock) -> None:
    """Its kernel does not have all of the answer before it reads."""

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await broker.send(response(correlation_id(frame), bytes(MIB)))

    async with rig(answer, limits=Limits(close_seconds=1000)) as r:
        client = await r.client()
        await client.send(request(UNKNOWN_KEY, 0, 1))
        await until(lambda: len(r.broker.received) == 1)
        connection = r.connection
        r.server.drain()
        await until(lambda: connection.cause is CloseCause.DRAINED)
        end = trio.current_time() + 8
        while trio.current_time() < end:
            await client.send(request(UNKNOWN_KEY, 0, 2))
            await trio.sleep(0.5)
        assert await client.frame() == response(1, bytes(MIB))
