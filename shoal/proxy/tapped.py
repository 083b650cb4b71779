"""A connection to a broker whose bytes the index sees: what the kernel took, and what it gave. Nothing here can disturb the traffic."""

from __future__ import annotations

import logging
from struct import Struct
from time import time_ns
from typing import TYPE_CHECKING, Final, Protocol

from shoal.protocol.capture.stream import is_whole
from shoal.proxy.capture_backlog import LONG, MOST_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shoal.protocol.capture.again import Frame
    from shoal.protocol.capture.tap import Tap
    from shoal.proxy.capture_backlog import Backlog
    from shoal.proxy.transport import Buffer, Transport

__all__ = ["TappedTransport"]

log = logging.getLogger("shoal.capture")

_SIZE: Final = Struct(">i").unpack_from
_LEAST: Final = 8  # bytes of a frame
_MOST_COPIED: Final = 32 * 1024
"""Bytes of requests that cannot be read ahead: to copy more takes longer than to look at it."""
_READ_AHEAD: Final = 256
"""Bytes of what is kept then, about."""
_MOST_RECEIVED: Final = 1024
"""Bytes. An answer to a Produce request is shorter; of a Fetch answer much may have to be read."""


class Watcher(Protocol):
    def broken(self, tap: Tap) -> None:
        """It has raised, which it must not, and sees nothing more."""

    def ended(self, tap: Tap) -> None:
        """Its connection is closed."""


class TappedTransport:
    """A `Transport` around another."""

    def __init__(self, inner: Transport, tap: Tap, watcher: Watcher, backlog: Backlog) -> None:
        self.fileno = inner.fileno
        self.shutdown = inner.shutdown
        self._inner = inner
        self._recv_into = inner.recv_into
        self._send = inner.send
        self._tap: Tap | None = tap
        self._sent, self._received, self._ahead, self._held = tap.sent, tap.received, tap.ahead, tap.held
        self._watcher = watcher
        self._backlog = backlog
        self._put_off = backlog.put_off

    def recv_into(self, buffer: memoryview, /) -> int:
        size = self._recv_into(buffer)
        tap = self._tap
        if tap is not None and size:
            if tap.quick and size <= _MOST_RECEIVED:
                self._put_off(tap, self._received, time_ns(), buffer[:size].tobytes(), size)
            else:
                self._look(tap, self._received, time_ns(), buffer[:size])
        return size

    def send(self, data: Buffer, /) -> int:
        size = self._send(data)
        tap = self._tap
        if tap is not None and size:
            chunk = memoryview(data)[:size] if size < len(data) else data
            now_ns = time_ns()
            if not (tap.quick and self._is_put_off(tap, chunk, size, now_ns)):
                self._look(tap, self._sent, now_ns, memoryview(chunk))
        return size

    def _is_put_off(self, tap: Tap, chunk: Buffer, size: int, now_ns: int) -> bool:
        if size > LONG:
            try:
                found = self._ahead(chunk, now_ns)
            except Exception:
                self.give_up()
                return True
            if found is not None:
                self._put_off(tap, self._held, now_ns, found, _READ_AHEAD)
                return True
            if size > _MOST_COPIED:
                return False
        if self._backlog.bytes + size > MOST_BYTES:
            return False
        if size > _LEAST and (_SIZE(chunk)[0] + 4 == size or is_whole(chunk, size)):
            self._put_off(tap, self._sent, now_ns, bytes(chunk), size)
            return True
        return False

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
        """At once."""
        if tap.behind:
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
        """The tap has raised: the handler of that error calls this."""
        tap, self._tap = self._tap, None
        log.exception("the index no longer sees one connection")
        if tap is not None:
            self._watcher.broken(tap)
