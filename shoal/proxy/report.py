"""What flowed between two snapshots of the statistics, as lines for the log: pure formatting, no clock, no counting.

One line per listener, and none where nothing happened (polls that find nothing are nothing). Bytes are told in MB = 1,000,000 bytes, as disks and networks are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from shoal.proxy.coalesce_statistics import CoalesceStatistics
from shoal.proxy.legacy_report import legacy_text
from shoal.proxy.legacy_statistics import LegacyStatistics
from shoal.proxy.quantities import counted, megabytes
from shoal.proxy.shallow_statistics import ShallowStatistics
from shoal.proxy.statistics import CaptureStatistics, CloseCause, RawStatistics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shoal.proxy.statistics import ListenerStatistics, ServerStatistics

__all__ = ["Line", "Snapshot", "report"]

_NOTHING = ShallowStatistics()
_CHATTER = 1000  # bytes per second and connection: polls and heartbeats of clients for whom there is nothing new
# How connections end every day; the others are told.
_QUIET = frozenset({CloseCause.CLIENT_CLOSED, CloseCause.IDLE, CloseCause.DRAINED, CloseCause.SHUTDOWN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    at: float  # seconds on any clock that only goes forward
    server: ServerStatistics
    shallow: Mapping[str, ShallowStatistics] = field(default_factory=dict)  # by listener
    coalescing: Mapping[str, CoalesceStatistics] = field(default_factory=dict)  # by listener
    legacy: Mapping[str, LegacyStatistics] = field(default_factory=dict)  # by listener


class Line(NamedTuple):
    """`text` is for people, `values` for machines (JSON logs)."""

    text: str
    values: Mapping[str, object]


def report(before: Snapshot, now: Snapshot) -> list[Line]:
    """A line for every listener where something flowed, connected or failed since `before`, and one for the index."""
    earlier = {listener.name: listener for listener in before.server.listeners}
    lines = []
    for listener in now.server.listeners:
        shallow = _Shallow(before.shallow.get(listener.name, _NOTHING), now.shallow.get(listener.name, _NOTHING))
        coalescing = now.coalescing.get(listener.name)
        coalesced = coalescing and coalescing.since(before.coalescing.get(listener.name, CoalesceStatistics()))
        legacy = now.legacy.get(listener.name)
        converted = legacy and legacy.since(before.legacy.get(listener.name, LegacyStatistics()))
        change = _Change(earlier.get(listener.name), listener, shallow, now.at - before.at, coalesced, converted)
        if change.happened:
            lines.append(Line(f"{listener.name}: {change.text()}", change.values()))
    if now.server.capture is not None:
        lines += _index(before.server.capture or CaptureStatistics(), now.server.capture)
    if now.server.raw_capture is not None:
        lines += _raw_capture(before.server.raw_capture or RawStatistics(), now.server.raw_capture)
    return lines


def _index(before: CaptureStatistics, now: CaptureStatistics) -> Iterator[Line]:
    """Nothing where nothing was seen."""
    more = {name: getattr(now, name) - getattr(before, name) for name in ("written", "bytes", "dropped", "unread")}
    if any(more.values()):
        parts = [f"{counted(more['written'], 'row')} ({megabytes(more['bytes'])})"]
        parts += [f"{counted(more['dropped'], 'row')} dropped"] if more["dropped"] else []
        parts += [f"{counted(more['unread'], 'frame')} not understood"] if more["unread"] else []
        yield Line(f"index: {', '.join(parts)}", {f"index_{name}": count for name, count in more.items()})


def _raw_capture(before: RawStatistics, now: RawStatistics) -> Iterator[Line]:
    """Nothing where nothing was captured."""
    more = {name: getattr(now, name) - getattr(before, name) for name in ("written", "bytes", "lost")}
    if any(more.values()):
        parts = [f"{counted(more['written'], 'frame')} ({megabytes(more['bytes'])})"]
        parts += [f"{counted(more['lost'], 'frame')} lost"] if more["lost"] else []
        yield Line(f"raw capture: {', '.join(parts)}", {f"raw_capture_{name}": count for name, count in more.items()})


class _Shallow(NamedTuple):
    before: ShallowStatistics
    now: ShallowStatistics

    def more(self, name: str) -> int:
        value: int = getattr(self.now, name) - getattr(self.before, name)
        return value

    @property
    def raw(self) -> dict[str, int]:
        """Why -> how many batches since, the most frequent reason first."""
        return self._since("raw_batches")

    @property
    def mismatches(self) -> dict[str, int]:
        return self._since("mismatches")

    def _since(self, name: str) -> dict[str, int]:
        before, now = getattr(self.before, name), getattr(self.now, name)
        more = {why: count - before.get(why, 0) for why, count in now.items()}
        return dict(sorted(((str(why), count) for why, count in more.items() if count), key=lambda item: -item[1]))


_COUNTS = (
    "envelopes",
    "wrapped_batches",
    "wrapped_records",
    "wrapped_bytes",
    "opened_envelopes",
    "unwrapped_batches",
    "unwrapped_records",
    "unwrapped_bytes",
    "produce_requests",
    "retries_suppressed",
    "partition_errors",
    "reconciled_envelopes",
)
_TRAFFIC = ("requests", "from_client", "to_client")
_HAPPENED = (*_COUNTS, "raw_batches", "mismatches", "closed", "opened", "state_errors")


class _Change(NamedTuple):
    """One listener between two snapshots."""

    before: ListenerStatistics | None
    now: ListenerStatistics
    shallow: _Shallow
    seconds: float
    coalesced: CoalesceStatistics | None
    converted: LegacyStatistics | None = None

    @property
    def happened(self) -> bool:
        values = self.values()
        size = self.traffic("from_client") + self.traffic("to_client")
        is_chatter = size < _CHATTER * self.seconds * max(self.now.active, 1)
        return not is_chatter or any(values[key] for key in _HAPPENED)

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
    def closed(self) -> dict[str, int]:
        """Cause -> how many connections ended so, the everyday causes left out."""
        earlier = self.before.closed if self.before else {}
        more = {cause: count - earlier.get(cause, 0) for cause, count in self.now.closed.items()}
        return {str(cause): count for cause, count in more.items() if count and cause not in _QUIET}

    def values(self) -> dict[str, object]:
        return {
            "listener": self.now.name,
            "seconds": round(self.seconds, 3),
            "connections": self.now.active,
            "in_flight": self.now.in_flight,
            "opened": self.opened,
            "closed": self.closed,
            "state_errors": self.state_errors,
            **{name: self.traffic(name) for name in _TRAFFIC},
            **{name: self.shallow.more(name) for name in _COUNTS},
            "raw_batches": self.shallow.raw,
            "mismatches": self.shallow.mismatches,
            **(self.coalesced.values() if self.coalesced else {}),
            **(self.converted.values() if self.converted else {}),
        }

    def text(self) -> str:
        shallow = [*self._wrapped(), *self._unwrapped()]
        parts = [*(shallow or self._plain()), *self._coalesced(), *self._legacy(), *self._raw(), *self._trouble()]
        return "; ".join([*parts, ", ".join(self._now())])

    def _now(self) -> Iterator[str]:
        yield counted(self.now.active, "connection")
        if waiting := self.now.in_flight:
            yield f"{counted(waiting, 'request')} in flight"

    def _wrapped(self) -> Iterator[str]:
        if envelopes := self.shallow.more("envelopes"):
            yield f"wrapped {self._data('wrapped')} in {counted(envelopes, 'envelope')}"

    def _coalesced(self) -> Iterator[str]:
        if self.coalesced and self.coalesced.taken:
            yield f"joined {counted(self.coalesced.taken, 'produce request')} into {self.coalesced.requests:,}"
        if self.coalesced and self.coalesced.alone:
            reasons = ", ".join(f"{why}: {count:,}" for why, count in self.coalesced.alone.items())
            yield f"{counted(sum(self.coalesced.alone.values()), 'produce request')} alone ({reasons})"

    def _legacy(self) -> Iterator[str]:
        return iter(legacy_text(self.converted) if self.converted else ())

    def _raw(self) -> Iterator[str]:
        if raw := self.shallow.raw:
            reasons = ", ".join(f"{why}: {count:,}" for why, count in raw.items())
            yield f"{counted(sum(raw.values()), 'batch')} raw ({reasons})"

    def _unwrapped(self) -> Iterator[str]:
        envelopes = self.shallow.more("opened_envelopes")
        if envelopes or self.shallow.more("unwrapped_batches"):
            requests = counted(self.shallow.more("produce_requests"), "request")
            yield f"opened {counted(envelopes, 'envelope')}, appended {self._data('unwrapped')} in {requests}"

    def _trouble(self) -> Iterator[str]:
        if again := self.shallow.more("retries_suppressed"):
            yield f"{counted(again, 'batch')} of retries not appended twice"
        if errors := self.shallow.more("partition_errors"):
            yield f"{counted(errors, 'partition error')} from the target"
        if wrong := self.shallow.mismatches:
            told = ", ".join(f"{why}: {count:,}" for why, count in wrong.items())
            yield f"{counted(sum(wrong.values()), 'mismatch')} ({told})"
        if failed := self.state_errors:
            yield f"{counted(failed, 'state file')} could not be written"
        if closed := self.closed:
            yield "connections ended: " + ", ".join(f"{cause}: {count:,}" for cause, count in closed.items())

    def _plain(self) -> Iterator[str]:
        sent, received = self.traffic("from_client"), self.traffic("to_client")
        if requests := self.traffic("requests"):
            number = counted(requests, "request")
            yield f"{number}, {megabytes(sent)} in, {megabytes(received)} out, {self._rate(sent + received)}"

    def _data(self, kind: str) -> str:
        batches, records, size = (self.shallow.more(f"{kind}_{unit}") for unit in ("batches", "records", "bytes"))
        return f"{counted(batches, 'batch')} ({records:,} records, {megabytes(size)}, {self._rate(size)})"

    def _rate(self, size: int) -> str:
        return f"{megabytes(int(size / self.seconds) if self.seconds > 0 else 0)}/s"
