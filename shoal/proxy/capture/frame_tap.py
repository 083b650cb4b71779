"""Splits the bytes of a client into frames for the raw capture.

A `TappedClient` is the client's transport, so pumps and its other users do not know the tap; a connection without
capture has no such object and pays nothing. Received bytes, and sent bytes that the kernel took, are copied
frame by frame. Unwritten frames have a memory budget: without room, only a frame's header is kept, so that readers can
still match answers and requests. A connection with unreadable frame boundaries is no longer captured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.protocol.capture.frames.pcapng import CapturedFrame, Sender
from shoal.proxy.net.transport import buffered_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shoal.proxy.net.transport import Buffer, SocketTransport

__all__ = ["LOST", "FrameTap", "Tap", "TappedClient"]

LOST: Final = "lost: the capture was behind"
_SIZE: Final = 4
_HEAD: Final = 512
"""Bytes kept of a frame without room: its header, including almost every client id."""


class Tap:
    """Both directions of a connection. `gone` is called at its end, with the sizes of incomplete frames."""

    __slots__ = ("_clock", "_gone", "answers", "requests")

    def __init__(
        self,
        make: Callable[[Sender], FrameTap],
        clock: Callable[[], int],
        gone: Callable[[list[int]], None],
    ) -> None:
        self._clock = clock
        self.requests, self.answers = make(Sender.CLIENT), make(Sender.BROKER)
        self._gone = gone

    def gone(self) -> None:
        """The connection has closed."""
        self._gone([half.claimed for half in (self.requests, self.answers) if half.claimed is not None])

    def received(self, data: memoryview) -> None:
        self.requests.feed(data, self._clock())

    def sent(self, buffers: Iterable[Buffer], size: int) -> None:
        """The first `size` bytes of these."""
        now = self._clock()
        for buffer in buffers:
            if size <= 0:
                return
            self.answers.feed(memoryview(buffer)[:size], now)
            size -= len(buffer)


class FrameTap:
    """One direction: bytes in any pieces -> frames. `claim` requests room; `put` takes a frame, False if there is no
    room."""

    __slots__ = ("_claim", "_frame", "_is_kept", "_limit", "_missing", "_put", "_template", "claimed", "given_up")

    def __init__(
        self, template: CapturedFrame, limit: int, claim: Callable[[int], bool], put: Callable[[CapturedFrame], bool]
    ) -> None:
        self._template = template
        self._limit = limit
        self._claim = claim
        self._put = put
        self._frame = bytearray()
        self._missing = 0  # bytes of the current frame
        self._is_kept = False
        self.claimed: int | None = None  # for the current frame
        self.given_up = False

    def feed(self, data: memoryview, time_ns: int) -> None:
        pos, end = 0, len(data)
        while pos < end and not self.given_up:
            if self._missing:
                pos = self._body(data, pos, time_ns)
            else:
                pos = self._whole(data, pos, time_ns) or self._size(data, pos, time_ns)

    def _whole(self, data: memoryview, pos: int, time_ns: int) -> int:
        """The fast case: a complete frame with room. 0: not this case."""
        if self._frame or len(data) - pos < _SIZE:
            return 0
        size = int.from_bytes(data[pos : pos + _SIZE], "big", signed=True)
        behind = pos + _SIZE + size
        if not 0 <= size <= self._limit or behind > len(data) or not self._claim(size):
            return 0
        _, proxy, connection, sender, _, _, node = self._template
        self.given_up = not self._put(
            CapturedFrame(time_ns, proxy, connection, sender, bytes(data[pos:behind]), None, node)
        )
        return behind

    def _size(self, data: memoryview, pos: int, time_ns: int) -> int:
        behind = min(len(data), pos + _SIZE - len(self._frame))
        self._frame += data[pos:behind]
        if len(self._frame) == _SIZE:
            self._missing = int.from_bytes(self._frame, "big", signed=True)
            if not 0 <= self._missing <= self._limit:
                self.given_up = True  # and the proxy ends the connection
                return behind
            self._is_kept = self._claim(self._missing)
            self.claimed = self._missing if self._is_kept else None
            if not self._missing:
                self._end(time_ns)
        return behind

    def _body(self, data: memoryview, pos: int, time_ns: int) -> int:
        behind = min(len(data), pos + self._missing)
        wanted = behind if self._is_kept else min(behind, pos + max(_HEAD - len(self._frame), 0))
        self._frame += data[pos:wanted]
        self._missing -= behind - pos
        if not self._missing:
            self._end(time_ns)
        return behind

    def _end(self, time_ns: int) -> None:
        withheld = None if self._is_kept else LOST
        captured = self._template._replace(time_ns=time_ns, frame=bytes(self._frame), withheld=withheld)
        self._frame.clear()
        self.claimed = None
        self.given_up = not self._put(captured)


class TappedClient:
    """A client's `Transport`, with a tap."""

    def __init__(self, inner: SocketTransport, tap: Tap) -> None:
        self.fileno, self.shutdown = inner.fileno, inner.shutdown
        self.recv = inner.recv  # to look ahead
        self.buffered = buffered_by(inner)
        self.getsockopt, self.setsockopt = inner.getsockopt, inner.setsockopt
        self._inner = inner
        self._tap: Tap | None = tap

    def recv_into(self, buffer: memoryview, /) -> int:
        size = self._inner.recv_into(buffer)
        if self._tap is not None:
            self._tap.received(buffer[:size])
        return size

    def send(self, data: Buffer, /) -> int:
        size = self._inner.send(data)
        if self._tap is not None:
            self._tap.sent((data,), size)
        return size

    def sendmsg(self, buffers: Iterable[Buffer], /) -> int:
        given = list(buffers)
        size = self._inner.sendmsg(given)
        if self._tap is not None:
            self._tap.sent(given, size)
        return size

    def close(self) -> None:
        tap, self._tap = self._tap, None
        if tap is not None:
            tap.gone()
        self._inner.close()
