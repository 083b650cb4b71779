"""A connection of Shoal's own to a broker: one request, one answer, whole frames."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.net.connect import connect
from shoal.proxy.net.transport import PeerLost, SendSide

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Sequence

    from shoal.proxy.config.settings import Address, Limits

__all__ = ["BrokerLink", "LinkLost", "open_link"]


class LinkLost(Exception):
    """The broker closed or reset the connection before its answer was whole."""


class BrokerLink:
    def __init__(self, sock: socket.socket, limits: Limits) -> None:
        self._sock = sock
        self._out = SendSide(sock)
        self._limit = limits.held_response_bytes

    async def exchange(self, frame: bytes) -> bytes:
        """The answer to a request. Raises LinkLost, or RemoteProtocolError when its size cannot be one."""
        try:
            await self._out.send_all([frame])
            size = int.from_bytes(await self._receive(4), "big", signed=True)
            if not 4 <= size <= self._limit:
                raise RemoteProtocolError(f"an answer of {size} bytes")
            return size.to_bytes(4, "big") + await self._receive(size)
        except (PeerLost, OSError) as error:
            raise LinkLost(str(error)) from error

    async def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            await trio.lowlevel.wait_readable(self._sock)
            piece = self._sock.recv(min(size - len(data), 1 << 16))
            if not piece:
                raise LinkLost("the broker closed the connection: does it want SASL or TLS?")
            data += piece
        return bytes(data)


@asynccontextmanager
async def open_link(addresses: Sequence[Address], limits: Limits) -> AsyncIterator[BrokerLink]:
    """Raises UpstreamUnreachable."""
    with await connect(addresses, limits) as sock:
        yield BrokerLink(sock, limits)
