"""Compaction that runs to its end before the mirror starts, and never again.

The timestamps of the traffic are a millisecond apart, so `segment.ms` makes segments of a known number of records. The
cleaner's checkpoint (`cleaner-offset-checkpoint` in the log directory) is the first offset that it has not cleaned yet.
It never cleans the active segment.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shoal.scenarios.kafka.process import until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster

__all__ = ["KEPT", "cleaning_settings", "first_dirty_offset", "is_cleaned", "until_cleaned"]

KEPT: Mapping[str, str] = {"segment.ms": "604800000", "min.compaction.lag.ms": str(2**63 - 1)}
"""Topic settings that end all compaction; the mirror copies them to the target."""
_SEGMENTS = 6  # of each partition
_WITHIN_S = 120.0


def cleaning_settings(records: int) -> dict[str, str]:
    """Topic settings for `records` whose timestamps are a millisecond apart."""
    return {"segment.ms": str(max(1, records // _SEGMENTS)), "min.cleanable.dirty.ratio": "0"}


async def until_cleaned(cluster: Cluster, topic: str, partitions: int) -> None:
    """Wait until every broker has cleaned all of `topic` that can be cleaned. Raises NotReady."""
    for node in cluster.nodes.values():
        for partition in range(partitions):
            await until(
                partial(is_cleaned, node.data, topic, partition),
                within=_WITHIN_S,
                what=f"node {node.settings.node_id} to compact {topic}-{partition}",
                process=node.process,
            )


def is_cleaned(data: Path, topic: str, partition: int) -> bool:
    """`data`: a broker's log directory."""
    segments = sorted(int(path.stem) for path in (data / f"{topic}-{partition}").glob("*.log"))
    checkpoint = data / "cleaner-offset-checkpoint"
    if len(segments) < 2 or not checkpoint.is_file():
        return False
    return first_dirty_offset(checkpoint.read_text(), topic, partition) == segments[-1]


def first_dirty_offset(checkpoint: str, topic: str, partition: int) -> int | None:
    """From the text of a checkpoint: a version, a count, and a line for each partition."""
    for line in checkpoint.splitlines()[2:]:
        name, number, offset = line.split()
        if (name, int(number)) == (topic, partition):
            return int(offset)
    return None
