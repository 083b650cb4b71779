"""A TCP relay between two processes that can be cut, slowed down and frozen.

The process behind it advertises its own address in 127.0.0.0/8 (all loopback on Linux); the relay listens there on the
same port and forwards to 127.0.0.1. It does not parse bytes, so a cut hits the middle of frames.

    cut       every connection is reset, and new ones are refused by a reset until the fault is over
    slow      a limit of bytes per second in each direction of each connection
    flapping  slow, and every connection is reset repeatedly: answers are lost to requests that were executed
    frozen    half open: nothing moves and no side is notified; new connections are accepted and get no bytes.
              Afterwards the frozen connections are `dropped` without notice to the peer (a firewall that has forgotten
              them), or continue
"""

from __future__ import annotations

import socket
import struct
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

_CHUNK = 32 * 1024
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close is a reset
_GONE = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


@dataclass(slots=True)
class Link:
    """One kind of connection (such as Shoal to the brokers of B). Overlapping faults are counted."""

    name: str
    cuts: int = 0
    freezes: int = 0
    rates: list[float] = field(default_factory=list)
    connections: set[trio.CancelScope] = field(default_factory=set)
    forwarded: int = 0
    _thawed: trio.Event = field(default_factory=trio.Event)

    async def cut(self, seconds: float) -> None:
        self.cuts += 1
        try:
            self._end_all()
            await trio.sleep(seconds)
        finally:
            self.cuts -= 1

    async def slow(self, seconds: float, rate: float) -> None:
        self.rates.append(rate)
        try:
            await trio.sleep(seconds)
        finally:
            self.rates.remove(rate)

    async def freeze(self, seconds: float, *, drop: bool) -> None:
        if not self.freezes:
            self._thawed = trio.Event()
        self.freezes += 1
        try:
            await trio.sleep(seconds)
        finally:
            self.freezes -= 1
            if drop:
                self._end_all()
            if not self.freezes:
                self._thawed.set()

    async def flap(self, seconds: float, every: float, rate: float) -> None:
        """Slow, so that bytes are always in transit, and cut repeatedly."""
        self.rates.append(rate)
        try:
            with trio.move_on_after(seconds):
                while True:
                    await trio.sleep(every)
                    self._end_all()
        finally:
            self.rates.remove(rate)

    def _end_all(self) -> None:
        for scope in list(self.connections):
            scope.cancel()

    async def pump(self, source: trio.SocketStream, sink: trio.SocketStream) -> None:
        while data := await source.receive_some(_CHUNK):
            while self.freezes:
                await self._thawed.wait()
            if self.rates:
                await trio.sleep(len(data) / min(self.rates))
            self.forwarded += len(data)
            await sink.send_all(data)
        await sink.send_eof()

    async def serve(self, port: int, client: trio.SocketStream) -> None:
        upstream: trio.SocketStream | None = None
        with trio.CancelScope() as scope:
            self.connections.add(scope)
            try:
                if self.cuts:
                    scope.cancel()
                while self.freezes:
                    await self._thawed.wait()
                with suppress(*_GONE):
                    upstream = await trio.open_tcp_stream("127.0.0.1", port)
                if upstream is not None:
                    await self._both(client, upstream)
            finally:
                self.connections.discard(scope)
                for stream in filter(None, (client, upstream)):
                    if scope.cancel_called or upstream is None:
                        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    with trio.CancelScope(shield=True), suppress(*_GONE):
                        await trio.aclose_forcefully(stream)

    async def _both(self, client: trio.SocketStream, upstream: trio.SocketStream) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.pump, client, upstream)
                nursery.start_soon(self.pump, upstream, client)
        except* _GONE:
            pass


@asynccontextmanager
async def relaying(links: Iterable[tuple[Link, str, Iterable[int]]]) -> AsyncIterator[None]:
    """Each (link, host, ports) listens on host:port for each port while the block runs."""
    async with trio.open_nursery() as nursery:
        for link, host, ports in links:
            for port in ports:
                await nursery.start(partial(trio.serve_tcp, partial(link.serve, port), port, host=host))
        try:
            yield
        finally:
            nursery.cancel_scope.cancel()
