"""A row of the table of metrics, and the snapshot that it reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from enum import Enum

    from shoal.protocol.shallow.monitor.partition import Lag
    from shoal.proxy.admin.share import ShareStatistics
    from shoal.proxy.lifecycle.state import ServerState
    from shoal.proxy.statistics import Histogram, ListenerStatistics, PathStatistics, ServerStatistics

    Number = float | Histogram
    LabelledLag = tuple[tuple[str, str], Lag]  # topic and partition
    Values = Iterable[tuple[tuple[str, ...], Number]]
    Read = Callable[["Snapshot"], Values]

__all__ = ["Metric", "Snapshot", "code", "of_path"]

S = TypeVar("S", bound="PathStatistics")

Kind = Literal["counter", "gauge", "histogram", "info"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All of one moment, except for the histograms, which are live: they are read when the text is made."""

    server: ServerStatistics
    version: str
    python: str
    state: ServerState
    expiries: Mapping[tuple[str, ...], float]  # (where, setting, file) -> seconds since 1970
    proofs: Mapping[tuple[str, ...], float]  # (cluster, result) -> brokers
    reachable: Mapping[str, bool]  # cluster -> the last attempt to connect succeeded
    loop_lag: Histogram
    share: ShareStatistics
    log_lines: Mapping[str, int]  # by level
    lags: Mapping[str, Sequence[LabelledLag]]  # by listener
    workers: Mapping[str, int] = field(default_factory=dict)  # number of them by state; empty for a single process
    worker_connections: Mapping[str, int] = field(default_factory=dict)  # by number
    worker_ends: int = 0

    @property
    def listeners(self) -> tuple[ListenerStatistics, ...]:
        return self.server.listeners


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """`name` is complete, with `_total` for a counter. `read` yields label values and a number."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    read: Read


def of_path(kind: type[S], snapshot: Snapshot) -> Iterator[tuple[str, S]]:
    """The listeners whose path has such counters."""
    for listener in snapshot.listeners:
        for statistics in listener.path:
            if isinstance(statistics, kind):
                yield listener.name, statistics


def code(reason: Enum) -> str:
    """A label for a reason: stable, as in the log's JSON lines."""
    return reason.name.lower()
