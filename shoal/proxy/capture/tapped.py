"""A connection to a broker with a tap: the index gets sent and received bytes. Its errors never affect the traffic.

`recv_into` and `send` are functions whose values are all their own: with cold caches, each attribute that they need
would cost as much as the copy.
"""

from __future__ import annotations

from time import time_ns
from typing import TYPE_CHECKING, Any, Protocol

from shoal.proxy.net.transport import buffered_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shoal.protocol.capture.index.tap import Tap
    from shoal.proxy.capture.backlog import Backlog
    from shoal.proxy.net.transport import Buffer, Transport

__all__ = ["TappedTransport"]


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
        self.inner = inner
        self._tap: Tap | None = tap
        self._watcher = watcher
        self._backlog = backlog
        self._clock = clock  # Unix time, ns
        tap.catch_up = self.catch_up
        self.deferred: list[tuple[Callable[[Any, int], None], int, Buffer]] = []
        chunks = backlog.limits.chunks
        self.recv_into = self._moves(inner.recv_into, tap.received, 2 * chunks)
        self.send = self._moves(inner.send, tap.sent, chunks)

    def _moves(self, move: Callable[[Any], int], parse: Callable[[Any, int], None], most: int) -> Callable[[Any], int]:
        """`move`, which also gives the moved bytes to the tap."""
        backlog, clock, defer, parse_now = self._backlog, self._clock, self.deferred.append, self._parse
        waiting, settle_step, short = backlog.waiting, backlog.settle_step, backlog.limits.chunk_bytes
        enqueue = waiting.append

        def moved(data: Any, /) -> int:
            size = move(data)
            if 0 < size <= short:
                defer((parse, clock(), bytes(data[:size])))
                enqueue(self)
                if len(waiting) >= most:
                    settle_step()
            elif size:
                parse_now(parse, memoryview(data)[:size])
            return size

        return moved

    def sendmsg(self, buffers: Iterable[Buffer], /) -> int:
        buffers = list(buffers)
        size = self.inner.sendmsg(buffers)
        tap = self._tap
        if tap is not None and size:
            self._parse(tap.gathered, (buffers, size))
        return size

    def _parse(self, parse: Callable[[Any, int], None], chunk: object) -> None:
        """Parse now, after all deferred chunks."""
        now_ns = self._clock()
        self.catch_up()
        if self._tap is not None:
            try:
                parse(chunk, now_ns)
            except Exception:
                self.give_up()

    def catch_up(self) -> None:
        """Parse all deferred chunks of this connection."""
        self.settle(len(self.deferred))

    def settle(self, most: int) -> int:
        """Parse up to so many, the oldest ones; -> their number."""
        deferred = self.deferred
        chunks = deferred[:most]
        if chunks:
            del deferred[:most]
            if self._tap is not None:
                try:
                    for parse, now_ns, chunk in chunks:
                        parse(chunk, now_ns)
                except Exception:
                    self.give_up()
        return len(chunks)

    def close(self) -> None:
        self.inner.close()
        tap = self._tap
        if tap is None:
            return
        try:
            tap.close()
        except Exception:
            self.give_up()
        else:
            self._tap = None
            tap.leave()
            self._watcher.ended(tap)

    def give_up(self) -> None:
        """Called by the handler of a tap's error."""
        tap, self._tap = self._tap, None
        if tap is not None:
            tap.leave()
            self._watcher.broken(tap)
