"""A `Transport` over TLS. The socket stays in our hands: OpenSSL only turns bytes into bytes, and never waits.

    socket ── recv_into ──> shared buffer ──> incoming ── SSL_read  ──> the pump's buffer
    socket <── send ─────── ciphertext   <── outgoing <── SSL_write ─── the pump's bytes

OpenSSL on the descriptor itself (`SSLSocket`) takes the same CPU in both directions. This way one `recv` brings several
records, no read has to write and no write has to read (key updates, tickets), and what a peer sends instead of TLS is
at hand for an error.

Bytes count as sent when their ciphertext is with the kernel. What the kernel does not take at once is kept, and a retry
with the same bytes continues there: `SendSide` retries nothing else. Bytes that are decrypted, or could be, and that no
epoll reports are reported by `buffered`.

An end without close_notify counts as an end, like a FIN: many clients of Kafka send none, and frames have a size.
"""

from __future__ import annotations

import errno
import socket
import ssl
from contextlib import suppress
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING, cast

from shoal.proxy.net.transport import PeerRefused, after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from shoal.proxy.net.transport import Buffer

__all__ = ["CIPHERTEXT", "TlsTransport"]

# OpenSSL's memory buffers keep the size that they once had: 10,000 connections with larger ones would take gigabytes.
# With these, one side of a connection takes 23 KiB when idle, and 86 KiB after it has moved much in both directions.
_PIECE = 32 * 1024  # of plaintext: two records
_TOGETHER = 4  # pieces in one system call: each call wakes the peer, and what it does not take is kept
_MOST_UNSENT = (_TOGETHER + 1) * _PIECE  # and messages of OpenSSL's own behind them
_CIPHERTEXT_SIZE = 128 * 1024
CIPHERTEXT = memoryview(bytearray(_CIPHERTEXT_SIZE))  # shared by all connections: nothing awaits while it is in use
_NOTHING = memoryview(b"")

# In one read. Key updates take much CPU for 27 bytes each, while others wait; session tickets are few.
_MOST_WITHOUT_DATA = 16

_HEADER = Struct(">BxxH")  # of a record: type, version, length
_KINDS = frozenset(range(20, 24))  # change_cipher_spec, alert, handshake, application_data
_LARGEST_RECORD = 16 * 1024 + 2048  # TLS 1.2; in TLS 1.3 they are smaller


class TlsTransport:
    """`tls` has completed its handshake over `sock`. `closed` is called once, before the close."""

    def __init__(
        self,
        sock: socket.socket,
        tls: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        closed: Callable[[TlsTransport], None] = lambda _: None,
    ) -> None:
        self.fileno = sock.fileno
        self.getsockopt = sock.getsockopt
        self.tls = tls
        self.explain: Callable[[ssl.SSLError], str] | None = None  # words for an alert behind the handshake
        self._sock = sock
        self._read = cast("Callable[[int, memoryview], int]", tls.read)
        self._incoming, self._outgoing = incoming, outgoing
        self._unsent = _NOTHING  # ciphertext
        self._owed = 0  # bytes of plaintext in `_unsent`: the next bytes of the caller
        self._ahead = b""  # what `recv` has looked at
        self._records = memoryview(incoming.read())  # ciphertext that OpenSSL has not got yet
        self._more = bool(self._records)  # the last call may have left something
        self._peer_ended = False
        self._error: OSError | None = None  # it came behind bytes that were yet to be taken
        self._said_goodbye = False
        self._when_closed: Callable[[TlsTransport], None] | None = closed

    @property
    def asked_name(self) -> str | None:
        """The server's name in the client's handshake (SNI)."""
        name: str | None = getattr(self.tls, "asked_name", None)
        return name

    def buffered(self) -> bool:
        """Whether `recv_into` may return something although the socket is not readable."""
        return self._more

    # -- receiving -------------------------------------------------------------------------------------------------

    def recv_into(self, buffer: memoryview, /) -> int:
        if self._more:
            size = self._take_rest(buffer) if self._error is None else 0
            if size or self._peer_ended:
                return size
            if self._error is not None:
                raise self._error
            raise BlockingIOError  # the socket has its turn when others have had theirs
        size, room = 0, len(buffer)
        recv_into = self._sock.recv_into
        while size < room:
            kept = len(self._records)
            if kept:
                CIPHERTEXT[:kept] = self._records
            end = min(_CIPHERTEXT_SIZE, kept + max(room - size, _LARGEST_RECORD))
            try:
                arrived = recv_into(CIPHERTEXT[kept:end])
            except BlockingIOError:
                break
            except OSError as error:
                if not size:
                    raise
                self._error, self._more = error, True
                break
            if not arrived:
                return size
            behind = kept + arrived
            taken, got = self._decrypt(CIPHERTEXT[:behind], buffer[size:] if size else buffer)
            self._records = memoryview(bytes(CIPHERTEXT[taken:behind])) if taken < behind else _NOTHING
            size += got
            if behind < end or self._more:
                break
        if not size and self._error is not None:
            raise self._error
        if not size and not self._peer_ended:
            raise BlockingIOError
        return size

    def _take_rest(self, buffer: memoryview) -> int:
        """What an earlier call has left; does not touch the socket."""
        size, room = 0, len(buffer)
        if self._ahead:
            buffer[:1] = self._ahead
            self._ahead, size = b"", 1
        while size < room and not self._peer_ended and self.tls.pending():
            size += self._read(room - size, buffer[size:])
        if size < room and not self._peer_ended:
            taken, got = self._decrypt(self._records, buffer[size:])
            self._records = self._records[taken:]
            size += got
        return size

    def _decrypt(self, wire: memoryview, buffer: memoryview) -> tuple[int, int]:
        """Decrypt whole records. -> bytes of them, and of plaintext. Then `_more` says whether there may be more.

        OpenSSL gets record by record: asked for one that is incomplete, it makes an exception, which takes 4 us.
        """
        pos, end, size, room, without_data = 0, len(wire), 0, len(buffer), 0
        read, write = self._read, self._incoming.write
        self._more = False
        try:
            while end - pos >= _HEADER.size:
                if size == room:
                    self._more = True
                    break
                kind, length = _HEADER.unpack_from(wire, pos)
                behind = pos + _HEADER.size + length
                if behind > end:
                    if kind in _KINDS and length <= _LARGEST_RECORD:
                        break
                    behind = end  # it is not TLS, and OpenSSL says so
                write(wire[pos:behind])
                pos = behind
                try:
                    got = read(room - size, buffer[size:] if size else buffer)
                except ssl.SSLWantReadError:  # a session ticket, a key update
                    without_data += 1
                    if without_data > _MOST_WITHOUT_DATA:
                        raise PeerRefused(errno.ECONNABORTED, "it sends TLS messages, and no data") from None
                    continue
                if not got:  # close_notify
                    self._more = self._peer_ended = True
                    break
                size += got
        except ssl.SSLZeroReturnError:
            self._more = self._peer_ended = True
        except ssl.SSLError as error:
            self._send_control()  # the alert
            self._error = error if self.explain is None else PeerRefused(errno.ECONNABORTED, self.explain(error))
            self._more = True
        except PeerRefused as error:
            self._error, self._more = error, True
        if size == room:
            self._more = True
        if self._outgoing.pending:  # the answer to a key update
            self._send_control()
        return pos, size

    def recv(self, size: int, flags: int, /) -> bytes:
        """Only to look at the first byte: -> it, or nothing at the end."""
        assert (size, flags) == (1, socket.MSG_PEEK)
        if not self._ahead:
            first = memoryview(bytearray(1))
            self._ahead = bytes(first[: self.recv_into(first)])
            self._more = True
        return self._ahead

    # -- sending ---------------------------------------------------------------------------------------------------

    def send(self, data: Buffer, /) -> int:
        try:
            if 0 < len(data) <= _PIECE and not (self._unsent or self._owed):
                return self._send_small(data)
            sent = self._go_on(len(data)) if self._unsent or self._owed else 0
            return sent + self._send(_slices(memoryview(data), sent), sent)
        except ConnectionError as error:
            raise self._why_lost(error) from None

    def sendmsg(self, buffers: Iterable[Buffer], /) -> int:
        buffers = list(buffers)
        total = sum(map(len, buffers))
        if total <= _PIECE:
            return self.send(b"".join(buffers))
        try:
            sent = self._go_on(total) if self._unsent or self._owed else 0
            return sent + self._send(_gathered(buffers, sent), sent)
        except ConnectionError as error:
            raise self._why_lost(error) from None

    def _why_lost(self, error: ConnectionError) -> OSError:
        """A broker that refuses us sends an alert and closes: with bytes of ours unread, it is a reset, which a send
        meets first. What has arrived before is still to be read.
        """
        if self.explain is not None:
            with suppress(OSError):
                self.recv(1, socket.MSG_PEEK)
        return self._error or error

    def _send_small(self, data: Buffer) -> int:
        """As `_send`, for at most one piece: most answers."""
        ciphertext = self._seal(data)
        try:
            taken = self._sock.send(ciphertext)
        except BlockingIOError:
            taken = 0
        if taken < len(ciphertext):
            self._unsent, self._owed = memoryview(ciphertext)[taken:], len(data)
            raise BlockingIOError
        return len(data)

    def _go_on(self, given: int) -> int:
        """Send the ciphertext of earlier calls. -> how many of the `given` bytes that are."""
        if self._unsent:
            self._unsent = self._unsent[self._sock.send(self._unsent) :]
            if self._unsent:
                raise BlockingIOError
        owed, self._owed = self._owed, 0
        if owed > given:
            raise AssertionError(f"{given} bytes where {owed} must be sent again: an error in Shoal")
        return owed

    def _send(self, pieces: Iterable[Buffer], before: int) -> int:
        """-> bytes of the pieces that are sent. BlockingIOError if that is nothing, and nothing was sent before."""
        sent, pieces = 0, iter(pieces)
        while together := list(islice(pieces, _TOGETHER)):
            sealed = list(map(self._seal, together))
            try:
                taken = self._sock.sendmsg(sealed)
            except BlockingIOError:
                taken = 0
            if taken == sum(map(len, sealed)):
                sent += sum(map(len, together))
                continue
            rest = after(sealed, taken)
            done = len(sealed) - len(rest)
            sent += sum(map(len, together[:done]))
            self._unsent, self._owed = memoryview(b"".join(rest)), sum(map(len, together[done:]))
            if not (sent or before):
                raise BlockingIOError
            break
        return sent

    def _seal(self, piece: Buffer) -> bytes:
        try:
            self.tls.write(piece)
        except ssl.SSLError as error:
            raise self._error or error from None  # after an alert OpenSSL only says that the connection has ended
        return self._outgoing.read()

    def _send_control(self) -> None:
        """Send what OpenSSL itself has to say. What the kernel does not take now precedes what is sent next.

        Raises OSError for a peer that demands more and more of it (renegotiations, key updates) and reads nothing.
        """
        self._unsent = memoryview(bytes(self._unsent) + self._outgoing.read())
        with suppress(OSError):
            self._unsent = self._unsent[self._sock.send(self._unsent) :]
        if len(self._unsent) > _MOST_UNSENT:
            raise PeerRefused(errno.ECONNABORTED, "it demands TLS messages, and does not read them")

    # -- the end ---------------------------------------------------------------------------------------------------

    def shutdown(self, how: int, /) -> None:
        self._say_goodbye()
        self._sock.shutdown(how)

    def _say_goodbye(self) -> None:
        """Send close_notify. Not with received bytes that are yet to be read: OpenSSL would lose them."""
        if self._said_goodbye or self._records or self.tls.pending():
            return
        self._said_goodbye = True
        with suppress(ssl.SSLError):  # SSLWantReadError: the peer's own one is not there yet
            self.tls.unwrap()
        if self._outgoing.pending:
            with suppress(PeerRefused):
                self._send_control()

    def setsockopt(self, level: int, option: int, value: int | bytes, /) -> None:
        if (level, option) == (socket.SOL_SOCKET, socket.SO_LINGER):
            self._said_goodbye = True  # the close is to be a reset
        self._sock.setsockopt(level, option, value)

    def close(self) -> None:
        if self._when_closed is not None:
            self._when_closed(self)
            self._when_closed = None
            self._say_goodbye()
        self._sock.close()


def _slices(view: memoryview, start: int) -> Iterator[memoryview]:
    for pos in range(start, len(view), _PIECE):
        yield view[pos : pos + _PIECE]


def _gathered(buffers: Sequence[Buffer], start: int) -> Iterator[Buffer]:
    """All bytes from `start` on, in full pieces; the last one may be smaller. Large buffers are not copied."""
    parts: list[memoryview] = []
    size, skipped = 0, start
    for buffer in buffers:
        view = memoryview(buffer)
        pos = min(skipped, len(view))
        skipped -= pos
        while pos < len(view):
            part = view[pos : pos + _PIECE - size]
            parts.append(part)
            size += len(part)
            pos += len(part)
            if size == _PIECE:
                yield part if len(parts) == 1 else b"".join(parts)
                parts, size = [], 0
    if parts:
        yield parts[0] if len(parts) == 1 else b"".join(parts)
