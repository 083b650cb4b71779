"""A connection to a broker with a tap: the index gets sent and received bytes. Its errors never affect the traffic.

    tap is not `quick`              parsed now, after all deferred chunks
    short, whole frames             copied
    long, one batch per request     kept: only what is before the records
    other long ones, and pieces     read ahead: batch headers

The last three are deferred. A chunk that cannot be kept is read ahead; one that cannot be read ahead is copied; what
cannot be copied is parsed. `send`, `recv_into` and the clock are called as locals: calling an attribute takes longer.
"""

from __future__ import annotations

from time import time_ns
from typing import TYPE_CHECKING, Final, Protocol

from shoal.protocol.capture.index.stream import is_whole, size_of
from shoal.protocol.schema.headers import SIZE_BYTES, read_size
from shoal.proxy.net.transport import buffered_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shoal.protocol.capture.index.produce_template import Frame
    from shoal.protocol.capture.index.tap import Tap
    from shoal.proxy.capture.backlog import Backlog
    from shoal.proxy.net.transport import Buffer, Transport

__all__ = ["TappedTransport"]

_LEAST: Final = 8  # bytes of a frame
_OF_A_BATCH: Final = 256
"""Approximate kept bytes per batch."""


class Watcher(Protocol):
    def broken(self, tap: Tap) -> None:
        """The tap has raised the current exception and gets no more bytes."""

    def ended(self, tap: Tap) -> None:
        """The tap's connection is closed."""


class TappedTransport:
    """A `Transport` that wraps another one."""

    def __init__(
        self, inner: Transport, tap: Tap, watcher: Watcher, backlog: Backlog, clock: Callable[[], int] = time_ns
    ) -> None:
        self.fileno = inner.fileno
        self.shutdown = inner.shutdown
        self.buffered = buffered_by(inner)
        self._inner = inner
        self._recv_into = inner.recv_into
        self._send = inner.send
        self._tap: Tap | None = tap
        self._sent_now, self._sent, self._held, self._read = tap.sent_now, tap.sent, tap.held, tap.read
        self._received, self._ahead = tap.received, tap.ahead
        self._watcher = watcher
        self._backlog = backlog
        self._clock = clock  # Unix time, ns
        self._is_single = True  # whether the last long request had one partition: the next one probably has, too
        self._waiting, self._grown = backlog.waiting, backlog.grown
        limits = backlog.limits
        self._wake_every, self._most_received = limits.wake_every, limits.received
        self._long, self._most_copied = limits.long, limits.copied

    def recv_into(self, buffer: memoryview, /) -> int:
        recv_into, tap = self._recv_into, self._tap
        size = recv_into(buffer)
        if tap is None or not size:
            return size
        clock = self._clock
        try:
            if tap.quick and size <= self._most_received:
                waiting = self._waiting
                waiting.append((tap, self._received, clock(), buffer[:size].tobytes(), 0))
                if not len(waiting) % self._wake_every:
                    self._grown()
            else:
                self._parse(self._received, clock(), buffer[:size])
        except Exception:
            self.give_up()
        return size

    def send(self, data: Buffer, /) -> int:
        send, tap = self._send, self._tap
        size = send(data)
        if tap is None or not size:
            return size
        clock = self._clock
        now_ns = clock()
        chunk = data if size == len(data) else memoryview(data)[:size]
        try:
            at_start = self._ahead.begun is None  # of a request
            if not tap.quick:
                self._parse(self._sent_now, now_ns, memoryview(chunk))
            elif at_start and size <= self._long:
                self._copy(tap, chunk, size, now_ns)
            elif at_start and self._is_single:
                self._keep(tap, chunk, size, now_ns)
            else:
                self._read_ahead(tap, memoryview(chunk), now_ns)
        except Exception:
            self.give_up()
        return size

    def sendmsg(self, buffers: Iterable[Buffer], /) -> int:
        buffers = list(buffers)
        rest = size = self._inner.sendmsg(buffers)
        if self._tap is None:
            return size
        now_ns = self._clock()
        try:
            for buffer in buffers:
                if rest and self._tap is not None:
                    chunk = memoryview(buffer)[:rest]
                    rest -= len(chunk)
                    self._parse(self._sent_now, now_ns, chunk)
        except Exception:
            self.give_up()
        return size

    def _copy(self, tap: Tap, chunk: Buffer, size: int, now_ns: int) -> None:
        """Defer whole frames. Parse them if there is no room, and other chunks."""
        backlog = self._backlog
        if _LEAST < size <= backlog.room and (read_size(chunk)[0] + SIZE_BYTES == size or is_whole(chunk, size)):
            backlog.defer(tap, self._sent, now_ns, bytes(chunk), size)
        else:
            self._parse(self._sent_now, now_ns, memoryview(chunk))

    def _keep(self, tap: Tap, chunk: Buffer, size: int, now_ns: int) -> None:
        """Defer a repeated request with one batch: only its part before the records is kept."""
        for template in tap.templates:
            kept = template.keep(chunk, size)
            if kept is not None:
                waiting = self._waiting
                waiting.append((tap, self._held, now_ns, kept, 0))
                if not len(waiting) % self._wake_every:
                    self._grown()
                return
        self._keep_first(tap, memoryview(chunk), now_ns)

    def _keep_first(self, tap: Tap, chunk: memoryview, now_ns: int) -> None:
        """The same for several, at the start of a chunk. The rest of the chunk is read ahead."""
        left = whole = len(chunk)
        while left > self._long and self._long < (size := size_of(chunk)) <= left and size < whole:
            kept = tap.keep(chunk, size)
            if kept is None:
                break
            self._backlog.defer(tap, self._held, now_ns, kept, 0)
            chunk, left = chunk[size:], left - size
        if left:
            self._read_ahead(tap, chunk, now_ns)

    def _read_ahead(self, tap: Tap, chunk: memoryview, now_ns: int) -> None:
        """Read a chunk that is too long to copy, or starts within a request. Copy or parse what is not as expected."""
        ahead, backlog = self._ahead, self._backlog
        requests = ahead.read(chunk)
        if requests:
            self._is_single, size = ahead.batches == len(requests), ahead.batches * _OF_A_BATCH
            if size > backlog.room:
                backlog.settle()
            backlog.defer(tap, self._read, now_ns, requests, size)
        elif requests is None and ahead.begun is None and len(chunk) <= self._most_copied:
            self._copy(tap, chunk, len(chunk), now_ns)
        elif requests is None:
            self._parse(self._sent_now, now_ns, chunk)

    def _parse(self, parse: Callable[[Frame, int], None], now_ns: int, chunk: memoryview) -> None:
        """Parse now, after all deferred chunks."""
        if self._waiting:
            self._backlog.settle()
        parse(chunk, now_ns)

    def close(self) -> None:
        self._inner.close()
        tap = self._tap
        if tap is None:
            return
        try:
            tap.close()
        except Exception:
            self.give_up()
        else:
            self._tap = None
            self._watcher.ended(tap)

    def give_up(self) -> None:
        """Called by the handler of a tap's error."""
        tap, self._tap = self._tap, None
        if tap is not None:
            self._watcher.broken(tap)
