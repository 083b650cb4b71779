"""A lane's own connection to a broker: one request at a time."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from trio.lowlevel import wait_readable

from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.net.transport import PeerLost, SendSide, peer_has_left

if TYPE_CHECKING:
    import socket

    from shoal.proxy.cluster.bound_port import BoundPort
    from shoal.proxy.connection.connection import Connection

__all__ = ["Carrier"]

_PREFIX = Struct(
    ">"
    "i"  # size of what follows
    "i"  # CorrelationId
)
_SIZE_BYTES = 4
_RECEIVE = 64 * 1024


class Carrier:
    """Connects when needed. A broker may close it while no request is in flight."""

    def __init__(self, bound_port: BoundPort) -> None:
        self._door = bound_port
        self._sock: socket.socket | None = None
        self._outlet: SendSide | None = None
        # a prover, and whether this connection leads to its broker (sets.py)
        self.introduced: tuple[Connection, bool] | None = None

    @property
    def has_lost_its_broker(self) -> bool:
        return self._sock is not None and peer_has_left(self._sock)

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
        self._sock = self._outlet = self.introduced = None

    async def exchange(self, request: bytes) -> bytes:
        """The same for a request that already has its correlation id."""
        return await self.ask(request, _PREFIX.unpack_from(request, _SIZE_BYTES)[1])

    async def ask(self, request: bytes, correlation_id: int, *, here: bool = False) -> bytes:
        """Returns the answer frame. Raises UpstreamUnreachable; PeerLost or RemoteProtocolError: the outcome is
        unknown.

        `here`: only over the present connection.
        """
        if here and self._sock is not None and self.has_lost_its_broker:
            raise PeerLost(self._sock, ConnectionResetError("the broker closed the connection"))
        sock, outlet = await self._connection()
        await outlet.send_all([request])
        return await self._answer(sock, correlation_id)

    async def _connection(self) -> tuple[socket.socket, SendSide]:
        if self.has_lost_its_broker:
            self.close()
        if self._sock is None or self._outlet is None:
            self._sock, _ = await self._door.connect()
            self._outlet = SendSide(self._sock)
        return self._sock, self._outlet

    async def _answer(self, sock: socket.socket, correlation_id: int) -> bytes:
        received = bytearray()
        end = _PREFIX.size
        while len(received) < end:
            await wait_readable(sock)
            received += _receive(sock)
            if len(received) >= _PREFIX.size:
                end = self._end(received, correlation_id)
        if len(received) > end:
            raise RemoteProtocolError(f"{len(received) - end} bytes after an answer, without a request in flight")
        return bytes(received)

    def _end(self, received: bytearray, correlation_id: int) -> int:
        size, answered = _PREFIX.unpack_from(received)
        limit = self._door.limits.held_response_bytes
        if answered != correlation_id or not _SIZE_BYTES <= size <= limit:
            raise RemoteProtocolError(f"an answer of {size} bytes to {answered} where {correlation_id} was due")
        return _SIZE_BYTES + int(size)


def _receive(sock: socket.socket) -> bytes:
    try:
        data = sock.recv(_RECEIVE)
    except BlockingIOError:
        return b""
    except OSError as error:
        raise PeerLost(sock, error) from error
    if not data:
        raise PeerLost(sock, ConnectionResetError("the broker closed the connection"))
    return data
