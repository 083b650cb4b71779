"""One direction of a connection: bytes in, frames told apart, bytes out.

    shared buffer:  [carry | what recv_into() brought              ]
                     ^pos                       ^stop          ^end
                     passes as it is, by one send   next carry, or a frame that must not pass like that

`scan()` of a subclass looks at the frames between `pos` and `end` and says up to where (`stop`) everything passes as it is:
whole frames, and the first part of a long one, whose `remaining` bytes pass unread later. Where a frame must not pass like
that, `scan()` stops in front of it with an `FrameStop`: put other bytes in its place, or hold it whole and hand it over.

All of this is one synchronous `step()`, from `recv_into` to the end of the non-blocking send, for the buffer belongs to all
pumps. Where something has to be awaited (a send that the kernel does not take, a held frame), the step ends with a `Rest`: a
copy of what is still needed. Then the pump's task does what is to be awaited (`turn()`) and goes on with what was behind it.
Meanwhile it reads nothing: that is the backpressure. Most of the time there is no rest, and no task is woken (net/fast_lane.py).

A rest may have nothing but a wait in it, in front of a frame that is then looked at again. A wait for what is there already would
go round for ever, with no other task served. So a pump that stands in front of the same frame again, and has not given way to other
tasks meanwhile, pauses and says so: it is an error in Shoal, and costs one connection some milliseconds instead of the process.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import trio

from shoal.proxy.net.fast_lane import Watch, until
from shoal.proxy.net.transport import BUFFER_SIZE, VIEW, PeerLost, SendSide

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from shoal.proxy.net.transport import Buffer, Transport

__all__ = ["FrameStop", "Pump"]

log = logging.getLogger("shoal.connection")

_PAUSE_SECONDS = 0.01
_COMPLAINT_SECONDS = 60.0
_MOST_IDLE = 2  # waits of no length: what is decided upon a wait may be another wait
_MOST_ROUNDS = 64  # waits of any length: others may be faster, each time


class FrameStop(NamedTuple):
    """A frame of `size` bytes that does not pass as it is: exactly one of the other fields says what happens to it."""

    size: int
    replacement: Sequence[Buffer] | None
    finish: Callable[[bytearray], Awaitable[None]] | None


class Unfinished(NamedTuple):
    """What a step could not do without waiting: send `unsent`, complete and finish the held `frame`, go on with `behind`."""

    unsent: bytes
    frame: bytearray | None
    missing: int  # bytes at the end of `frame`
    finish: Callable[[bytearray], Awaitable[None]] | None
    behind: bytes

    @property
    def is_wait(self) -> bool:
        """Nothing moves by it."""
        return self.frame is not None and not self.frame and not self.unsent


class _Standing:
    """In front of one frame, for more than one wait."""

    __slots__ = ("_idle", "_rounds", "_task", "_turns")

    _silent_until = 0.0  # the same complaint for all connections

    def __init__(self) -> None:
        self._task = trio.lowlevel.current_task()
        self._turns = self._now()
        self._rounds = self._idle = 0

    def _now(self) -> object:
        """How often trio has gone on with this task; something new each time where trio does not say."""
        return getattr(self._task, "_schedule_points", None) or object()

    async def again(self, wait: Unfinished) -> None:
        """After a wait, where the pump still stands."""
        before, self._turns = self._turns, self._now()
        self._rounds += 1
        self._idle = self._idle + 1 if before == self._turns else 0
        if self._idle >= _MOST_IDLE or not self._rounds % _MOST_ROUNDS:
            if self._idle == _MOST_IDLE:
                self._complain(wait)
            await trio.sleep(_PAUSE_SECONDS)
            self._turns = self._now()

    @classmethod
    def _complain(cls, wait: Unfinished) -> None:
        now = time.monotonic()
        if now >= cls._silent_until:
            cls._silent_until = now + _COMPLAINT_SECONDS
            log.error(
                "a connection waits for what is there (%r): this is an error in Shoal, please report it", wait.finish
            )


class Pump(ABC):
    __slots__ = (
        "_missing",
        "_receive_into",
        "_rest",
        "_watch",
        "attention",
        "carry",
        "ended",
        "filling",
        "out",
        "received",
        "remaining",
        "source",
        "waiting",
    )

    def __init__(self, source: Transport, out: SendSide) -> None:
        self.source = source
        self._watch = Watch(source.fileno())
        self._receive_into = source.recv_into
        self.out = out
        self.carry = b""
        self.remaining = 0
        self.received = 0
        self.ended = False  # the source has closed
        self.attention = False  # `run` has to look at something before the next step
        self.filling = False  # a held frame is not complete
        self.waiting = False  # has nothing to do until something arrives
        self._rest: Unfinished | None = None
        self._missing = memoryview(b"")

    @property
    def mid_frame(self) -> bool:
        """A frame has begun and has not arrived whole."""
        return bool(self.remaining or self.carry or self.filling)

    def close(self) -> None:
        """The source is about to be closed."""
        self._watch.close()

    @abstractmethod
    async def run(self) -> None:
        """Until the source closes. Raises RemoteProtocolError and PeerLost."""

    @abstractmethod
    def scan(self, view: memoryview, pos: int, end: int) -> tuple[int, FrameStop | None]:
        """-> stop, and why. Synchronous; updates `remaining`. Raises RemoteProtocolError."""

    async def turn(self) -> None:
        """Wait for bytes and move them until something has to be awaited, and do that; or until `ended` or `attention`."""
        self.waiting = True
        await until(self._watch, self.step)
        self.waiting = False
        standing: _Standing | None = None
        while self._rest is not None:
            rest, self._rest = self._rest, None
            await self._settle(rest)
            view, end = memoryview(rest.behind), len(rest.behind)
            self._rest = self._move(view, 0, end, self.scan(view, 0, end))
            if rest.is_wait and self._rest is not None and self._rest.is_wait and len(self._rest.behind) == end:
                standing = standing or _Standing()
                await standing.again(rest)
            else:
                standing = None
        self.check_end()

    def check_end(self) -> None:
        """A source may not close in the middle of a frame."""
        if self.ended and self.mid_frame:
            raise PeerLost(self.source, ConnectionResetError("closed in the middle of a frame"))

    def step(self) -> bool:
        """Move what has arrived; -> whether that was all. Raises RemoteProtocolError and PeerLost.

        What runs for every small request is written out here rather than called: with cold caches, each function costs.
        """
        start = len(self.carry)
        try:
            end = start + self._receive_into(VIEW[start:] if start else VIEW)
        except BlockingIOError:
            return True
        except OSError as error:
            raise PeerLost(self.source, error) from error
        if end == start:
            self.ended = True
            return False
        self.received += end - start
        if start:
            VIEW[:start] = self.carry
            self.carry = b""
        stop, interruption = self.scan(VIEW, 0, end)
        if interruption is None and stop == end:
            sent = self.out.send_now(VIEW[:end])
            if sent == end:
                return not self.attention
            self._rest = Unfinished(bytes(VIEW[sent:end]), None, 0, None, b"")
        else:
            self._rest = self._move(VIEW, 0, end, (stop, interruption))
        return self._rest is None and not self.attention

    def _move(self, view: memoryview, pos: int, end: int, scanned: tuple[int, FrameStop | None]) -> Unfinished | None:
        """Deal with what is in `view`, as far as that goes without waiting."""
        while True:
            stop, interruption = scanned
            if interruption is None:
                sent = self.out.send_now(view[pos:stop]) if pos < stop else 0
                if pos + sent < stop:
                    return Unfinished(bytes(view[pos + sent : stop]), None, 0, None, bytes(view[stop:end]))
                self.carry = bytes(view[stop:end]) if stop < end else b""
                return None
            behind = min(end, stop + interruption.size)
            if interruption.replacement is None:
                return self._hold(view, (pos, stop, behind, end), interruption)
            if pos < stop or interruption.replacement:
                unsent = self.out.gather_now([view[pos:stop], *interruption.replacement])
                if unsent:
                    return Unfinished(unsent, None, 0, None, bytes(view[behind:end]))
            pos = behind
            scanned = self.scan(view, pos, end)

    def _hold(self, view: memoryview, marks: tuple[int, int, int, int], interruption: FrameStop) -> Unfinished:
        pos, stop, behind, end = marks
        frame = bytearray(interruption.size)
        frame[: behind - stop] = view[stop:behind]
        missing = interruption.size - (behind - stop)
        self.filling = missing > 0
        return Unfinished(bytes(view[pos:stop]), frame, missing, interruption.finish, bytes(view[behind:end]))

    async def _settle(self, rest: Unfinished) -> None:
        if rest.unsent:
            await self.out.send_all([rest.unsent])
        if rest.frame is not None:
            if rest.missing:
                self._missing = memoryview(rest.frame)[-rest.missing :]
                await until(self._watch, self._fill)
                self.filling = bool(self._missing)
                self._missing = memoryview(b"")
                self.check_end()
            assert rest.finish is not None
            await rest.finish(rest.frame)

    def _fill(self) -> bool:
        """A step that completes a held frame."""
        try:
            size = self._receive_into(self._missing[:BUFFER_SIZE])
        except BlockingIOError:
            return True
        except OSError as error:
            raise PeerLost(self.source, error) from error
        self.received += size
        self.ended = not size
        self._missing = self._missing[size:]
        return bool(size and self._missing)
