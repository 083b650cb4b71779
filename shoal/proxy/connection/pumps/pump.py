"""One direction of a connection: bytes in, frames found, bytes out.

    shared buffer:  [carry | what recv_into() brought              ]
                     ^pos                       ^stop          ^end
                     passes unchanged, by one send  next carry, or a frame that must not pass unchanged

A subclass's `scan()` looks at the frames between `pos` and `end` and returns up to where (`stop`) everything passes
unchanged: whole frames, and the first part of a long one, whose `remaining` bytes pass unread later. In front of a
frame that must not pass unchanged, `scan()` stops with a `FrameStop`: replace the frame, or hold it for a callback.

All of this is one synchronous `step()`, from `recv_into` to the end of the non-blocking send, because all pumps share
the buffer. If something must be awaited (a full send buffer in the kernel, a held frame), the step ends with an
`Unfinished`: a copy of the remaining bytes. Then the pump's task awaits it (`turn()`) and continues after it. Meanwhile
the pump does not read, which is the backpressure. Most steps leave nothing, and wake no task (net/fast_lane.py).

An `Unfinished` may be only a wait before a frame, which is then scanned again. If the awaited condition is already
true, such a wait would loop forever and starve all other tasks. So if a pump scans the same frame again without having
yielded to other tasks, it pauses, and logs an error in Shoal: one connection loses some milliseconds, the process
continues.
"""

from __future__ import annotations

import logging
import socket
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import trio
from trio.lowlevel import wait_task_rescheduled

from shoal.proxy.events.logs import event
from shoal.proxy.net.fast_lane import Watch, begin, until
from shoal.proxy.net.splice import shared_pipe
from shoal.proxy.net.transport import BUFFER_SIZE, VIEW, PeerLost, SendSide, buffered_by, plain_socket

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from shoal.proxy.connection.meter import Meter, Sends
    from shoal.proxy.connection.pace import Pace
    from shoal.proxy.events.logs import LogThrottle
    from shoal.proxy.net.splice import SplicePipe
    from shoal.proxy.net.transport import Buffer, Transport

__all__ = ["FrameStop", "Pump"]

log = logging.getLogger("shoal.connection")

_SPLICED = 128 * 1024  # bytes of a frame that must be left: fewer are cheaper to copy
_FIRST = VIEW[: 64 * 1024]  # what is read of a frame behind one that was spliced or filled, as it may be as long
_NOTHING = memoryview(b"")
_PAUSE_SECONDS = 0.01
_COMPLAINT_SECONDS = 60.0
_MOST_IDLE = 2  # waits that did not yield: one wait may follow another
_MOST_ROUNDS = 64  # all waits: other tasks may be faster each time


class FrameStop(NamedTuple):
    """A frame of `size` bytes that does not pass unchanged; exactly one of the other fields is set."""

    size: int
    replacement: Sequence[Buffer] | None
    finish: Callable[[bytearray], Awaitable[None]] | None


class Unfinished(NamedTuple):
    """The rest of a step: send `unsent`, complete and process the held `frame`, continue with `behind`."""

    unsent: bytes
    frame: bytearray | None
    missing: int  # bytes at the end of `frame`
    finish: Callable[[bytearray], Awaitable[None]] | None
    behind: bytes

    @property
    def is_wait(self) -> bool:
        """It moves no bytes."""
        return self.frame is not None and not self.frame and not self.unsent


class _RepeatedWait:
    """Counts the waits before one frame."""

    __slots__ = ("_idle", "_rounds", "_task", "_throttle", "_turns")

    def __init__(self, throttle: LogThrottle) -> None:
        self._throttle = throttle
        self._task = trio.lowlevel.current_task()
        self._turns = self._now()
        self._rounds = self._idle = 0

    def _now(self) -> object:
        """How often trio has scheduled this task; a new object each time if trio does not count it."""
        return getattr(self._task, "_schedule_points", None) or object()

    async def again(self, wait: Unfinished) -> None:
        """After a wait: the pump scans the same frame again."""
        before, self._turns = self._turns, self._now()
        self._rounds += 1
        self._idle = self._idle + 1 if before == self._turns else 0
        if self._idle >= _MOST_IDLE or not self._rounds % _MOST_ROUNDS:
            if self._idle == _MOST_IDLE:
                self._complain(wait)
            await trio.sleep(_PAUSE_SECONDS)
            self._turns = self._now()

    def _complain(self, wait: Unfinished) -> None:
        if self._throttle.is_news("wait-without-reason", _COMPLAINT_SECONDS):
            text = (
                f"a connection waits for what is there ({wait.finish!r}): this is an error in Shoal, please report it"
            )
            log.error("wait-without-reason", extra=event(text))


class Pump(ABC):
    __slots__ = (
        "_awaited",
        "_into",
        "_missing",
        "_pace",
        "_pipe",
        "_receive_into",
        "_rest",
        "_throttle",
        "_watch",
        "carry",
        "ended",
        "filling",
        "meter",
        "must_yield",
        "out",
        "received",
        "remaining",
        "source",
        "waiting",
    )

    def __init__(self, source: Transport, out: SendSide, throttle: LogThrottle) -> None:
        self._throttle = throttle
        self.source = source
        self._watch = Watch(source.fileno(), buffered_by(source))
        self._receive_into = source.recv_into
        self.out: Sends = out
        self._into = VIEW
        self._awaited = 1
        is_plain = type(source) is socket.socket and type(out.transport) is socket.socket  # no TLS, no tap
        self._pipe = shared_pipe() if is_plain else None
        self.meter: Meter | None = None
        self.carry = b""
        self.remaining = 0
        self.received = 0
        self.ended = False  # the source has closed
        self.must_yield = False  # `run` must check something before the next step
        self.filling = False  # a held frame is incomplete
        self.waiting = False  # idle until bytes arrive
        self._pace: Pace | None = None  # limits the rate of reading
        self._rest: Unfinished | None = None
        self._missing = _NOTHING

    @property
    def mid_frame(self) -> bool:
        """A frame is incomplete."""
        return bool(self.remaining or self.carry or self.filling)

    @property
    def unread(self) -> int:
        """Bytes of the incomplete frame that nothing has to look at."""
        return self.remaining

    def passed(self, size: int) -> None:
        """Some of the `unread` bytes went past `scan`."""
        self.remaining -= size

    def give_way(self) -> None:
        """Return to `run` after the current or the next step."""
        self.must_yield = True

    def be_patient(self, seconds: float) -> None:
        """What arrives may wait so long for the steps of others."""
        self._watch.be_patient(seconds)

    def await_bytes(self, size: int) -> None:
        """Until so many have arrived, or the source has closed, a step would be of no use. 1: any byte is.

        It is advice, which only a plain socket can follow (SO_RCVLOWAT). In the middle of a frame any byte is of use,
        as some of its bytes are here, so fewer may follow. A step that ends there takes the advice back, and the
        connection does so once a second: if fewer come than were expected, they wait no longer than that.
        """
        source = plain_socket(self.source)
        if source is None:
            return
        if self.mid_frame:
            size = 1
        if size != self._awaited:
            self._awaited = size
            with suppress(OSError):  # already closed
                source.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def close(self) -> None:
        """The source is about to be closed."""
        self._watch.close()

    @abstractmethod
    async def run(self) -> None:
        """Runs until the source closes. Raises RemoteProtocolError and PeerLost."""

    @abstractmethod
    def scan(self, view: memoryview, pos: int, end: int) -> tuple[int, FrameStop | None]:
        """-> (stop, reason). Synchronous; updates `remaining`. Raises RemoteProtocolError."""

    async def turn(self) -> None:
        """Move bytes until something must be awaited, and await it; or until `ended` or `must_yield`."""
        self.waiting = True
        if begin(self._watch, self.step):
            await wait_task_rescheduled(self._watch.forget)
        else:
            await until(self._watch, self.step)
        self.waiting = False
        standing: _RepeatedWait | None = None
        while self._rest is not None:
            rest, self._rest = self._rest, None
            await self._settle(rest)
            view, end = memoryview(rest.behind), len(rest.behind)
            self._rest = self._move(view, 0, end, self.scan(view, 0, end))
            if rest.is_wait and self._rest is not None and self._rest.is_wait and len(self._rest.behind) == end:
                standing = standing or _RepeatedWait(self._throttle)
                await standing.again(rest)
            else:
                standing = None
        self.check_end()

    def check_end(self) -> None:
        """Raises PeerLost if the source has closed in the middle of a frame."""
        if self.ended and self.mid_frame:
            raise PeerLost(self.source, ConnectionResetError("closed in the middle of a frame"))

    def step(self) -> bool:
        """Move what has arrived; -> whether to wait for more. Raises RemoteProtocolError and PeerLost.

        The path of a small request is inlined here: with cold caches, function calls are expensive.
        """
        if self.remaining >= _SPLICED and self._pipe is not None and self.unread >= _SPLICED:
            out = self.out
            if isinstance(out, SendSide):  # not in the middle of a sample
                more = self._splice(self._pipe, out)
                if more is not None:
                    return more
        start, into = len(self.carry), self._into
        if into is not VIEW:
            self._into = VIEW
        try:
            end = start + self._receive_into(into[start:] if start else into)
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
        stop, frame_stop = self.scan(VIEW, 0, end)
        if frame_stop is None and stop == end:
            sent = self.out.send_now(VIEW[:end])
            if sent == end:
                return not self.must_yield
            self._rest = Unfinished(bytes(VIEW[sent:end]), None, 0, None, b"")
        else:
            self._rest = self._move(VIEW, 0, end, (stop, frame_stop))
        if self._rest is not None:
            self.waiting = False  # not idle any more, for steps and tasks that run before this pump's task resumes
            return False
        return not self.must_yield

    def _splice(self, pipe: SplicePipe, out: SendSide) -> bool | None:
        """A step in the middle of a long frame. None: splice(2) gets nothing.

        Then reading must be tried: behind an urgent byte of TCP, which is readable, splice(2) never gets anything.
        """
        try:
            size = pipe.take(self._watch.fd, self.unread)
        except BlockingIOError:
            return None
        except OSError as error:
            raise PeerLost(self.source, error) from error
        if not size:
            self.ended = True
            return False
        self.received += size
        self.passed(size)
        self._into = _FIRST
        if unsent := out.splice_now(pipe):
            self._rest = Unfinished(unsent, None, 0, None, b"")
            self.waiting = False
            return False
        return not self.must_yield

    def _move(self, view: memoryview, pos: int, end: int, scanned: tuple[int, FrameStop | None]) -> Unfinished | None:
        """Move the bytes in `view`, as far as possible without waiting."""
        while True:
            stop, frame_stop = scanned
            if frame_stop is None:
                sent = self.out.send_now(view[pos:stop]) if pos < stop else 0
                if pos + sent < stop:
                    return Unfinished(bytes(view[pos + sent : stop]), None, 0, None, bytes(view[stop:end]))
                self.carry = bytes(view[stop:end]) if stop < end else b""
                return None
            behind = min(end, stop + frame_stop.size)
            if frame_stop.replacement is None:
                return self._hold(view, (pos, stop, behind, end), frame_stop)
            if pos < stop or frame_stop.replacement:
                unsent = self.out.gather_now([view[pos:stop], *frame_stop.replacement])
                if unsent:
                    return Unfinished(unsent, None, 0, None, bytes(view[behind:end]))
            pos = behind
            if pos == end:
                return None
            scanned = self.scan(view, pos, end)

    def _hold(self, view: memoryview, marks: tuple[int, int, int, int], frame_stop: FrameStop) -> Unfinished:
        pos, stop, behind, end = marks
        frame = bytearray(frame_stop.size)
        frame[: behind - stop] = view[stop:behind]
        missing = frame_stop.size - (behind - stop)
        self.filling = missing > 0
        return Unfinished(bytes(view[pos:stop]), frame, missing, frame_stop.finish, bytes(view[behind:end]))

    async def _settle(self, rest: Unfinished) -> None:
        if rest.unsent:
            await self.out.send_all([rest.unsent])
        if rest.frame is not None:
            if rest.missing:
                self._missing = memoryview(rest.frame)[-rest.missing :]
                await self._fill_all()
                self.filling = bool(self._missing)
                self._missing = _NOTHING
                self._into = _FIRST
                self.check_end()
            assert rest.finish is not None
            await rest.finish(rest.frame)

    async def _fill_all(self) -> None:
        """Complete a held frame, or read until the source closes."""
        while self._missing and not self.ended:
            await until(self._watch, self._fill)
            if self._pace is not None and self._missing:
                await self._pace.turn()

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
        return bool(size and self._missing) and (self._pace is None or not self._pace.in_debt)
