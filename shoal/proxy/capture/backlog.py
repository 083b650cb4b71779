"""What has passed and the index has yet to look at: for what waits for these bytes, that costs a copy and no more.

    TappedTransport ── when, bytes ──> here ── every WAKE, at each flush, before anything is said of a connection ──> taps ── rows

Only what is short, of connections that produce (`Tap.quick`), is put off; all else is looked at as it passes, when nothing waits any
more, and so is something of what waits where that is MOST. What waits keeps its order and its times, so the rows are the same.

Of a request, whole frames are put off: so a longer one can be read ahead of those in front of it, and its records are not copied.

The taps read it in the event loop, in a task of its own. Rejected: a thread. It would hold the interpreter's lock while it reads, so
the sockets' thread would wait for it all the same, at each of its system calls; and it would need locks around all that a tap knows.
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
"""Of requests that wait, in the whole process. Besides, each of MOST may be an answer, or the head of a request: MOST_RECEIVED at most."""
MOST_RECEIVED: Final = 4096
"""Bytes. An answer to a Produce request for a hundred partitions is no longer; of a Fetch answer much may have to be read."""
LONG: Final = 4096
"""Bytes of a request: to read such a one ahead takes less than to copy it."""
SLICE_NS: Final = 500_000
"""Twice what WAKE chunks take that are like those before; some may turn out to be otherwise, and take twenty times as long."""
_STEP: Final = 16


class Backlog:
    """`wake`: there is enough to `settle`. `failed`: this tap has raised, which it must not."""

    def __init__(self, wake: Callable[[], None], failed: Callable[[Tap], None]) -> None:
        self.waiting: list[Waiting] = []
        """Who adds to it, and makes it a multiple of WAKE, says that it has `grown`."""
        self.bytes = 0
        """Of requests that were copied, and of what was read of those of many partitions."""
        self._is_looking = False
        self._wake = wake
        self._failed = failed

    def put_off(self, tap: Tap, see: Callable[[Any, int], None], now_ns: int, what: object, size: int) -> None:
        """`see` is a method of the tap. `size`: bytes of `what`, if they are to be counted."""
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
        """Look at what waits."""
        self._look(len(self.waiting))

    def settle_some(self) -> bool:
        """For SLICE_NS, for others wait meanwhile; -> whether something is left."""
        until = perf_counter_ns() + SLICE_NS
        while self.waiting:
            self._look(_STEP)
            if perf_counter_ns() >= until:
                break
        return bool(self.waiting)

    def _look(self, count: int) -> None:
        if self._is_looking:  # a tap that has raised is asked once more how much it has not read
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
