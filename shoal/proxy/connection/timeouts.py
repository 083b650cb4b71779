"""Ends connections that make no progress although they should.

Once a second, one task compares every connection's counters with those of a second ago: two microseconds per
connection. A timer per read or write would cost more than the read itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import trio

from shoal.proxy.statistics import CloseCause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from shoal.proxy.config.settings import Limits

__all__ = ["CHECK_SECONDS", "Progress", "Timeouts", "watch"]

CHECK_SECONDS = 1.0


class Progress(NamedTuple):
    """Counters of a connection, and which of them should increase now. Defaults: a connection without a broker."""

    received: int = 0  # bytes, from the client
    answered: int = 0  # bytes, from the broker
    to_broker: int = 0
    to_client: int = 0
    request_begun: bool = False  # the rest of a frame is due
    answer_begun: bool = False
    broker_blocks: bool = False  # the peer must read
    client_blocks: bool = False
    abandoned: bool = False  # a request is handled, or waits, for a client that has left
    nothing_due: bool = True


class _Still(NamedTuple):
    """A counter that should increase, and since when it has not."""

    value: int
    since: float


_Watched = tuple[bool, int, float | None, CloseCause, str]
_COUNTERS = 6  # that are watched


class Timeouts:
    """Since when each part of one connection makes no progress."""

    __slots__ = ("_received", "_stills", "heard_at")

    def __init__(self, now: float = 0.0) -> None:
        self.heard_at = now  # when the client has last sent something, to a second
        self._received = 0
        self._stills: list[_Still | None] = [None] * _COUNTERS

    def check(self, progress: Progress, limits: Limits, now: float) -> tuple[CloseCause, str] | None:
        """Why the connection must end; None if it need not. Call it about once a second."""
        if progress.received != self._received:
            self._received, self.heard_at = progress.received, now
        stills = self._stills
        for at, (awaited, moved, limit, cause, what) in enumerate(_watched(progress, limits)):
            still = stills[at]
            if not awaited:
                stills[at] = None
            elif still is None or still.value != moved:
                stills[at] = _Still(moved, now)
            elif limit is not None and now - still.since >= limit:
                return cause, f"{what}: {now - still.since:.0f} s"
        return None


def _watched(at: Progress, limits: Limits) -> Iterator[_Watched]:
    """Per counter: whether it should increase now, its value, its limit, and the cause and text if it does not."""
    slow, stalled = CloseCause.SLOW_FRAME, CloseCause.STALLED
    frame, stall = limits.frame_timeout, limits.stall_timeout
    moved = at.received + at.answered
    idle = "no traffic" if moved else "nothing was sent"
    yield at.request_begun, at.received, frame, slow, "an incomplete request (limits.frame-timeout)"
    yield at.answer_begun, at.answered, frame, slow, "an incomplete answer (limits.frame-timeout)"
    yield at.broker_blocks, at.to_broker, stall, stalled, "the broker accepts no bytes (limits.stall-timeout)"
    yield at.client_blocks, at.to_client, stall, stalled, "the client accepts no bytes (limits.stall-timeout)"
    yield at.abandoned, 0, limits.linger_seconds, CloseCause.ABANDONED, "the client has left (limits.linger-seconds)"
    yield at.nothing_due, moved, limits.idle_timeout, CloseCause.IDLE, f"{idle} (limits.idle-timeout)"


class Watched(Protocol):
    def check_progress(self, now: float) -> None:
        """End the connection if it makes no progress."""


async def watch(connections: Callable[[], Iterable[Watched]], period: float = CHECK_SECONDS) -> None:
    """Runs until cancelled. `period`: in seconds."""
    while True:
        await trio.sleep(period)
        now = trio.current_time()
        for connection in list(connections()):
            connection.check_progress(now)
