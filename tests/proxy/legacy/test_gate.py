"""The gate of an answer to Shoal's own request: what follows its prefix stays at the broker until the gate opens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from shoal.proxy.config.settings import Limits
from shoal.proxy.connection.routes import Route, table
from shoal.proxy.listener.plain import PlainPath
from shoal.proxy.net.transport import BUFFER_SIZE
from shoal.proxy.net.upstream import UpstreamLost
from shoal.proxy.statistics import CloseCause
from tests.support.rig import BrokerSide, correlation_id, echo, request, response, rig, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.protocol.schema.headers import RequestHeader
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.listener.listener import Listener

pytestmark = pytest.mark.usefixtures("lane")

HELD, OPEN = 12, 13
PREFIX = 8


class Gate:
    def __init__(self) -> None:
        self.open = trio.Event()
        self.asked: list[int] = []
        self.lost = 0

    async def __call__(self, size: int) -> None:
        self.asked.append(size)
        await self.open.wait()

    async def handle(self, connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        await connection.requests.until_quiet()
        try:
            asked = await connection.broker.post([request(50, 1, -5, bytes(frame[-4:]))], gate=self)
            answer = await asked.frame()
        except UpstreamLost:
            self.lost += 1
            raise
        await connection.client_out.send_all([response(header.correlation_id, bytes(answer[8:]))])


def path(gate: Gate) -> Callable[[Listener], PlainPath]:
    def make(listener: Listener) -> PlainPath:
        made = PlainPath(listener)
        made.routes = table({HELD: Route(handle=gate.handle)})
        return made

    return make


async def as_large_as_asked(broker: BrokerSide, frame: bytes) -> None:
    await broker.send(response(correlation_id(frame), bytes(int.from_bytes(frame[-4:], "big"))))


@pytest.mark.parametrize("size", [0, 1, 100, BUFFER_SIZE, 3 * BUFFER_SIZE + 7])
async def test_behind_the_prefix_nothing_is_read_before_the_gate_opens(size: int) -> None:
    gate = Gate()
    async with rig(as_large_as_asked, path=path(gate)) as r:
        client = await r.client()
        for number in range(3):
            await client.send(request(HELD, 0, number, size.to_bytes(4, "big")))
            await until(lambda number=number: len(gate.asked) == number + 1)  # type: ignore[misc]
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert r.connection.responses.received == number * (PREFIX + size) + PREFIX
            assert not r.connection.responses.mid_frame  # the watchdog ignores it
            gate.open.set()
            assert await client.frame() == response(number, bytes(size))
            gate.open = trio.Event()
        assert gate.asked == 3 * [PREFIX + size]


async def test_what_waits_behind_a_gate_is_read_in_its_turn() -> None:
    gate = Gate()
    async with rig(echo, path=path(gate)) as r:
        client = await r.client()
        await client.send(request(OPEN, 0, 1, b"one") + request(HELD, 0, 2, b"two!") + request(OPEN, 0, 3, b"three"))
        assert (await client.frame()).endswith(b"one")
        await until(lambda: bool(gate.asked))
        gate.open.set()
        assert (await client.frame()).endswith(b"two!")
        assert (await client.frame()).endswith(b"three")


async def test_a_prefix_in_single_bytes_meets_the_gate_too() -> None:
    gate = Gate()

    async def slowly(broker: BrokerSide, frame: bytes) -> None:
        for byte in response(correlation_id(frame), b"answer"):
            await broker.send(bytes((byte,)))
            await trio.testing.wait_all_tasks_blocked(0.001)

    async with rig(slowly, path=path(gate)) as r:
        client = await r.client()
        await client.send(request(HELD, 0, 2))
        await until(lambda: bool(gate.asked))
        gate.open.set()
        assert await client.frame() == response(2, b"answer")


async def test_a_broker_that_closes_in_front_of_the_gate_has_still_answered() -> None:
    gate = Gate()

    async def last_words(broker: BrokerSide, frame: bytes) -> None:
        await as_large_as_asked(broker, frame)
        await broker.stream.send_eof()

    async with rig(last_words, path=path(gate)) as r:
        client = await r.client()
        await client.send(request(HELD, 0, 2, (70_000).to_bytes(4, "big")))
        await until(lambda: bool(gate.asked))
        gate.open.set()
        assert await client.frame() == response(2, bytes(70_000))
        assert await client.at_end()
        await client.stream.aclose()
        assert await r.closed() == {CloseCause.UPSTREAM_CLOSED: 1}


async def test_who_waits_for_quiet_learns_that_the_broker_has_gone() -> None:
    gate = Gate()

    async def goes(broker: BrokerSide, frame: bytes) -> None:
        await broker.stream.aclose()

    async with rig(goes, path=path(gate)) as r:
        client = await r.client()
        await client.send(request(OPEN, 0, 1) + request(HELD, 0, 2))
        assert await client.at_end()
        await client.stream.aclose()
        assert await r.closed() == {CloseCause.UPSTREAM_CLOSED: 1}
        assert not gate.asked
        assert gate.lost == 0


@pytest.mark.parametrize("who", ["client", "drain", "answer too large"])
async def test_a_connection_may_end_in_front_of_the_gate(who: str) -> None:
    gate = Gate()
    limits = Limits(linger_seconds=0.05, drain_seconds=0.05, held_response_bytes=1000)
    size = 2000 if who == "answer too large" else 100
    async with rig(as_large_as_asked, path=path(gate), limits=limits, check_seconds=0.05) as r:
        client = await r.client()
        await client.send(request(HELD, 0, 2, size.to_bytes(4, "big")))
        if who != "answer too large":
            await until(lambda: bool(gate.asked))
        if who == "client":
            await client.stream.aclose()
        elif who == "drain":
            r.server.drain()
        (cause,) = await r.closed()
        assert cause in {CloseCause.ABANDONED, CloseCause.SHUTDOWN, CloseCause.UPSTREAM_PROTOCOL}
        assert len(gate.asked) == (who != "answer too large")
