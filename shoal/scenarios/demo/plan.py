"""What the demo does, in figures, and how MirrorMaker 2 is set: alike in both runs but for what Shoal asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.scenarios.kafka.broker import Cluster, ClusterSpec, Node
from shoal.scenarios.kafka.mirror import MirrorSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from shoal.scenarios.demo.shoal_mirror import Shoal

__all__ = [
    "ALONE_ONLY",
    "BROKER_HEAP",
    "MIRROR_HEAP",
    "PARTITIONS",
    "TASKS",
    "TOPIC",
    "TUNING",
    "Plan",
    "mirror_spec",
    "only_node",
]

TOPIC, PARTITIONS, TASKS = "orders", 4, 4
BROKER_HEAP, MIRROR_HEAP = "1g", "2g"  # -Xmx of kafka-server-start.sh and connect-mirror-maker.sh

# What operators set, in both runs alike; B is the target.
TUNING: Mapping[str, str] = {}
# Alone, MM2 has to compress what it has decompressed, as the source did. Through Shoal its producer is told not to: what it
# carries is compressed already.
ALONE_ONLY: Mapping[str, str] = {"B.producer.compression.type": "zstd"}

# The first records go unwrapped, until the mirror is proven to be wired as it should be: Shoal compresses those.
SHOAL_OPTIONS = ("--plain-compression", "zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    kafka: str
    records: int
    work: Path

    @property
    def cluster(self) -> ClusterSpec:
        return ClusterSpec(version=self.kafka, heap=BROKER_HEAP, quick=False)


def mirror_spec(plan: Plan, source: Cluster, target: Cluster, alias: str, shoal: Shoal | None) -> MirrorSpec:
    """`alias`: of the source, and so the prefix of the copy's name."""
    return MirrorSpec(
        source_alias=alias,
        source=source.bootstrap,
        target=target.bootstrap,
        consumer=shoal.consumer if shoal else None,
        producer=shoal.producer if shoal else None,
        topics=TOPIC,
        tasks=TASKS,
        version=plan.kafka,
        heap=MIRROR_HEAP,
        quick=False,
        extra=TUNING if shoal else {**TUNING, **ALONE_ONLY},
    )


def only_node(cluster: Cluster) -> Node:
    (node,) = cluster.nodes.values()
    return node
