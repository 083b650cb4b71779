"""Metrics of mirrors: how far each partition is behind, and what was passed over."""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING, Final

from shoal.proxy.admin.metrics.metric import Metric, code, of_path
from shoal.proxy.shallow.monitor.statistics import MirrorStatistics

if TYPE_CHECKING:
    from shoal.protocol.shallow.monitor.partition import Lag
    from shoal.protocol.wire.types import TopicPartition
    from shoal.proxy.admin.metrics.metric import PartitionLag, Read, Snapshot, Values
    from shoal.proxy.statistics import ListenerStatistics

__all__ = ["MIRRORS", "MOST_PARTITIONS", "furthest_behind"]

MOST_PARTITIONS: Final = 1000
"""Partitions of a listener with series of their own: those that are furthest behind, so a maximum is right."""

_PARTITION = ("listener", "topic", "partition")


def furthest_behind(listener: ListenerStatistics) -> list[PartitionLag]:
    """At most `MOST_PARTITIONS`."""
    found = next((one for one in listener.path if isinstance(one, MirrorStatistics)), None)
    return [] if found is None else nlargest(MOST_PARTITIONS, found.worst().items(), key=_how_far)


def _how_far(item: tuple[TopicPartition, Lag]) -> tuple[float, int, TopicPartition]:
    partition, lag = item
    return lag.seconds, lag.records, partition


def _lag(field: str) -> Read:
    def read(snapshot: Snapshot) -> Values:
        for name, partitions in snapshot.furthest_behind.items():
            for (topic, partition), lag in partitions:
                yield (name, topic, str(partition)), getattr(lag, field)

    return read


def _partitions(snapshot: Snapshot) -> Values:
    for name, found in of_path(MirrorStatistics, snapshot):
        for state, count in found.partitions().items():
            yield (name, state), count


def _gaps(snapshot: Snapshot) -> Values:
    for name, found in of_path(MirrorStatistics, snapshot):
        for kind, count in found.gaps.items():
            yield (name, code(kind)), count


_BOUND = f"Of a listener, the {MOST_PARTITIONS} partitions that are furthest behind; of several mirrors, the slowest."

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
        help="How long the oldest record that is not mirrored has been in the source's log, as far as Shoal has seen.",
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
