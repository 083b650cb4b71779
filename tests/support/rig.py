"""A proxy between a raw client and a scripted broker, all in one process, over real loopback sockets.

The client and the broker use trio's streams and split frames themselves, so that Shoal's code does not test itself.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from enum import Flag, auto
from functools import partial
from typing import TYPE_CHECKING, Any

import trio
import trio.testing

from shoal.proxy.config.settings import (
    Address,
    AdminSettings,
    CaptureSettings,
    ClusterSettings,
    Limits,
    ListenerSettings,
    NodePorts,
    PortRange,
    Settings,
)
from shoal.proxy.connection.timeouts import CHECK_SECONDS
from shoal.proxy.lifecycle.server import Server
from shoal.scenarios.kafka.ports import free_port_block
from tests.support.tls import TlsStream, client_context, cluster_tls, listener_tls, secured, server_context

if TYPE_CHECKING:
    import random
    import ssl

    from shoal.proxy.config.security import ClusterTls, NamedCredentials, SaslSettings
    from shoal.proxy.config.settings import RawCaptureSettings
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.listener_api import Path
    from shoal.proxy.listener.listener import Listener
    from shoal.proxy.statistics import CloseCause


class Tls(Flag):
    TO_CLIENTS = auto()
    TO_BROKER = auto()
    BOTH = TO_CLIENTS | TO_BROKER


# SHOAL_TEST_TLS=BOTH (or one side) runs every test of this rig over TLS.
TLS = Tls[os.environ["SHOAL_TEST_TLS"]] if "SHOAL_TEST_TLS" in os.environ else Tls(0)

METER = "SHOAL_TEST_METER" in os.environ  # set: every test of this rig counts requests by API

DEADLINE = 20.0  # for all waits of tests; never reached if nothing fails

Answer = Callable[["BrokerSide", bytes], Awaitable[None]]


def request(key: int, version: int, correlation_id: int, body: bytes = b"", client_id: bytes = b"test") -> bytes:
    payload = struct.pack(">hhih", key, version, correlation_id, len(client_id)) + client_id + body
    return struct.pack(">i", len(payload)) + payload


def response(correlation_id: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


def correlation_id(frame: bytes) -> int:
    return int(struct.unpack_from(">i", frame, 8)[0])


def api_key(frame: bytes) -> int:
    return int(struct.unpack_from(">h", frame, 4)[0])


class Peer:
    """One end of a connection, frame by frame."""

    patience = DEADLINE

    def __init__(self, stream: trio.SocketStream | TlsStream) -> None:
        self.stream = stream
        self._buffer = bytearray()

    async def send(self, data: bytes) -> None:
        with trio.fail_after(DEADLINE):
            await self.stream.send_all(data)

    async def send_in_chunks(self, data: bytes, rng: random.Random) -> None:
        pos = 0
        while pos < len(data):
            step = rng.choice((1, 3, 11, 13, 100, 4096, 70_000, 600_000))
            await self.send(data[pos : pos + step])
            if step < 100:
                await trio.testing.wait_all_tasks_blocked(0.001)
            pos += step

    async def read(self, size: int) -> bytes:
        """Exactly this many bytes."""
        with trio.fail_after(self.patience):
            while len(self._buffer) < size:
                piece = await self.stream.receive_some()
                assert piece, f"closed after {len(self._buffer)} of {size} bytes"
                self._buffer += piece
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    async def frame(self) -> bytes:
        size = await self.read(4)
        return size + await self.read(int.from_bytes(size, "big"))

    async def leave(self) -> None:
        await self.stream.aclose()

    async def reset(self) -> None:
        """Close with a reset instead of a FIN."""
        self.stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self.stream.aclose()

    async def at_end(self, within: float = DEADLINE) -> bool:
        """Wait until the other side closes; -> whether nothing arrived before."""
        with trio.fail_after(within):
            try:
                return not self._buffer and not await self.stream.receive_some()
            except trio.BrokenResourceError:
                return True


class BrokerSide(Peer):
    """The broker's end of one connection."""

    patience = math.inf

    async def serve(self, answer: Answer, received: list[bytes]) -> None:
        while True:
            try:
                head = await self.stream.receive_some(4 - len(self._buffer)) if len(self._buffer) < 4 else b""
                if not head and len(self._buffer) < 4:
                    return
                self._buffer += head
                if len(self._buffer) < 4:
                    continue
                frame = await self.frame()
                received.append(frame)
                await answer(self, frame)
            except (trio.BrokenResourceError, trio.ClosedResourceError, AssertionError):
                return


async def echo(broker: BrokerSide, frame: bytes) -> None:
    """Answers with the request's own bytes."""
    await broker.send(response(correlation_id(frame), frame[12:]))


async def silent(broker: BrokerSide, frame: bytes) -> None:
    pass


@dataclass
class FakeBroker:
    answer: Answer = echo
    received: list[bytes] = field(default_factory=list)
    sides: list[BrokerSide] = field(default_factory=list)
    ended: int = 0
    port: int = 0
    tls: ssl.SSLContext | None = None

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self.port)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            serve = partial(trio.serve_tcp, self._handle, 0, host="127.0.0.1")
            listeners = await nursery.start(serve)
            self.port = listeners[0].socket.getsockname()[1]
            task_status.started()

    async def _handle(self, stream: trio.SocketStream) -> None:
        async with stream:
            try:
                side = BrokerSide(stream if self.tls is None else await secured(stream, self.tls, server_side=True))
            except trio.BrokenResourceError:  # no handshake
                self.ended += 1
                return
            self.sides.append(side)
            await side.serve(self._answer, self.received)
        self.ended += 1

    async def _answer(self, side: BrokerSide, frame: bytes) -> None:
        await self.answer(side, frame)


@dataclass
class Rig:
    server: Server
    broker: FakeBroker
    clients: AsyncExitStack

    @property
    def listener(self) -> Listener:
        return next(iter(self.server.listeners.values()))

    async def client(self, port: int | None = None) -> Peer:
        stream = await self.clients.enter_async_context(
            await trio.open_tcp_stream("127.0.0.1", port or self.listener.port)
        )
        if self.listener.settings.tls is None:
            return Peer(stream)
        with trio.fail_after(DEADLINE):
            return Peer(await self.clients.enter_async_context(await secured(stream, client_context())))

    @property
    def connection(self) -> Connection:
        (connection,) = self.listener.connections
        return connection

    async def closed(self, count: int = 1) -> dict[CloseCause, int]:
        """Wait until this many connections have ended; -> number by cause."""
        await until(lambda: sum(self.listener.tally.closed.values()) >= count)
        return {cause: number for cause, number in self.listener.tally.closed.items() if number}


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that happens in another task."""
    with trio.fail_after(DEADLINE):
        while not condition():
            await trio.testing.wait_all_tasks_blocked(0.001)


def free_range(count: int = 20) -> PortRange:
    """Free ports in a row."""
    first = free_port_block(count)
    return PortRange(first=first, last=first + count - 1)


@asynccontextmanager
async def fake_broker() -> AsyncIterator[FakeBroker]:
    made = FakeBroker()
    async with trio.open_nursery() as nursery:
        await nursery.start(made.run)
        yield made
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def rig(
    answer: Answer = echo,
    *,
    limits: Limits | None = None,
    nodes: NodePorts | None = None,
    path: Callable[[Listener], Path[Connection]] | None = None,
    max_connections: int = 100,
    broker: FakeBroker | None = None,
    raw_capture: RawCaptureSettings | None = None,
    capture: CaptureSettings | None = None,
    check_seconds: float = CHECK_SECONDS,
    credentials: Sequence[NamedCredentials] = (),
    login: SaslSettings | None = None,
    tls: Tls = TLS,
    to_broker: ClusterTls | None = None,
    counts_apis: bool = METER,
    **of_listener: Any,
) -> AsyncIterator[Rig]:
    """Ends everything that is left by force, and checks that nothing remains.

    `login`: Shoal's own at the broker. `of_listener`: further settings.
    """
    broker = broker or FakeBroker(answer)
    if to_broker is None and Tls.TO_BROKER in tls:
        to_broker = cluster_tls()
    if to_broker is not None and broker.tls is None:
        broker.tls = server_context()
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        listener = ListenerSettings(
            name="test",
            cluster="c",
            port=0,
            nodes=nodes or free_range(),
            max_connections=max_connections,
            tls=listener_tls() if Tls.TO_CLIENTS in tls else None,
            **of_listener,
        )
        cluster = ClusterSettings(
            name="c",
            bootstrap=(broker.address,),
            credentials=tuple(credentials),
            sasl=login,
            tls=to_broker,
        )
        settings = Settings(
            clusters=(cluster,),
            listeners=(listener,),
            limits=limits or Limits(),
            raw_capture=raw_capture,
            capture=capture,
            admin=AdminSettings(listen=Address("127.0.0.1", 9190) if counts_apis else None),
        )
        server = Server(settings, {listener.mode: path} if path else None, learn=False, check_seconds=check_seconds)
        async with trio.open_nursery() as serving:
            await serving.start(server.run)
            async with AsyncExitStack() as clients:
                yield Rig(server, broker, clients)
            serving.cancel_scope.cancel()
        statistics = server.statistics().listeners[0]
        assert statistics.active == 0
        if counts_apis:
            assert sum(api.requests for api in statistics.apis.values()) == statistics.traffic.requests
            assert sum(api.answers for api in statistics.apis.values()) <= statistics.traffic.requests
        assert statistics.opened == sum(statistics.closed.values())
        assert not server.listeners["test"].connections
        nursery.cancel_scope.cancel()
