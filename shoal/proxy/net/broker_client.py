"""A connection of Shoal's own to a broker: one request at a time, whole frames."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import trio

from shoal.protocol.schema.headers import SIZE_BYTES, peek_correlation_id, read_request_prefix, read_size
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.framing import Sender, check_frame_size
from shoal.proxy.net.transport import VIEW, PeerLost, SendSide, peer_has_left, until_readable
from shoal.proxy.net.upstream import LoginFailed, UpstreamRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from shoal.proxy.config.settings import Address, Limits
    from shoal.proxy.net.transport import SocketTransport
    from shoal.proxy.net.upstream import BrokerConnection, Session, Upstream

__all__ = ["BrokerClient", "open_client"]


class BrokerClient:
    """Connects at the first request, and at the first one after `close`; never unasked: a login would be lost."""

    def __init__(self, connect: Callable[[], Awaitable[BrokerConnection]], limits: Limits) -> None:
        self._connect = connect
        self._limit = limits.held_response_bytes
        self.address: Address | None = None
        """The broker to which it has connected last."""
        self._transport: SocketTransport | None = None
        self._session: Session | None = None

    @property
    def is_lost(self) -> bool:
        """The broker has closed the connection."""
        return self._transport is not None and peer_has_left(self._transport)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._transport = self._session = None

    async def exchange(self, request: bytes) -> bytes:
        """Returns the answer frame. If the session ends (KIP-368), Shoal logs in again before the request.

        After an error or a cancellation, only `close` may follow. Raises UpstreamUnreachable; PeerLost or
        RemoteProtocolError: whether the broker handled the request is unknown.
        """
        if self._transport is None:
            self._transport, self.address, self._session = await self._connect()
        elif self._session is not None and trio.current_time() >= self._session.due_at:
            try:
                await self._session.renew(partial(self._exchange, self._transport))
            except LoginFailed as error:
                raise UpstreamRefused(f"the session has ended, and Shoal cannot log in again: {error}") from error
        return await self._exchange(self._transport, request)

    async def _exchange(self, transport: SocketTransport, request: bytes) -> bytes:
        answer = bytearray()
        await SendSide(transport).send_all([request])
        await _receive(transport, answer, SIZE_BYTES)
        (size,) = read_size(answer)
        check_frame_size(size, answer, self._limit, Sender.BROKER)
        if size < 4:  # its correlation id
            raise RemoteProtocolError(f"an answer of {size} bytes")
        await _receive(transport, answer, 4 + size)
        if len(answer) > 4 + size:
            raise RemoteProtocolError(f"{len(answer) - 4 - size} bytes after an answer, without a request in flight")
        due, answered = read_request_prefix(request)[3], peek_correlation_id(answer)
        if answered != due:
            raise RemoteProtocolError(f"an answer of {size} bytes to {answered} where {due} was due")
        return bytes(answer)


async def _receive(transport: SocketTransport, answer: bytearray, size: int) -> None:
    """Read until `answer` has at least `size` bytes."""
    while len(answer) < size:
        await until_readable(transport)
        try:
            received = transport.recv_into(VIEW)
        except BlockingIOError:
            continue
        except OSError as error:
            raise PeerLost(transport, error) from error
        if not received:
            raise PeerLost(transport, ConnectionResetError("the broker closed the connection"))
        answer += VIEW[:received]


def open_client(upstream: Upstream, addresses: Sequence[Address]) -> closing[BrokerClient]:
    return closing(BrokerClient(lambda: upstream.connect(addresses), upstream.limits))
