"""One task for all connections: once a second it looks at what has moved, and ends what has stood still for too long.

A timer per read or write would cost more than the read itself; comparing counters costs two microseconds per connection and
second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from shoal.proxy.statistics import CloseCause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from shoal.proxy.connection.connection import Connection

__all__ = ["Timeouts", "watch"]

_PERIOD = 1.0


class _Still:
    """Since when a counter has not moved while it should have."""

    __slots__ = ("_since", "_value")

    def __init__(self) -> None:
        self._value = -1
        self._since = 0.0

    def seconds(self, awaited: bool, value: int, now: float) -> float:
        if not awaited or value != self._value:
            self._value = value if awaited else -1
            self._since = now
        return now - self._since


_Watched = tuple[_Still, bool, int, float | None, CloseCause, str]


class Timeouts:
    """What the watchdog knows of one connection."""

    __slots__ = ("_broker_reads", "_client_reads", "_handler", "_idle", "_request", "_response")

    def __init__(self) -> None:
        self._request, self._response = _Still(), _Still()
        self._broker_reads, self._client_reads = _Still(), _Still()
        self._handler, self._idle = _Still(), _Still()

    def check(self, connection: Connection, now: float) -> tuple[CloseCause, str] | None:
        """Why the connection has to end, if it has to. Synchronous; to be called about once a second."""
        for still, awaited, moved, limit, cause, what in self._watched(connection):
            seconds = still.seconds(awaited, moved, now)
            if limit is not None and seconds >= limit:
                return cause, f"{what}: {seconds:.0f} s"
        return None

    def _watched(self, connection: Connection) -> Iterator[_Watched]:
        """What has to move, whether it has to now, how far it has, its limit, and what to say when it does not."""
        limits = connection.limits
        if not connection.connected:
            yield self._idle, True, 0, limits.idle_timeout, CloseCause.IDLE, "nothing was sent (limits.idle_timeout)"
            return
        requests, responses = connection.requests, connection.responses
        to_broker, to_client = connection.upstream_out, connection.client_out
        slow, stalled = CloseCause.SLOW_FRAME, CloseCause.STALLED
        frame, stall = limits.frame_timeout, limits.stall_timeout
        asking = requests.mid_frame and not to_broker.blocked
        answering = responses.mid_frame and not to_client.blocked
        yield self._request, asking, requests.received, frame, slow, "request (limits.frame_timeout)"
        yield self._response, answering, responses.received, frame, slow, "answer (limits.frame_timeout)"
        yield self._broker_reads, to_broker.blocked, to_broker.sent, stall, stalled, "the broker (limits.stall_timeout)"
        yield self._client_reads, to_client.blocked, to_client.sent, stall, stalled, "the client (limits.stall_timeout)"
        left = connection.handling and connection.client_has_left()
        yield self._handler, left, 0, limits.linger_seconds, CloseCause.ABANDONED, "limits.linger_seconds"
        nothing_due = not (connection.in_flight or connection.handling)
        moved = requests.received + responses.received
        yield self._idle, nothing_due, moved, limits.idle_timeout, CloseCause.IDLE, "limits.idle_timeout"


async def watch(connections: Callable[[], Iterable[Connection]]) -> None:
    """Runs until cancelled."""
    while True:
        await trio.sleep(_PERIOD)
        now = trio.current_time()
        for connection in list(connections()):
            verdict = connection.vigil.check(connection, now)
            if verdict is not None:
                connection.abort(*verdict)
            elif connection.provisional and not connection.door.leads_nowhere:
                connection.drain()  # the client comes back, and then reaches the right broker
