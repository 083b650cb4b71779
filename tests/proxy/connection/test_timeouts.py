"""Stalled connections time out; the clock jumps, the sockets are real."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from shoal.proxy.config.settings import MIB, Limits
from shoal.proxy.connection.routes import Route, table
from shoal.proxy.listener.plain import PlainPath
from shoal.proxy.statistics import CloseCause
from tests.support.rig import BrokerSide, correlation_id, echo, request, response, rig, silent, until

if TYPE_CHECKING:
    from shoal.protocol.schema.headers import RequestHeader
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.listener.listener import Listener

LIMITS = Limits(frame_timeout=60, stall_timeout=600, idle_timeout=None, linger_seconds=30)


@pytest.fixture
def clock() -> trio.testing.MockClock:
    """Advances only when a test moves it."""
    return trio.testing.MockClock()


async def seconds(clock: trio.testing.MockClock, count: int) -> None:
    """Let the watchdog check once per second."""
    for _ in range(count):
        await trio.testing.wait_all_tasks_blocked(0.001)
        clock.jump(1)
    await trio.testing.wait_all_tasks_blocked(0.001)


@pytest.mark.parametrize("sent", [1, 11, 50])
async def test_a_request_that_never_ends_is_cut_after_its_last_byte(
    sent: int, clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    frame = request(300, 0, 1, bytes(100))
    async with rig(silent, limits=LIMITS) as r:
        client = await r.client()
        await client.send(frame[:sent])
        await until(lambda: bool(r.listener.connections) and r.connection.connected)
        await seconds(clock, 50)
        await client.send(frame[sent : sent + 1])
        await seconds(clock, 55)
        assert r.listener.tally.active == 1
        await seconds(clock, 10)
        assert await r.closed() == {CloseCause.SLOW_FRAME: 1}
    assert "an incomplete request (limits.frame-timeout)" in caplog.text


async def test_an_answer_that_never_ends_is_cut(clock: trio.testing.MockClock) -> None:
    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await broker.send(response(correlation_id(frame), bytes(100))[:50])

    async with rig(answer, limits=LIMITS) as r:
        client = await r.client()
        await client.send(request(300, 0, 1))
        await until(
            lambda: bool(r.listener.connections) and r.connection.connected and r.connection.responses.mid_frame
        )
        await seconds(clock, 65)
        assert await r.closed() == {CloseCause.SLOW_FRAME: 1}


async def test_a_long_wait_for_an_answer_is_nobodys_fault(clock: trio.testing.MockClock) -> None:
    async with rig(silent, limits=LIMITS) as r:
        client = await r.client()
        await client.send(request(1, 11, 1))
        await until(lambda: len(r.broker.received) == 1)
        await seconds(clock, 1000)
        assert r.listener.tally.active == 1


async def test_a_client_that_stops_reading_is_cut_much_later(clock: trio.testing.MockClock) -> None:
    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await broker.stream.send_all(struct.pack(">ii", 64 * MIB + 4, correlation_id(frame)) + bytes(64 * MIB))

    async with rig(answer, limits=LIMITS) as r:
        client = await r.client()
        await client.send(request(300, 0, 1))
        await until(lambda: bool(r.listener.connections) and r.connection.connected and r.connection.client_out.blocked)
        await seconds(clock, 590)
        assert r.listener.tally.active == 1
        await seconds(clock, 15)
        assert await r.closed() == {CloseCause.STALLED: 1}


@pytest.mark.parametrize("spoke", [False, True])
async def test_idle_connections_are_closed_only_when_asked_to(spoke: bool, clock: trio.testing.MockClock) -> None:
    async with rig(echo, limits=Limits(idle_timeout=100)) as r:
        client = await r.client()
        if spoke:
            await client.send(request(300, 0, 1))
            await client.frame()
        await until(lambda: bool(r.listener.connections))
        await seconds(clock, 95)
        assert r.listener.tally.active == 1
        await seconds(clock, 10)
        assert await client.at_end()
        assert await r.closed() == {CloseCause.IDLE: 1}


async def test_an_exchange_without_its_client_ends_after_a_while(clock: trio.testing.MockClock) -> None:
    async def handle(connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        await connection.broker.ask([request(50, 0, -1)])

    def path(listener: Listener) -> PlainPath:
        made = PlainPath(listener)
        made.routes = table({12: Route(handle=handle)})
        return made

    async with rig(silent, limits=LIMITS, path=path) as r:
        client = await r.client()
        await client.send(request(12, 0, 1))
        await until(lambda: len(r.broker.received) == 1)
        await seconds(clock, 100)
        assert r.listener.tally.active == 1
        await client.stream.aclose()
        await until(r.connection.client_has_left)
        await seconds(clock, 28)
        assert r.listener.tally.active == 1
        await seconds(clock, 5)
        assert await r.closed() == {CloseCause.ABANDONED: 1}
