"""Forwarded bytes that the index has not parsed yet. Deferring costs the traffic only a copy.

    TappedTransport ── time, bytes ──> here ── every 256 chunks, at each flush, before an annotation ──> taps ── rows

Only short chunks of producing connections (`Tap.quick`) are deferred. Others are parsed as they pass, following all
deferred ones; and some deferred ones are parsed when too many wait. Order and times are kept, so the rows are the same.

Requests are deferred as whole frames: so a longer one can be read ahead of earlier ones, and its records are not
copied.

The taps parse in the event loop, in their own task. Rejected: a thread. It would hold the interpreter's lock while it
parses, so the event loop would still wait, at each system call; and it would need locks around the state of taps.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.protocol.capture.index.tap import Tap

__all__ = ["LIMITS", "Backlog", "BacklogLimits"]

Waiting = tuple["Tap", "Callable[[Any, int], None]", int, Any, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogLimits:
    """Limits for one process. `long`, `copied` and `received` are bytes of one chunk."""

    wake_every: int = 256  # deferred chunks
    chunks: int = 1024
    bytes: int = 4 * 1024 * 1024
    """Deferred requests. In addition, each chunk may be an answer or the head of a request (`received`)."""
    received: int = 4096
    """An answer to a Produce request for a hundred partitions fits; a larger Fetch answer may take long to parse."""
    long: int = 4096
    """From here on, reading ahead is faster than copying."""
    copied: int = 32 * 1024
    """For requests that cannot be read ahead; copying more takes longer than parsing."""
    slice_ns: int = 500_000
    """Twice the time for 256 repeated chunks; an unusual chunk may take twenty times as long."""
    step: int = 16
    """Chunks that are parsed before the clock is read."""


LIMITS: Final = BacklogLimits()


class Backlog:
    """`wake` is called when `settle` is due. `failed` is called if a tap raises."""

    def __init__(self, wake: Callable[[], None], failed: Callable[[Tap], None], limits: BacklogLimits = LIMITS) -> None:
        self.limits = limits
        self.waiting: list[Waiting] = []
        """Call `grown` when its length becomes a multiple of `wake_every`."""
        self.room = limits.bytes
        """Bytes, for copied requests and the read parts of requests with many partitions."""
        self._is_parsing = False
        self._wake = wake
        self._failed = failed
        self._wake_every = limits.wake_every

    def defer(self, tap: Tap, parse: Callable[[Any, int], None], now_ns: int, data: object, size: int) -> None:
        """`parse` is a method of the tap. `size`: bytes of `data` that count."""
        waiting = self.waiting
        waiting.append((tap, parse, now_ns, data, size))
        self.room -= size
        if not len(waiting) % self._wake_every:
            self.grown()

    def grown(self) -> None:
        self._wake()
        if len(self.waiting) >= self.limits.chunks:
            self._parse(self._wake_every)

    def settle(self) -> None:
        """Parse all deferred chunks."""
        self._parse(len(self.waiting))

    def settle_some(self) -> bool:
        """Parse for `slice_ns` at most, because other tasks wait. Returns whether some are left."""
        until = perf_counter_ns() + self.limits.slice_ns
        while self.waiting:
            self._parse(self.limits.step)
            if perf_counter_ns() >= until:
                break
        return bool(self.waiting)

    def _parse(self, count: int) -> None:
        if self._is_parsing:  # a failed tap is asked for its count of unread frames
            return
        self._is_parsing = True
        first = self.waiting[:count]
        del self.waiting[:count]
        try:
            for tap, parse, now_ns, data, size in first:
                self.room += size
                try:
                    parse(data, now_ns)
                except Exception:
                    self._failed(tap)
        finally:
            self._is_parsing = False
