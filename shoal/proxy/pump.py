"""One direction of a connection: bytes in, frames told apart, bytes out.

    shared buffer:  [carry | what recv_into() brought              ]
                     ^pos                       ^stop          ^end
                     passes as it is, by one send   next carry, or a frame that must not pass like that

`scan()` of a subclass looks at the frames between `pos` and `end` and says up to where (`stop`) everything passes as it is:
whole frames, and the first part of a long one, whose `remaining` bytes pass unread later. Where a frame must not pass like
that, `scan()` stops in front of it with an `Interruption`: put other bytes in its place, or hold it whole and hand it over.

Between `recv_into` and the end of the non-blocking send nothing awaits, for the buffer belongs to all pumps. Before a pump
awaits, it copies what it still needs: what a short send left over, the `carry` (an incomplete prefix), or the bytes behind a
held frame. While a pump sends or a held frame is dealt with, it reads nothing: that is the backpressure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from trio.lowlevel import checkpoint, wait_readable

from shoal.proxy.settings import MIB
from shoal.proxy.transport import BUFFER_SIZE, VIEW, Outlet, PeerLost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from shoal.proxy.transport import Buffer, Transport

__all__ = ["Interruption", "Pump"]

# Bytes that a pump may move without giving other tasks a turn: about a millisecond.
_TURN = MIB


class Interruption(NamedTuple):
    """A frame of `size` bytes that does not pass as it is: exactly one of the other fields says what happens to it."""

    size: int
    replacement: Sequence[Buffer] | None
    finish: Callable[[bytearray], Awaitable[None]] | None


class Pump(ABC):
    __slots__ = (
        "_budget",
        "_drained",
        "carry",
        "filling",
        "out",
        "received",
        "remaining",
        "source",
        "source_fd",
        "waiting",
    )

    def __init__(self, source: Transport, out: Outlet) -> None:
        self.source = source
        self.source_fd = source.fileno()
        self.out = out
        self.carry = b""
        self.remaining = 0
        self.received = 0
        self.filling = False  # a held frame is not complete
        self.waiting = False  # has nothing to do until something arrives
        self._drained = True
        self._budget = _TURN

    @property
    def mid_frame(self) -> bool:
        """A frame has begun and has not arrived whole."""
        return bool(self.remaining or self.carry or self.filling)

    def check_whole(self) -> None:
        """The source has closed: it may not do that in the middle of a frame."""
        if self.mid_frame:
            raise PeerLost(self.source, ConnectionResetError("closed in the middle of a frame"))

    @abstractmethod
    async def run(self) -> None:
        """Until the source closes. Raises RemoteProtocolError and PeerLost."""

    @abstractmethod
    def scan(self, view: memoryview, pos: int, end: int) -> tuple[int, Interruption | None]:
        """-> stop, and why. Synchronous; updates `remaining`. Raises RemoteProtocolError."""

    async def receive(self) -> int:
        """Fill the shared buffer with the carry and with what has arrived; -> where that ends, 0 when the peer has closed."""
        start = len(self.carry)
        view = VIEW[start:] if start else VIEW
        size = -1
        while size < 0:
            self.waiting = True
            if self._drained:
                await wait_readable(self.source_fd)
                self._budget = _TURN
            elif self._budget < 0:
                await checkpoint()
                self._budget = _TURN
            self.waiting = False
            size = self._receive_into(view)
        if start and size:
            VIEW[:start] = self.carry
            self.carry = b""
        return start + size if size else 0

    def _receive_into(self, view: memoryview) -> int:
        """-> bytes received, 0 at the end of the stream, -1 when there is nothing yet."""
        try:
            size = self.source.recv_into(view)
        except BlockingIOError:
            self._drained = True
            return -1
        except OSError as error:
            raise PeerLost(self.source, error) from error
        self._drained = size < len(view)
        self._budget -= size
        self.received += size
        return size

    async def forward(self, end: int) -> None:
        """Deal with the first `end` bytes of the shared buffer."""
        view, pos = VIEW, 0
        while True:
            stop, interruption = self.scan(view, pos, end)
            if interruption is None:
                self.carry = bytes(view[stop:end]) if stop < end else b""
                sent = self.out.send_now(view[pos:stop])
                if sent < stop - pos:
                    await self.out.send_all([bytes(view[pos + sent : stop])])
                return
            behind = min(end, stop + interruption.size)
            if interruption.replacement is not None:
                rest = self.out.gather_now([view[pos:stop], *interruption.replacement])
                if not rest:
                    pos = behind
                    continue
                view, tail = memoryview(bytes(view[behind:end])), memoryview(rest)
                await self.out.send_all([tail])
            else:
                view = await self._hold(view, (pos, stop, behind, end), interruption)
            pos, end = 0, len(view)

    async def _pass(self, part: memoryview) -> None:
        sent = self.out.send_now(part)
        if sent < len(part):
            await self.out.send_all([bytes(part[sent:])])

    async def _hold(self, view: memoryview, marks: tuple[int, int, int, int], interruption: Interruption) -> memoryview:
        """Pass what is in front of the frame, complete it, hand it over; -> a copy of what was behind it."""
        pos, stop, behind, end = marks
        frame = bytearray(interruption.size)
        frame[: behind - stop] = view[stop:behind]
        tail = memoryview(bytes(view[behind:end]))
        self.carry, self.filling = b"", True
        if pos < stop:
            await self._pass(view[pos:stop])
        if behind - stop < interruption.size:
            await self._fill(memoryview(frame)[behind - stop :])
        self.filling = False
        assert interruption.finish is not None
        await interruption.finish(frame)
        return tail

    async def _fill(self, missing: memoryview) -> None:
        """Complete a held frame. A peer that closes in the middle of it is lost."""
        while missing:
            if self._drained:
                await wait_readable(self.source_fd)
            elif self._budget < 0:
                await checkpoint()
                self._budget = _TURN
            size = self._receive_into(missing[:BUFFER_SIZE])
            if size == 0:
                return self.check_whole()
            missing = missing[max(size, 0) :]
