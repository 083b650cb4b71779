"""Connections with forwarded bytes that the index has not parsed yet. Deferring costs the traffic only a copy.

    TappedTransport ── time, bytes ──> its own list ── every 1024 chunks, at each flush, before an annotation ──> tap
                    └─ itself ───────> here

Only short chunks are deferred. A longer one is parsed as it passes, after the deferred ones of its connection. Order
and times are kept, so the rows are the same. Many chunks are parsed at once, those of a connection together: with warm
caches, that takes a fraction of the time.

The event loop parses, a few chunks after a send when many wait, and in the index's own task. Rejected: a thread. It
would hold the interpreter's lock while it parses, so the event loop would still wait, at each system call; and it would
need locks around the state of taps.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sized

__all__ = ["LIMITS", "Backlog", "BacklogLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogLimits:
    """Limits for one process."""

    chunks: int = 1024
    """After a send; an answer does not wait for the index until there are twice as many."""
    chunk_bytes: int = 4096
    """A longer chunk is parsed at once: copying it takes longer."""
    slice_ns: int = 500_000
    step: int = 64
    """Chunks that are parsed in a row: some 0.1 ms."""


LIMITS: Final = BacklogLimits()


class Deferring(Protocol):
    @property
    def deferred(self) -> Sized:
        """Its chunks."""

    def settle(self, most: int) -> int:
        """Parse up to so many of its deferred chunks, the oldest ones; -> their number."""


class Backlog:
    def __init__(self, limits: BacklogLimits = LIMITS) -> None:
        self.limits = limits
        self.waiting: deque[Deferring] = deque()
        """Each connection once for each chunk that it defers, and until then for those that it has parsed since."""

    def settle_step(self) -> None:
        """Call it when the limit is reached. Then the next calls parse the rest, until nothing waits."""
        left, waiting = self.limits.step, self.waiting
        while waiting and (left > 0 or not waiting[0].deferred):
            left -= waiting.popleft().settle(left)

    def settle_some(self) -> bool:
        """Parse for `slice_ns` at most, because other tasks wait. Returns whether some are left."""
        until = perf_counter_ns() + self.limits.slice_ns
        while self.waiting:
            self.settle_step()
            if perf_counter_ns() >= until:
                break
        return bool(self.waiting)

    def settle(self) -> None:
        """Parse all deferred chunks."""
        while self.waiting:
            self.settle_step()
