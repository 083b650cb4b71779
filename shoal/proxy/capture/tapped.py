"""A connection to a broker with a tap: the index gets sent and received bytes. Its errors never affect the traffic."""

from __future__ import annotations

import logging
from struct import Struct
from time import time_ns
from typing import TYPE_CHECKING, Final, Protocol

from shoal.protocol.capture.index.stream import is_whole, size_of
from shoal.proxy.capture.backlog import LONG, MOST_BYTES, MOST_RECEIVED, WAKE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shoal.protocol.capture.index.again import Frame
    from shoal.protocol.capture.index.tap import Tap
    from shoal.proxy.capture.backlog import Backlog
    from shoal.proxy.net.transport import Buffer, Transport

__all__ = ["TappedTransport"]

log = logging.getLogger("shoal.capture")

_SIZE: Final = Struct(">i").unpack_from
_LEAST: Final = 8  # bytes of a frame
_MOST_COPIED: Final = 32 * 1024
"""Bytes of requests that cannot be read ahead; copying more takes longer than parsing."""
_OF_A_BATCH: Final = 256
"""Approximate kept bytes per batch."""


class Watcher(Protocol):
    def broken(self, tap: Tap) -> None:
        """The tap has raised an error and gets no more bytes."""

    def ended(self, tap: Tap) -> None:
        """The tap's connection is closed."""


class TappedTransport:
    """A `Transport` that wraps another one."""

    def __init__(self, inner: Transport, tap: Tap, watcher: Watcher, backlog: Backlog) -> None:
        self.fileno = inner.fileno
        self.shutdown = inner.shutdown
        self._inner = inner
        self._recv_into = inner.recv_into
        self._send = inner.send
        self._tap: Tap | None = tap
        self._sent, self._held, self._read = tap.sent_now, tap.held, tap.read
        self._received, self._ahead = tap.received, tap.ahead
        self._watcher = watcher
        self._backlog = backlog
        self._is_single = True  # whether the last long request had one partition: the next one probably has, too
        self._waiting, self._grown = backlog.waiting, backlog.grown

    def recv_into(self, buffer: memoryview, /) -> int:
        size = self._recv_into(buffer)
        tap = self._tap
        if tap is not None and size:
            if tap.quick and size <= MOST_RECEIVED:
                waiting = self._waiting
                waiting.append((tap, self._received, time_ns(), buffer[:size].tobytes(), 0))
                if not len(waiting) % WAKE:
                    self._grown()
            else:
                self._look(tap, self._received, time_ns(), buffer[:size])
        return size

    def send(self, data: Buffer, /) -> int:
        size = self._send(data)
        tap = self._tap
        if tap is not None and size:
            now_ns = time_ns()
            chunk = data if size == len(data) else memoryview(data)[:size]
            if not tap.quick:
                self._look(tap, self._sent, now_ns, memoryview(chunk))
            elif size > LONG or self._ahead.begun is not None:
                if not (self._is_single and self._ahead.begun is None and self._is_kept(tap, chunk, size, now_ns)):
                    self._read_ahead(tap, memoryview(chunk), now_ns)
            elif not self._is_copied(tap, chunk, size, now_ns):
                self._look(tap, self._sent, now_ns, memoryview(chunk))
        return size

    def _is_kept(self, tap: Tap, chunk: Buffer, size: int, now_ns: int) -> bool:
        """Defer a repeated request with one batch: only its part before the records is kept."""
        try:
            for form in tap.forms:
                kept = form.keep(chunk, size)
                if kept is not None:
                    waiting = self._waiting
                    waiting.append((tap, self._held, now_ns, kept, 0))
                    if not len(waiting) % WAKE:
                        self._grown()
                    return True
        except Exception:
            self.give_up()
            return True
        return False

    def _is_copied(self, tap: Tap, chunk: Buffer, size: int, now_ns: int) -> bool:
        """Defer the chunk if it has whole frames and there is room."""
        if size <= _LEAST or self._backlog.bytes + size > MOST_BYTES:
            return False
        if _SIZE(chunk)[0] + 4 == size or is_whole(chunk, size):
            self._backlog.put_off(tap, tap.sent, now_ns, bytes(chunk), size)
            return True
        return False

    def _read_ahead(self, tap: Tap, chunk: memoryview, now_ns: int) -> None:
        """Read a chunk that is too long to copy, or starts within a request."""
        ahead, backlog = self._ahead, self._backlog
        try:
            if self._is_single and ahead.begun is None:
                chunk = self._keep(tap, chunk, now_ns)
                if not chunk:
                    return
            found = ahead.read(chunk)
        except Exception:
            self.give_up()
            return
        if found:
            self._is_single, size = ahead.batches == len(found), ahead.batches * _OF_A_BATCH
            if backlog.bytes + size > MOST_BYTES:
                backlog.settle()
            backlog.put_off(tap, self._read, now_ns, found, size)
        elif found is None:
            size = len(chunk)
            if ahead.begun is not None or size > _MOST_COPIED or not self._is_copied(tap, chunk, size, now_ns):
                self._look(tap, self._sent, now_ns, chunk)

    def _keep(self, tap: Tap, chunk: memoryview, now_ns: int) -> memoryview:
        """Keep the needed part of repeated requests at the chunk's start. Returns the rest of the chunk."""
        left = whole = len(chunk)
        while left > LONG and LONG < (size := size_of(chunk)) <= left and size < whole:
            kept = tap.keep(chunk, size)
            if kept is None:
                break
            self._backlog.put_off(tap, self._held, now_ns, kept, 0)
            chunk, left = chunk[size:], left - size
        return chunk

    def sendmsg(self, buffers: Iterable[Buffer], /) -> int:
        buffers = list(buffers)
        size = self._inner.sendmsg(buffers)
        now_ns, rest = time_ns(), size
        for buffer in buffers:
            if not rest or self._tap is None:
                break
            chunk = memoryview(buffer)[:rest]
            rest -= len(chunk)
            self._look(self._tap, self._sent, now_ns, chunk)
        return size

    def _look(self, tap: Tap, see: Callable[[Frame, int], None], now_ns: int, chunk: memoryview) -> None:
        """Parse now."""
        if self._waiting:
            self._backlog.settle()
        try:
            see(chunk, now_ns)
        except Exception:
            self.give_up()

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
        log.exception("the index no longer sees one connection")
        if tap is not None:
            self._watcher.broken(tap)
