"""A connection to a broker whose bytes the index sees: what the kernel took, and what it gave. Nothing here can disturb the traffic."""

from __future__ import annotations

import logging
from time import time_ns
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.protocol.capture.tap import Tap
    from shoal.proxy.transport import Buffer, Transport

__all__ = ["TappedTransport"]

log = logging.getLogger("shoal.capture")


class Watcher(Protocol):
    def broken(self, tap: Tap) -> None:
        """It has raised, which it must not, and sees nothing more."""

    def ended(self, tap: Tap) -> None:
        """Its connection is closed."""


class TappedTransport:
    """A `Transport` around another."""

    def __init__(self, inner: Transport, tap: Tap, watcher: Watcher) -> None:
        self.fileno = inner.fileno
        self.shutdown = inner.shutdown
        self._inner = inner
        self._recv_into = inner.recv_into
        self._send = inner.send
        self._tap: Tap | None = tap
        self._watcher = watcher

    def recv_into(self, buffer: memoryview, /) -> int:
        size = self._recv_into(buffer)
        if size and self._tap is not None:
            try:
                self._tap.received(buffer[:size], time_ns())
            except Exception:
                self._give_up()
        return size

    def send(self, data: Buffer, /) -> int:
        size = self._send(data)
        self._saw((data,), size)
        return size

    def sendmsg(self, buffers: Iterable[Buffer], /) -> int:
        buffers = list(buffers)
        size = self._inner.sendmsg(buffers)
        self._saw(buffers, size)
        return size

    def _saw(self, buffers: Iterable[Buffer], size: int) -> None:
        tap = self._tap
        if tap is None:
            return
        now_ns = time_ns()
        try:
            for buffer in buffers:
                if not size:
                    return
                chunk = memoryview(buffer)[:size]
                size -= len(chunk)
                tap.sent(chunk, now_ns)
        except Exception:
            self._give_up()

    def close(self) -> None:
        self._inner.close()
        tap, self._tap = self._tap, None
        if tap is not None:
            try:
                tap.close()
            except Exception:
                self._tap = tap
                self._give_up()
            else:
                self._watcher.ended(tap)

    def _give_up(self) -> None:
        tap, self._tap = self._tap, None
        log.exception("the index no longer sees one connection")
        if tap is not None:
            self._watcher.broken(tap)
