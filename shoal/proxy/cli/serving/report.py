"""The traffic between two snapshots of the statistics, as log lines: only formatting, no clock, no counting.

One line per listener, and none without traffic (empty polls are not traffic). Sizes are in MB = 1,000,000 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from shoal.proxy.config.quantities import codes, counted, megabytes, rate, reasons
from shoal.proxy.shallow.counters import ShallowStatistics
from shoal.proxy.statistics import CaptureStatistics, CloseCause, RawStatistics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from shoal.proxy.statistics import ListenerStatistics, PathStatistics, ServerStatistics

__all__ = ["Kind", "Line", "Snapshot", "report"]

_NOTHING_SHALLOW = ShallowStatistics().values()  # keys that the lines of all listeners have
_CHATTER = 1000  # bytes per second and connection: polls and heartbeats of idle clients
# Ordinary causes, which are not reported.
_QUIET = frozenset({CloseCause.CLIENT_CLOSED, CloseCause.IDLE, CloseCause.DRAINED, CloseCause.SHUTDOWN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    at: float  # seconds of any monotonic clock
    server: ServerStatistics


class Kind(Enum):
    LISTENER = "listener"
    INDEX = "index"
    RAW_CAPTURE = "raw capture"


class Line(NamedTuple):
    """`values`: the figures of `text`, for JSON logs."""

    text: str
    values: Mapping[str, object]
    kind: Kind


def report(before: Snapshot, now: Snapshot) -> list[Line]:
    """One line per listener with traffic, connections or failures since `before`, and one for the index."""
    earlier = {listener.name: listener for listener in before.server.listeners}
    lines = []
    for listener in now.server.listeners:
        past = earlier.get(listener.name)
        paths = {type(statistics): statistics for statistics in (past.path if past else ())}
        path = [statistics.since(paths.get(type(statistics))) for statistics in listener.path]
        change = _Change(past, listener, path, now.at - before.at)
        if change.happened:
            lines.append(Line(f"{listener.name}: {change.text()}", change.values(), Kind.LISTENER))
    if now.server.capture is not None:
        lines += _index(before.server.capture or CaptureStatistics(), now.server.capture)
    if now.server.raw_capture is not None:
        lines += _raw_capture(before.server.raw_capture or RawStatistics(), now.server.raw_capture)
    return lines


def _index(before: CaptureStatistics, now: CaptureStatistics) -> Iterator[Line]:
    """No line if nothing was captured."""
    more = {name: getattr(now, name) - getattr(before, name) for name in ("written", "bytes", "dropped", "unread")}
    if any(more.values()):
        parts = [f"{counted(more['written'], 'row')} ({megabytes(more['bytes'])})"]
        parts += [f"{counted(more['dropped'], 'row')} dropped"] if more["dropped"] else []
        parts += [f"{counted(more['unread'], 'frame')} not understood"] if more["unread"] else []
        yield Line(f"index: {', '.join(parts)}", more, Kind.INDEX)


def _raw_capture(before: RawStatistics, now: RawStatistics) -> Iterator[Line]:
    """No line if nothing was captured."""
    more = {name: getattr(now, name) - getattr(before, name) for name in ("written", "bytes", "lost")}
    if any(more.values()):
        parts = [f"{counted(more['written'], 'frame')} ({megabytes(more['bytes'])})"]
        parts += [f"{counted(more['lost'], 'frame')} lost"] if more["lost"] else []
        yield Line(f"raw capture: {', '.join(parts)}", more, Kind.RAW_CAPTURE)


_TRAFFIC = ("requests", "from_client", "to_client")
_HAPPENED = ("closed", "opened", "state_errors")


class _Change(NamedTuple):
    """One listener between two snapshots."""

    before: ListenerStatistics | None
    now: ListenerStatistics
    path: Sequence[PathStatistics]
    seconds: float

    @property
    def happened(self) -> bool:
        values = self.values()
        size = self.traffic("from_client") + self.traffic("to_client")
        is_chatter = size < _CHATTER * self.seconds * max(self.now.active, 1)
        news = any(values[key] for key in _HAPPENED) or any(statistics.happened for statistics in self.path)
        return news or not is_chatter

    def traffic(self, name: str) -> int:
        value: int = getattr(self.now.traffic, name)
        return value if self.before is None else value - getattr(self.before.traffic, name)

    @property
    def opened(self) -> int:
        return self.now.opened - (self.before.opened if self.before else 0)

    @property
    def state_errors(self) -> int:
        return self.now.state_errors - (self.before.state_errors if self.before else 0)

    @property
    def closed(self) -> dict[CloseCause, int]:
        """Cause -> number of connections, without the ordinary causes."""
        earlier = self.before.closed if self.before else {}
        more = {cause: count - earlier.get(cause, 0) for cause, count in self.now.closed.items()}
        return {cause: count for cause, count in more.items() if count and cause not in _QUIET}

    def values(self) -> dict[str, object]:
        return {
            "listener": self.now.name,
            "seconds": round(self.seconds, 3),
            "connections": self.now.active,
            "in_flight": self.now.in_flight,
            "opened": self.opened,
            "closed": codes(self.closed),
            "state_errors": self.state_errors,
            **{name: self.traffic(name) for name in _TRAFFIC},
            **_NOTHING_SHALLOW,
            **dict(chain.from_iterable(statistics.values().items() for statistics in self.path)),
        }

    def text(self) -> str:
        flow = [text for statistics in self.path for text in statistics.flow(self.seconds)] or self._plain()
        details = (text for statistics in self.path for text in statistics.details())
        return "; ".join([*flow, *details, *self._trouble(), ", ".join(self._now())])

    def _now(self) -> Iterator[str]:
        yield counted(self.now.active, "connection")
        if waiting := self.now.in_flight:
            yield f"{counted(waiting, 'request')} in flight"

    def _trouble(self) -> Iterator[str]:
        if failed := self.state_errors:
            yield f"{counted(failed, 'state file')} could not be written"
        if closed := self.closed:
            yield f"connections ended: {reasons(closed)}"

    def _plain(self) -> Iterator[str]:
        sent, received = self.traffic("from_client"), self.traffic("to_client")
        if requests := self.traffic("requests"):
            number, speed = counted(requests, "request"), rate(sent + received, self.seconds)
            yield f"{number}, {megabytes(sent)} in, {megabytes(received)} out, {speed}"
