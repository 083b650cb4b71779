"""TLS handshakes on both sides: a connected socket -> a `TlsTransport`.

OpenSSL computes, this module waits. A handshake has no deadline of its own: callers have one for everything that must
happen before the first request.
"""

from __future__ import annotations

import ssl
import sys
from collections import OrderedDict
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import trio
from trio.lowlevel import wait_readable, wait_writable

from shoal.proxy.config.security import ListenerTls
from shoal.proxy.net.tls.explain import FIRST_BYTES
from shoal.proxy.net.tls.shown import shown_certificate
from shoal.proxy.net.tls.transport import CIPHERTEXT, TlsTransport

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Iterator

    from shoal.proxy.net.tls.certificates import Certificate
    from shoal.proxy.net.tls.contexts import TlsContext

__all__ = ["HandshakeFailed", "Sessions", "accept_tls", "connect_tls", "note_asked_name", "principal_of"]

_MOST_SESSIONS = 1000
_MOST_AT_ONCE = 16 * 1024  # OpenSSL's memory buffers keep the size that they once had
_SILENCE_SECONDS = 0.8  # a broker that sends no byte for this long after our hello is worth a look


class HandshakeFailed(OSError):
    """`cause` is OpenSSL's or the kernel's error, `received` the first bytes that the peer sent."""

    def __init__(self, cause: OSError, received: bytes, tls: ssl.SSLObject) -> None:
        super().__init__(cause.errno, f"TLS handshake failed: {cause.strerror or cause}")
        self.cause = cause
        self.received = received
        self._tls = tls

    @property
    def asked_name(self) -> str | None:
        """The name that a client asked for."""
        name: str | None = getattr(self._tls, "asked_name", None)
        return name

    def shown(self) -> Certificate | None:
        """The certificate that a client has shown."""
        return shown_certificate(self._tls)


class Sessions:
    """The last TLS session with each peer, to be resumed by the next connection to it.

    A session belongs to its context: after a reload there is a new one, with new CAs, and the first handshake is whole.
    In TLS 1.3 a session exists only after the first bytes of the broker: so it is taken as late as possible.
    """

    def __init__(self) -> None:
        self._open: WeakValueDictionary[str, TlsTransport] = WeakValueDictionary()  # the latest connection
        self._kept: OrderedDict[str, ssl.SSLSession] = OrderedDict()

    def opened(self, peer: str, transport: TlsTransport) -> None:
        self._open[peer] = transport

    def closed(self, peer: str, transport: TlsTransport) -> None:
        session = transport.tls.session
        if session is not None:
            self._kept[peer] = session
            self._kept.move_to_end(peer)
            while len(self._kept) > _MOST_SESSIONS:
                self._kept.popitem(last=False)

    def of(self, peer: str) -> ssl.SSLSession | None:
        latest = self._open.get(peer)
        session = latest.tls.session if latest is not None else None
        return session or self._kept.get(peer)


async def connect_tls(
    sock: socket.socket,
    context: ssl.SSLContext,
    server_name: str,
    peer: str,
    sessions: Sessions,
    when_silent: Callable[[], Awaitable[None]] | None = None,
) -> TlsTransport:
    """As the client of a broker. `peer` is its address. Raises HandshakeFailed; the socket remains open.

    `when_silent` is called if the broker does not answer the hello soon; its OSError ends the handshake.
    """
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=server_name)
    session = sessions.of(peer)
    if session is not None:
        with suppress(ValueError):  # it is of the context before a reload
            tls.session = session
    transport = await _shake_hands(
        sock, tls, incoming, outgoing, lambda transport: sessions.closed(peer, transport), when_silent
    )
    sessions.opened(peer, transport)
    return transport


def note_asked_name(context: ssl.SSLContext, is_known: Callable[[str | None], bool] = lambda _: True) -> None:
    """Connections of this context know the name that the client asked for. An unknown one is answered with an alert."""

    def asked(tls: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> int | None:
        tls.asked_name = name  # type: ignore[union-attr]
        return None if is_known(name) else ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    context.sni_callback = asked


def principal_of(transport: TlsTransport, tls: TlsContext) -> str | None:
    """The name in the client's certificate, as Kafka's brokers give it by default, or only its common name.

    Raises ValueError.
    """
    der = transport.tls.getpeercert(binary_form=True)
    if der is None:
        return None
    from shoal.proxy.net.tls.pem import common_name, read_certificate

    assert isinstance(tls.settings, ListenerTls)
    return common_name(der) if tls.settings.principal == "common-name" else read_certificate(der).subject


async def accept_tls(sock: socket.socket, context: ssl.SSLContext) -> TlsTransport:
    """As the server of a client. Raises HandshakeFailed; the socket remains open."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_side=True)
    return await _shake_hands(sock, tls, incoming, outgoing, lambda _: None)


async def _shake_hands(
    sock: socket.socket,
    tls: ssl.SSLObject,
    incoming: ssl.MemoryBIO,
    outgoing: ssl.MemoryBIO,
    closed: Callable[[TlsTransport], None],
    when_silent: Callable[[], Awaitable[None]] | None = None,
) -> TlsTransport:
    received = b""
    try:
        while not _is_done(tls, sock, outgoing):
            await _send(sock, outgoing)
            if when_silent is not None and not received:
                await _first_byte(sock, when_silent)
            size = await _receive(sock)
            if len(received) < FIRST_BYTES:
                received += bytes(CIPHERTEXT[: min(size, FIRST_BYTES - len(received))])
            incoming.write(CIPHERTEXT[:size])
        await _send(sock, outgoing)
    except OSError as error:
        raise HandshakeFailed(error, received, tls) from error
    return TlsTransport(sock, tls, incoming, outgoing, closed)


def _is_done(tls: ssl.SSLObject, sock: socket.socket, outgoing: ssl.MemoryBIO) -> bool:
    try:
        with _no_words_of_names():
            tls.do_handshake()
    except ssl.SSLWantReadError:
        return False
    except OSError:
        with suppress(OSError):
            sock.send(outgoing.read())  # the alert
        raise
    return True


@contextmanager
def _no_words_of_names() -> Iterator[None]:
    """Python writes to stderr that a name in a hello is not ASCII, with each hello of a stranger."""
    former = sys.unraisablehook
    sys.unraisablehook = lambda found: None if isinstance(found.exc_value, UnicodeDecodeError) else former(found)
    try:
        yield
    finally:
        sys.unraisablehook = former


async def _send(sock: socket.socket, outgoing: ssl.MemoryBIO) -> None:
    unsent = outgoing.read()
    while unsent:
        try:
            unsent = unsent[sock.send(unsent) :]
        except BlockingIOError:
            await wait_writable(sock.fileno())


async def _first_byte(sock: socket.socket, when_silent: Callable[[], Awaitable[None]]) -> None:
    with trio.move_on_after(_SILENCE_SECONDS) as waiting:
        await wait_readable(sock.fileno())
    if waiting.cancelled_caught:
        await when_silent()


async def _receive(sock: socket.socket) -> int:
    """-> how many bytes are in `CIPHERTEXT`, at least one."""
    while True:
        await wait_readable(sock.fileno())
        try:
            size = sock.recv_into(CIPHERTEXT[:_MOST_AT_ONCE])
        except BlockingIOError:
            continue
        if not size:
            raise ConnectionResetError("the peer closed the connection during the TLS handshake")
        return size
