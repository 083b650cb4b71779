"""Metrics of mirrors: how far each partition is behind, and what was passed over."""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING, Final

from shoal.protocol.shallow.monitor.partition import Lag
from shoal.proxy.admin.metrics.metric import Metric, code, of_path
from shoal.proxy.shallow.monitor.statistics import MirrorStatistics

if TYPE_CHECKING:
    from collections.abc import Collection

    from shoal.protocol.wire.types import TopicPartition
    from shoal.proxy.admin.metrics.metric import LabelledLag, Read, Snapshot, Values
    from shoal.proxy.statistics import ListenerStatistics

__all__ = ["MIRRORS", "MOST_PARTITIONS", "lags"]

MOST_PARTITIONS: Final = 1000
"""Partitions of a listener with series of their own: those that are furthest behind, so a maximum is right."""

_PARTITION = ("listener", "topic", "partition")


def lags(listener: ListenerStatistics, *, by_topic: bool) -> list[LabelledLag]:
    """By topic: at most `MOST_PARTITIONS`. Else the whole listener's, without names."""
    found = next((statistics for statistics in listener.path if isinstance(statistics, MirrorStatistics)), None)
    partitions = {} if found is None else found.worst()
    if by_topic:
        worst = nlargest(MOST_PARTITIONS, partitions.items(), key=_how_far)
        return [((topic, str(partition)), lag) for (topic, partition), lag in worst]
    return [(("", ""), _whole(partitions.values()))] if partitions else []


def _how_far(item: tuple[TopicPartition, Lag]) -> tuple[float, int, TopicPartition]:
    partition, lag = item
    return lag.seconds, lag.records, partition


def _whole(lags: Collection[Lag]) -> Lag:
    return Lag(
        records=sum(lag.records for lag in lags),
        size=sum(lag.size for lag in lags),
        seconds=max(lag.seconds for lag in lags),
    )


def _lag(field: str) -> Read:
    def read(snapshot: Snapshot) -> Values:
        for name, found in snapshot.lags.items():
            for labels, lag in found:
                yield (name, *labels), getattr(lag, field)

    return read


def _partitions(snapshot: Snapshot) -> Values:
    for name, found in of_path(MirrorStatistics, snapshot):
        for state, count in found.partitions().items():
            yield (name, state), count


def _gaps(snapshot: Snapshot) -> Values:
    for name, found in of_path(MirrorStatistics, snapshot):
        for kind, count in found.gaps.items():
            yield (name, code(kind)), count


_BOUND = (
    f"With admin.topic-labels, of the {MOST_PARTITIONS} partitions of a listener that are furthest behind; without, of "
    "the listener, and topic and partition are empty. Of several mirrors, the slowest."
)

MIRRORS = (
    Metric(
        name="shoal_mirror_lag_records",
        kind="gauge",
        help=f"Offsets between the source's end and what is at the target. {_BOUND}",
        labels=_PARTITION,
        read=_lag("records"),
    ),
    Metric(
        name="shoal_mirror_lag_bytes",
        kind="gauge",
        help="The same in bytes of the source's log, by the average size of the records before.",
        labels=_PARTITION,
        read=_lag("size"),
    ),
    Metric(
        name="shoal_mirror_lag_seconds",
        kind="gauge",
        help="How long the oldest record that is not mirrored has been in the source's log, as far as Shoal has seen: "
        "without topics, the largest.",
        labels=_PARTITION,
        read=_lag("seconds"),
    ),
    Metric(
        name="shoal_mirror_partitions",
        kind="gauge",
        help="Partitions of mirrors by state: caught_up, behind, unknown (the source does not answer), stopped (at a "
        "gap), left_out (above the limit).",
        labels=("listener", "state"),
        read=_partitions,
    ),
    Metric(
        name="shoal_mirror_gaps_total",
        kind="counter",
        help="Ranges of source records that a mirror passed over, by kind: deleted, skipped, truncated, recreated.",
        labels=("listener", "kind"),
        read=_gaps,
    ),
)
