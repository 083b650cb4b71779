"""What has passed and the index has yet to look at: for what waits for these bytes, that costs a copy and no more.

    TappedTransport ── when, bytes ──> here ── every WAKE, at each flush, before anything is said of a connection ──> taps ── rows

Only what is short, of connections that produce (`Tap.quick`), is put off; all else is looked at as it passes, and so is something of what
waits where that is MOST. What waits keeps its order and the times at which it passed, so the rows are the same.

Of a request, whole frames are put off: so a longer one can be read ahead of those in front of it, and its records are not copied.

The taps read it in the event loop, in a task of its own. Rejected: a thread. It would hold the interpreter's lock while it reads, so
the sockets' thread would wait for it all the same, at each of its system calls; and it would need locks around all that a tap knows.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.protocol.capture.tap import Tap

__all__ = ["LONG", "MOST", "MOST_BYTES", "Backlog"]

T = TypeVar("T")

WAKE: Final = 256
MOST: Final = 1024
MOST_BYTES: Final = 4 * 1024 * 1024
"""Of requests that wait, in the whole process."""
LONG: Final = 4096
"""Bytes of a request: to read such a one ahead takes less than to copy it."""
SLICE_NS: Final = 500_000
"""Twice what WAKE chunks take that are like those before; some may turn out to be otherwise, and take twenty times as long."""
_STEP: Final = 16


class Backlog:
    """`wake`: there is enough to `settle`. `failed`: this tap has raised, which it must not."""

    def __init__(self, wake: Callable[[], None], failed: Callable[[Tap], None]) -> None:
        self._waiting: list[tuple[Tap, Callable[[Any, int], None], int, Any, int]] = []
        self.bytes = 0
        self._wake = wake
        self._failed = failed

    def put_off(self, tap: Tap, see: Callable[[T, int], None], now_ns: int, what: T, size: int) -> None:
        """`see` is a method of the tap."""
        waiting = self._waiting
        waiting.append((tap, see, now_ns, what, size))
        self.bytes += size
        tap.behind += 1
        if not len(waiting) % WAKE:
            self._grown()

    def _grown(self) -> None:
        self._wake()
        if len(self._waiting) >= MOST:
            self._look(WAKE)

    def settle(self) -> None:
        """Look at what waits."""
        self._look(len(self._waiting))

    def settle_some(self) -> bool:
        """For SLICE_NS, for others wait meanwhile; -> whether something is left."""
        until = perf_counter_ns() + SLICE_NS
        while self._waiting:
            self._look(_STEP)
            if perf_counter_ns() >= until:
                break
        return bool(self._waiting)

    def _look(self, count: int) -> None:
        first = self._waiting[:count]
        del self._waiting[:count]
        for tap, see, now_ns, what, size in first:
            self.bytes -= size
            tap.behind -= 1
            try:
                see(what, now_ns)
            except Exception:
                self._failed(tap)
