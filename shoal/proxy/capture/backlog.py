"""Forwarded bytes that the index has not parsed yet. Deferring costs the traffic only a copy.

    TappedTransport ── time, bytes ──> here ── every WAKE, at each flush, before an annotation ──> taps ── rows

Only short chunks of producing connections (`Tap.quick`) are deferred. Others are parsed as they pass, behind
all deferred ones; and some deferred ones are parsed when there are MOST. Order and times are kept, so the rows are the
same.

Requests are deferred as whole frames: so a longer one can be read ahead of earlier ones, and its records are not
copied.

The taps parse in the event loop, in their own task. Rejected: a thread. It would hold the interpreter's lock while it
parses, so the event loop would still wait, at each system call; and it would need locks around the state of taps.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.protocol.capture.index.tap import Tap

__all__ = ["LONG", "MOST", "MOST_BYTES", "MOST_RECEIVED", "WAKE", "Backlog"]

Waiting = tuple["Tap", "Callable[[Any, int], None]", int, Any, int]

WAKE: Final = 256
MOST: Final = 1024
MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of deferred requests per process. In addition, each of MOST may be an answer or a request's head:
MOST_RECEIVED."""
MOST_RECEIVED: Final = 4096
"""Bytes. An answer to a Produce request for a hundred partitions fits; a larger Fetch answer may take long to parse."""
LONG: Final = 4096
"""Bytes of a request from which reading ahead is faster than copying."""
SLICE_NS: Final = 500_000
"""Twice the time for WAKE repeated chunks; an unusual chunk may take twenty times as long."""
_STEP: Final = 16


class Backlog:
    """`wake` is called when `settle` is due. `failed` is called if a tap raises."""

    def __init__(self, wake: Callable[[], None], failed: Callable[[Tap], None]) -> None:
        self.waiting: list[Waiting] = []
        """Call `grown` when its length becomes a multiple of WAKE."""
        self.bytes = 0
        """Bytes of copied requests, and of the read parts of requests with many partitions."""
        self._is_looking = False
        self._wake = wake
        self._failed = failed

    def put_off(self, tap: Tap, see: Callable[[Any, int], None], now_ns: int, what: object, size: int) -> None:
        """`see` is a method of the tap. `size`: counted bytes of `what`."""
        waiting = self.waiting
        waiting.append((tap, see, now_ns, what, size))
        self.bytes += size
        if not len(waiting) % WAKE:
            self.grown()

    def grown(self) -> None:
        self._wake()
        if len(self.waiting) >= MOST:
            self._look(WAKE)

    def settle(self) -> None:
        """Parse all deferred chunks."""
        self._look(len(self.waiting))

    def settle_some(self) -> bool:
        """Parse for SLICE_NS at most, because other tasks wait. Returns whether some are left."""
        until = perf_counter_ns() + SLICE_NS
        while self.waiting:
            self._look(_STEP)
            if perf_counter_ns() >= until:
                break
        return bool(self.waiting)

    def _look(self, count: int) -> None:
        if self._is_looking:  # a failed tap is asked for its count of unread frames
            return
        self._is_looking = True
        first = self.waiting[:count]
        del self.waiting[:count]
        try:
            for tap, see, now_ns, what, size in first:
                self.bytes -= size
                try:
                    see(what, now_ns)
                except Exception:
                    self._failed(tap)
        finally:
            self._is_looking = False
