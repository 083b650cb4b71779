"""Which clients are still there, by what their connections do. Pure: `now` is an argument.

A client that is finished closes its connections, or leaves them open and silent. So a connection counts while a request
of it has no answer, and for `QUIET_SECONDS` after its last byte. One that has sent nothing is a port scan or a health
check, and does not count.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["GONE_SECONDS", "QUIET_SECONDS", "Presence", "Seen", "named"]

QUIET_SECONDS: Final = 5.0  # a consumer's heartbeat.interval.ms is 3 s: unless it is throttled, it is never so quiet
GONE_SECONDS: Final = 1.0  # clients that connect anew for every request have none in between
_NAMED: Final = 5  # clients in a log line


class Seen(NamedTuple):
    """A connection: `number` is its own, `received` the bytes from its client, `unanswered` its requests."""

    number: int
    client: str
    received: int
    unanswered: int


class Presence:
    """The clients from `now` on: until the second look, every connected client counts."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._received: Mapping[int, int] = {}
        self._moved_at: Mapping[int, float] = {}
        self._last_at = now
        self.clients: Counter[str] = Counter()
        """Number of connections by client, as of the last look."""

    def look(self, connections: Iterable[Seen], now: float) -> None:
        received, moved_at = {}, {}
        self.clients = Counter()
        for seen in connections:
            if not seen.received and not seen.unanswered:
                continue
            has_moved = seen.unanswered or seen.received != self._received.get(seen.number)
            received[seen.number] = seen.received
            moved_at[seen.number] = now if has_moved else self._moved_at[seen.number]
            if now - moved_at[seen.number] < QUIET_SECONDS:
                self.clients[seen.client] += 1
        self._received, self._moved_at = received, moved_at
        if self.clients:
            self._last_at = now

    def gone(self, now: float) -> bool:
        """No client for a while."""
        return not self.clients and now - self._last_at >= GONE_SECONDS


def named(clients: Mapping[str, int]) -> str:
    """For the log, those with the most connections first."""
    ordered = sorted(clients.items(), key=lambda item: (-item[1], item[0]))
    texts = [f"{client} ({count} connection{'s' * (count > 1)})" for client, count in ordered[:_NAMED]]
    more = len(ordered) - _NAMED
    return ", ".join(texts) + (f", and {more} more" if more > 0 else "")
