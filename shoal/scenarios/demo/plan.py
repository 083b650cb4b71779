"""What a demo does, in figures, and how MirrorMaker 2 is set: alike in all runs but for what Shoal asks for.

`LARGE` has batches as a busy producer makes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.scenarios.kafka.broker import Cluster, ClusterSpec, Node
from shoal.scenarios.kafka.mirror import MirrorSpec
from shoal.scenarios.kafka.traffic import Layout

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from shoal.scenarios.demo.shoal_mirror import Shoal

__all__ = [
    "ALONE",
    "BROKER_HEAP",
    "LARGE",
    "MIRROR_HEAP",
    "PARTITIONS",
    "TASKS",
    "TOPIC",
    "TUNING",
    "Plan",
    "Play",
    "RunPlan",
    "alone_only",
    "mirror_spec",
    "only_node",
]

TOPIC, PARTITIONS, TASKS = "orders", 4, 4
BROKER_HEAP, MIRROR_HEAP = "1g", "2g"  # -Xmx of kafka-server-start.sh and connect-mirror-maker.sh
ALONE = "mm2"  # the run that the others are compared with

# What operators set, in all runs alike; B is the target.
TUNING: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """One copy of the topic."""

    title: str
    column: str
    """The heading in the table."""
    shoal: tuple[str, ...] | None
    """Options of `shoal mirror`; None: without Shoal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """What is mirrored, and which runs are compared, by name; the first is ALONE."""

    opening: str
    folder: str
    """Below `build/`."""
    records: int
    codec: str
    layout: Layout
    runs: Mapping[str, RunPlan]
    counts_requests: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    play: Play
    kafka: str
    records: int
    work: Path

    def cluster(self) -> ClusterSpec:
        return ClusterSpec(version=self.kafka, heap=BROKER_HEAP, quick=False, jmx=self.play.counts_requests)


# The first records go unwrapped, until the mirror is proven to be wired as it should be: Shoal compresses those.
LARGE = Play(
    opening="first by a stock MirrorMaker 2 alone, then by the same MirrorMaker 2 through `shoal mirror`.",
    folder="demo",
    records=4_000_000,
    codec="zstd",
    layout=Layout(partitions=PARTITIONS),
    runs={
        ALONE: RunPlan(title="MirrorMaker 2 alone", column="MM2 alone", shoal=None),
        "shoal": RunPlan(
            title="MirrorMaker 2 through Shoal", column="through Shoal", shoal=("--plain-compression", "zstd")
        ),
    },
)


def alone_only(play: Play) -> Mapping[str, str]:
    """Alone, MM2 has to compress what it has decompressed, as the source did. Through Shoal its producer is told not to: what
    it carries is compressed already."""
    return {"B.producer.compression.type": play.codec}


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
        extra=TUNING if shoal else {**TUNING, **alone_only(plan.play)},
    )


def only_node(cluster: Cluster) -> Node:
    (node,) = cluster.nodes.values()
    return node
