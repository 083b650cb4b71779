"""Sockets as the pumps use them, and the one receive buffer that all of them share.

A pump reads into `VIEW` and sends from it without awaiting in between, so one buffer is enough for any number of
connections. With a buffer per connection and direction, 1,000 idle connections would take half a gigabyte. Bytes that
the kernel does not accept are copied before anything awaits.

`Transport` is a pump's interface to a socket, `SocketTransport` that of the others.
"""

from __future__ import annotations

import errno
import math
import socket
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Protocol, overload

from trio.lowlevel import wait_readable, wait_writable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shoal.proxy.config.settings import Limits
    from shoal.proxy.net.splice import SplicePipe

__all__ = [
    "BUFFER_SIZE",
    "VIEW",
    "Buffer",
    "PeerLost",
    "PeerRefused",
    "SendSide",
    "SocketTransport",
    "Transport",
    "after",
    "buffered_by",
    "has_all",
    "heard_ago",
    "make_reset",
    "peer_has_left",
    "plain_socket",
    "round_trip",
    "says_something",
    "silent_for",
    "tune",
    "until_readable",
]

Buffer = bytes | bytearray | memoryview

BUFFER_SIZE = 512 * 1024
VIEW = memoryview(bytearray(BUFFER_SIZE))

_IOV_MAX = 1024  # Linux: more buffers in one sendmsg() are EMSGSIZE
_TCP_ESTABLISHED, _TCP_FIN_WAIT2 = 1, 5  # include/net/tcp_states.h
# struct tcp_info (include/uapi/linux/tcp.h): tcpi_unacked, tcpi_last_data_sent (milliseconds ago), tcpi_notsent_bytes
_SENT, _SENT_AT = Struct("=I16xI96xI"), 24
_HEARD, _HEARD_AT = Struct("=I"), 52  # tcpi_last_data_recv, milliseconds
_MIN_RTT, _MIN_RTT_AT = Struct("=I"), 148  # tcpi_min_rtt, microseconds
_LINGER = Struct("ii")  # l_onoff, l_linger: socket(7)


class Transport(Protocol):
    """Non-blocking: `BlockingIOError` if it would have to wait, another `OSError` if the peer is lost."""

    def fileno(self) -> int: ...
    def recv_into(self, buffer: memoryview, /) -> int: ...
    def send(self, data: Buffer, /) -> int: ...
    def sendmsg(self, buffers: Iterable[Buffer], /) -> int: ...
    def shutdown(self, how: int, /) -> None: ...
    def close(self) -> None: ...


class SocketTransport(Transport, Protocol):
    """A transport to a peer. A plain non-blocking `socket.socket` has this interface."""

    def recv(self, size: int, flags: int, /) -> bytes: ...
    @overload
    def getsockopt(self, level: int, option: int, /) -> int: ...
    @overload
    def getsockopt(self, level: int, option: int, length: int, /) -> bytes: ...
    def setsockopt(self, level: int, option: int, value: int | bytes, /) -> None: ...


class PeerRefused(OSError):
    """The peer has ended the connection with a reason, as in a TLS alert; `strerror` has the words."""


class PeerLost(Exception):
    """A peer reset its connection, or is unreachable. `side` is the socket."""

    def __init__(self, side: Transport, error: OSError) -> None:
        super().__init__(error.strerror or str(error))
        self.side = side
        self.is_refusal = isinstance(error, PeerRefused)
        self.is_reset = error.errno in (errno.ECONNRESET, errno.EPIPE)


def tune(sock: socket.socket, limits: Limits) -> None:
    """Non-blocking, no Nagle, keepalive. Buffer sizes are not set: fixed sizes would end the kernel's autotuning."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, limits.keepalive_idle)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, limits.keepalive_interval)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, limits.keepalive_count)


def peer_has_left(transport: SocketTransport) -> bool:
    """True if the peer has closed or reset the connection, even if its earlier bytes are not all read (Linux)."""
    return transport.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _TCP_ESTABLISHED


def has_all(transport: SocketTransport) -> bool:
    """True if the peer's kernel has all bytes and the FIN of this side, and the peer has yet to close (Linux)."""
    return transport.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_FIN_WAIT2


def silent_for(transport: SocketTransport) -> float:
    """Seconds since it has sent something; 0 while the peer's kernel does not have all, or where that is not known."""
    info = transport.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SENT_AT + _SENT.size)
    if len(info) < _SENT_AT + _SENT.size:
        return 0.0
    unacknowledged, milliseconds, unsent = _SENT.unpack_from(info, _SENT_AT)
    return 0.0 if unacknowledged or unsent else milliseconds / 1000


def heard_ago(transport: SocketTransport) -> float:
    """Seconds since the peer has sent something (Linux)."""
    info = transport.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _HEARD_AT + _HEARD.size)
    milliseconds: int = _HEARD.unpack_from(info, _HEARD_AT)[0]
    return milliseconds / 1000


def round_trip(transport: SocketTransport) -> float:
    """Seconds to the peer's kernel and back: the shortest that ours has seen lately (Linux 4.9); inf: not known."""
    info = transport.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _MIN_RTT_AT + _MIN_RTT.size)
    if len(info) < _MIN_RTT_AT + _MIN_RTT.size:
        return math.inf
    microseconds: int = _MIN_RTT.unpack_from(info, _MIN_RTT_AT)[0]
    return microseconds / 1e6 or math.inf


def make_reset(transport: SocketTransport, *, undo: bool = False) -> None:
    """Make the close a reset, not a FIN: unsent bytes, and bytes that the peer has not read, are discarded.

    What a listening socket accepts inherits this.
    """
    with suppress(OSError):  # already closed
        transport.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER.pack(not undo, 0))


def buffered_by(transport: Transport) -> Callable[[], bool] | None:
    """What says whether `recv_into` may return something although the socket is not readable; None: it never does."""
    buffered: Callable[[], bool] | None = getattr(transport, "buffered", None)
    return buffered


def plain_socket(transport: Transport) -> socket.socket | None:
    """The socket whose bytes are the peer's, also behind a tap; None with TLS."""
    found = getattr(transport, "inner", transport)
    return found if type(found) is socket.socket else None


async def until_readable(transport: Transport) -> None:
    """Wait until `recv_into` may return something."""
    buffered = buffered_by(transport)
    if buffered is None or not buffered():
        await wait_readable(transport.fileno())


async def says_something(transport: SocketTransport) -> bool:
    """Wait for the first byte. False: the peer has closed or reset the connection."""
    while True:
        try:
            return bool(transport.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            await until_readable(transport)
        except OSError:
            return False


class SendSide:
    """The sending side of a socket. One task at a time may send; every method raises `PeerLost`."""

    __slots__ = ("_tolerant", "blocked", "discarding", "fd", "sent", "transport")

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.fd = transport.fileno()
        self.sent = 0
        self.blocked = False  # waits for the peer to read
        self._tolerant = False
        self.discarding = False  # the peer is lost

    def tolerate_loss(self, tolerant: bool) -> None:
        """While tolerant, a lost peer is not an error: later bytes to it are dropped."""
        self._tolerant = tolerant

    def send_now(self, data: Buffer) -> int:
        """-> bytes of `data` that the kernel accepted at once; 0: it must wait."""
        if self.discarding:
            return len(data)
        try:
            sent = self.transport.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._lost(error)
            return len(data)
        self.sent += sent
        return sent

    def splice_now(self, pipe: SplicePipe) -> bytes:
        """Send what the pipe holds, as far as the kernel accepts it at once; -> a copy of the rest."""
        size = pipe.held
        if not self.discarding:
            try:
                pipe.give(self.fd)
            except BlockingIOError:
                pass
            except OSError as error:
                pipe.rest()
                self._lost(error)
                return b""
        self.sent += size - pipe.held
        rest = pipe.rest()
        return b"" if self.discarding else rest

    def gather_now(self, buffers: Sequence[Buffer]) -> bytes:
        """Send what the kernel accepts at once; -> a copy of the rest."""
        return b"".join(self.begin(buffers))

    def begin(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        """Send what the kernel accepts at once; -> the rest, not copied."""
        if self.discarding:
            return ()
        try:
            sent = self.transport.sendmsg(buffers[:_IOV_MAX])
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._lost(error)
            return ()
        self.sent += sent
        return after(buffers, sent)

    async def send_all(self, buffers: Sequence[Buffer]) -> None:
        """Send `buffers`, which must not be parts of the shared buffer. A checkpoint only when the kernel must wait."""
        rest = [memoryview(buffer) for buffer in buffers if len(buffer)]
        while rest and not self.discarding:
            try:
                sent = self.transport.sendmsg(rest[:_IOV_MAX])
            except BlockingIOError:
                self.blocked = True
                await wait_writable(self.fd)
                self.blocked = False
            except OSError as error:
                self._lost(error)
            else:
                self.sent += sent
                rest = after(rest, sent)

    def _lost(self, error: OSError) -> None:
        if not self._tolerant:
            raise PeerLost(self.transport, error) from error
        self.discarding = True


def after(buffers: Sequence[Buffer], sent: int) -> list[memoryview]:
    """-> what is left of the buffers when so many bytes are sent."""
    rest = []
    for buffer in buffers:
        if sent >= len(buffer):
            sent -= len(buffer)
        else:
            rest.append(memoryview(buffer)[sent:])
            sent = 0
    return rest
