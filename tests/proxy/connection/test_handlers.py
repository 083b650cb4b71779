"""Hooks that hold requests and answers, in whole connections."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.config.settings import MIB, Limits
from shoal.proxy.connection.pending import Hold
from shoal.proxy.connection.routes import Decision, Route, table
from shoal.proxy.listener.plain import PlainPath
from shoal.proxy.net.transport import BUFFER_SIZE
from shoal.proxy.net.upstream import UpstreamLost
from shoal.proxy.statistics import CloseCause
from tests.support.rig import BrokerSide, correlation_id, echo, request, response, rig, silent, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from shoal.protocol.schema.headers import RequestHeader
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.pending import PendingAnswer
    from shoal.proxy.listener.listener import Listener

pytestmark = pytest.mark.usefixtures("lane")

HELD, OPEN = 12, 13


def path(handle: Callable[[Connection, bytearray, RequestHeader], Awaitable[None]]) -> Callable[[Listener], PlainPath]:
    def make(listener: Listener) -> PlainPath:
        made = PlainPath(listener)
        made.routes = table({HELD: Route(handle=handle)})
        return made

    return make


async def ask_twice(connection: Connection, frame: bytearray, header: RequestHeader) -> None:
    """Two of Shoal's own requests, then one answer made of both."""
    first = await connection.broker.ask([request(50, 1, -5, b"one")])
    second = await connection.broker.ask([request(50, 1, -6, b"two")])
    await connection.reply([response(header.correlation_id, bytes(first[8:]) + bytes(second[8:]))])


@pytest.mark.parametrize("size", [0, 100, BUFFER_SIZE, 2 * BUFFER_SIZE + 1])
async def test_a_held_request_is_handed_over_whole_and_answered_in_its_turn(size: int) -> None:
    seen = []

    async def handle(connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        seen.append((bytes(frame), header.client_id))
        await ask_twice(connection, frame, header)

    held = request(HELD, 0, 2, bytes(size))
    async with rig(path=path(handle)) as r:
        client = await r.client()
        await client.send(request(OPEN, 0, 1, b"before") + held + request(OPEN, 0, 3, b"after"))
        assert (await client.frame()).endswith(b"before")
        assert await client.frame() == response(2, b"\x00\x04testone\x00\x04testtwo")
        assert (await client.frame()).endswith(b"after")
        assert seen == [(held, "test")]
        assert [correlation_id(frame) for frame in r.broker.received] == [1, -5, -6, 3]
        assert r.server.statistics().listeners[0].traffic.asked == 2


async def test_a_reply_without_asking_waits_for_the_answers_before_it() -> None:
    go_on = trio.Event()

    async def handle(connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        await connection.reply([response(header.correlation_id, b"mine")])

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await go_on.wait()
        await echo(broker, frame)

    async with rig(answer, path=path(handle)) as r:
        client = await r.client()
        frames = [request(HELD if number % 2 else OPEN, 0, number) for number in range(10)]
        await client.send(b"".join(frames))
        await until(lambda: len(r.connection.in_flight) == 10)
        go_on.set()
        for number in range(10):
            frame = await client.frame()
            assert struct.unpack_from(">i", frame, 4)[0] == number
            assert frame.endswith(b"mine") == bool(number % 2)
        await client.send(request(HELD, 0, 11))
        assert await client.frame() == response(11, b"mine")


async def test_an_answer_whose_pump_is_about_to_wake_is_still_due() -> None:
    """The client's next request is read between that pump's step, which has the answer, and its task, which sends it.
    Other answers to this client must not pass it, and no keep-alive may be sent into a request."""
    quiet: list[bool] = []
    read = trio.Event()

    def decide(connection: Connection, first: memoryview) -> None:
        quiet.append(connection.responses.quiet)
        read.set()

    async def same(connection: Connection, entry: PendingAnswer, frame: bytearray) -> Sequence[bytearray]:
        await read.wait()
        return [frame]

    def make(listener: Listener) -> PlainPath:
        made = PlainPath(listener)
        made.routes = table({HELD: Route(answer=Hold(same)), OPEN: Route(decide=decide)})
        return made

    async with rig(silent, path=make) as r:
        client = await r.client()
        await client.send(request(HELD, 0, 1))
        await until(lambda: len(r.broker.received) == 1)
        os.write(r.broker.sides[0].stream.socket.fileno(), response(1, b"held"))
        os.write(client.stream.socket.fileno(), request(OPEN, 0, 2))  # both are there when Shoal looks again
        assert await client.frame() == response(1, b"held")
        assert quiet == [False]


async def test_nothing_further_is_read_while_a_handler_runs() -> None:
    running, go_on = trio.Event(), trio.Event()

    async def handle(connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        running.set()
        await go_on.wait()
        await connection.reply([response(header.correlation_id)])

    async with rig(path=path(handle)) as r:
        client = await r.client()
        await client.send(request(HELD, 0, 1))
        await running.wait()
        await client.send(request(OPEN, 0, 2, b"later"))
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert not r.broker.received
        assert r.server.statistics().listeners[0].in_flight == 1
        go_on.set()
        assert await client.frame() == response(1)
        assert (await client.frame()).endswith(b"later")
        assert r.server.statistics().listeners[0].in_flight == 0


async def test_a_forwarded_request_may_have_its_answer_held_edited_and_delayed() -> None:
    go_on = trio.Event()

    async def edit(connection: Connection, entry: PendingAnswer, frame: bytearray) -> Sequence[bytes]:
        await go_on.wait()
        return [response(entry.correlation_id, b"edited "), *([] if entry.api_version else [b"more"])]

    async def handle(connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        await connection.broker.forward([frame], Hold(edit))

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await broker.send(response(correlation_id(frame), bytes(2 * BUFFER_SIZE)))

    async with rig(answer, path=path(handle)) as r:
        client = await r.client()
        await client.send(request(HELD, 1, 1) + request(OPEN, 0, 2))
        await until(lambda: len(r.broker.received) == 2)
        go_on.set()
        assert await client.frame() == response(1, b"edited ")
        assert await client.frame() == response(2, bytes(2 * BUFFER_SIZE))


async def test_a_request_forwarded_silently_has_no_answer() -> None:
    async def handle(connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        await connection.broker.forward([frame], Decision.SILENT)

    async with rig(silent, path=path(handle)) as r:
        client = await r.client()
        await client.send(request(HELD, 0, 1))
        await until(lambda: len(r.broker.received) == 1)
        assert not r.connection.in_flight


async def test_a_client_that_goes_does_not_interrupt_an_exchange_with_the_broker() -> None:
    asked, go_on, done = trio.Event(), trio.Event(), trio.Event()

    async def handle(connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        await ask_twice(connection, frame, header)
        done.set()

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        if correlation_id(frame) < 0:
            asked.set()
            await go_on.wait()
        await echo(broker, frame)

    async with rig(answer, path=path(handle)) as r:
        client = await r.client()
        await client.send(request(HELD, 0, 1))
        await asked.wait()
        await client.stream.aclose()
        await until(r.connection.client_has_left)
        go_on.set()
        with trio.fail_after(5):
            await done.wait()
        assert [correlation_id(frame) for frame in r.broker.received] == [-5, -6]
        assert await r.closed() in ({CloseCause.CLIENT_CLOSED: 1}, {CloseCause.CLIENT_LOST: 1})


async def test_a_client_that_resets_does_not_interrupt_an_exchange_with_the_broker() -> None:
    """Earlier answers can no longer be delivered; the exchange must continue."""
    asked, go_on, done = trio.Event(), trio.Event(), trio.Event()

    async def handle(connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        await ask_twice(connection, frame, header)
        done.set()

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        if correlation_id(frame) == 1:
            asked.set()
            await go_on.wait()
        await broker.send(response(correlation_id(frame), bytes(8 * MIB)))

    async with rig(answer, path=path(handle)) as r:
        client = await r.client()
        await client.send(request(OPEN, 0, 1) + request(HELD, 0, 2))
        await asked.wait()
        client.stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, struct.pack("ii", 1, 0))
        await client.stream.aclose()
        await until(r.connection.client_has_left)
        go_on.set()
        with trio.fail_after(10):
            await done.wait()
        assert await r.closed() == {CloseCause.CLIENT_LOST: 1}


async def test_a_lost_broker_is_told_to_the_handler() -> None:
    outcome = []

    async def handle(connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        for _ in range(2):
            try:
                await connection.broker.ask([request(50, 1, -5)])
            except UpstreamLost as error:
                outcome.append(str(error))
        await connection.reply([response(header.correlation_id, b"unknown")])

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await broker.stream.aclose()

    async with rig(answer, path=path(handle)) as r:
        client = await r.client()
        await client.send(request(HELD, 0, 1))
        assert await client.at_end()
        await client.stream.aclose()
        assert await r.closed() == {CloseCause.UPSTREAM_CLOSED: 1}
    assert outcome == [
        "the connection to the broker ended before it had answered",
        "the connection to the broker has ended",
    ]


async def test_an_abort_of_our_own_is_no_lost_broker_to_a_handler_that_was_just_woken() -> None:
    """Otherwise a running proof of multi-batch sets would end with a false result about the broker."""
    seen: list[str] = []
    gate = trio.Event()

    async def handle(connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        await gate.wait()
        try:
            await connection.broker.ask([frame])
        except BaseException as error:
            seen.append(type(error).__name__)
            raise

    async with rig(silent, path=path(handle)) as r:
        client = await r.client()
        await client.send(request(12, 0, 1))
        await until(lambda: bool(r.broker.sides) and r.connection.handling)
        gate.set()
        r.connection.abort(CloseCause.ABANDONED)
        await r.closed()
    assert seen == ["Cancelled"]


async def test_a_handler_that_finds_a_broken_request_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def handle(connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        raise RemoteProtocolError("not what it should be")

    async with rig(path=path(handle)) as r:
        client = await r.client()
        await client.send(request(HELD, 0, 1))
        assert await client.at_end()
        assert await r.closed() == {CloseCause.CLIENT_PROTOCOL: 1}
    assert "not what it should be" in caplog.text


async def test_an_error_in_a_handler_ends_its_own_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    async def handle(connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        raise ZeroDivisionError

    async with rig(path=path(handle)) as r:
        other, client = await r.client(), await r.client()
        await client.send(request(HELD, 0, 1))
        assert await client.at_end()
        assert await r.closed() == {CloseCause.INTERNAL: 1}
        await other.send(request(OPEN, 0, 1, b"alive"))
        assert (await other.frame()).endswith(b"alive")
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("sizes", [(200, 0), (0, 200)])
async def test_what_is_larger_than_may_be_held_is_refused(
    sizes: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        await connection.broker.ask([request(50, 1, -5)])

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await broker.send(response(correlation_id(frame), bytes(sizes[1])))

    limits = Limits(held_request_bytes=100, held_response_bytes=100)
    async with rig(answer, path=path(handle), limits=limits) as r:
        client = await r.client()
        await client.send(request(HELD, 0, 1, bytes(sizes[0])))
        assert await client.at_end()
        assert len(await r.closed()) == 1
    assert ("limits.held-request-bytes" if sizes[0] else "limits.held-response-bytes") in caplog.text
