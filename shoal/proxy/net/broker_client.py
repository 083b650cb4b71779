"""A connection of Shoal's own to a broker: one request at a time, whole frames."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from trio.lowlevel import wait_readable

from shoal.protocol.schema.headers import SIZE_BYTES, peek_correlation_id, read_request_prefix, read_size
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.net.connect import connect
from shoal.proxy.net.transport import PeerLost, SendSide, peer_has_left

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Sequence

    from shoal.proxy.config.settings import Address, Limits

__all__ = ["BrokerClient", "open_client"]

_RECEIVE = 64 * 1024


class BrokerClient:
    """Connects at the first request, and at the first one after `close`; never unasked: a login would be lost."""

    def __init__(self, connect: Callable[[], Awaitable[socket.socket]], limits: Limits) -> None:
        self._connect = connect
        self._limit = limits.held_response_bytes
        self._sock: socket.socket | None = None

    @property
    def is_lost(self) -> bool:
        """The broker has closed the connection."""
        return self._sock is not None and peer_has_left(self._sock)

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
        self._sock = None

    async def exchange(self, request: bytes) -> bytes:
        """Returns the answer frame. After an error or a cancellation, only `close` may follow.

        Raises UpstreamUnreachable; PeerLost or RemoteProtocolError: whether the broker handled the request is unknown.
        """
        if self._sock is None:
            self._sock = await self._connect()
        sock, answer = self._sock, bytearray()
        await SendSide(sock).send_all([request])
        await _receive(sock, answer, SIZE_BYTES)
        (size,) = read_size(answer)
        if not 4 <= size <= self._limit:
            raise RemoteProtocolError(f"an answer of {size} bytes")
        await _receive(sock, answer, 4 + size)
        if len(answer) > 4 + size:
            raise RemoteProtocolError(f"{len(answer) - 4 - size} bytes after an answer, without a request in flight")
        due, answered = read_request_prefix(request)[3], peek_correlation_id(answer)
        if answered != due:
            raise RemoteProtocolError(f"an answer of {size} bytes to {answered} where {due} was due")
        return bytes(answer)


async def _receive(sock: socket.socket, answer: bytearray, size: int) -> None:
    """Read until `answer` has at least `size` bytes."""
    while len(answer) < size:
        await wait_readable(sock)
        try:
            data = sock.recv(_RECEIVE)
        except BlockingIOError:
            continue
        except OSError as error:
            raise PeerLost(sock, error) from error
        if not data:
            raise PeerLost(sock, ConnectionResetError("the broker closed the connection"))
        answer += data


def open_client(addresses: Sequence[Address], limits: Limits) -> closing[BrokerClient]:
    return closing(BrokerClient(partial(connect, addresses, limits), limits))
