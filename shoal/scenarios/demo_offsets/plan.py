"""The topics of the demo, and how clusters, Shoal and the mirror are started."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shoal.scenarios.kafka.broker import ClusterSpec
from shoal.scenarios.kafka.mirror import MirrorSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster
    from shoal.scenarios.running.shoal_mirror import Shoal

__all__ = [
    "APPEND_TIME",
    "COMPACTED",
    "GROUP",
    "LATE_START",
    "NODES",
    "PARTITIONS",
    "RECORDS",
    "ROUNDS",
    "TOPICS",
    "TRANSACTIONS",
    "Plan",
    "Topic",
    "mirrored_name",
    "names_pattern",
]

RECORDS = 200_000
NODES = PARTITIONS = 3
ROUNDS = 8  # of live traffic
GROUP = "movers"
ALIAS = "A"  # of the source
_LIVE_PERCENT = 5  # of all records, in each round; the mirror starts with the others
_TASKS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    name: str
    percent: int
    """Its share of all records."""
    codec: str
    config: Mapping[str, str] = field(default_factory=dict)


TRANSACTIONS = Topic(name="transactions", percent=20, codec="lz4")
COMPACTED = Topic(name="compacted", percent=10, codec="zstd", config={"cleanup.policy": "compact"})
APPEND_TIME = Topic(name="append-time", percent=10, codec="zstd", config={"message.timestamp.type": "LogAppendTime"})
LATE_START = Topic(name="late-start", percent=10, codec="gzip")
TOPICS = (
    Topic(name="plain-lz4", percent=15, codec="lz4"),
    Topic(name="plain-zstd", percent=15, codec="zstd"),
    Topic(name="plain-gzip", percent=10, codec="gzip"),
    Topic(name="plain-snappy", percent=10, codec="snappy"),
    TRANSACTIONS,
    COMPACTED,
    APPEND_TIME,
    LATE_START,
)


def mirrored_name(topic: str) -> str:
    """The copy's name under the mirror's default policy."""
    return f"{ALIAS}.{topic}"


def names_pattern() -> str:
    """A regular expression that matches the names of the source's topics."""
    return "|".join(topic.name for topic in TOPICS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    kafka: str
    records: int
    """To write; some of them are aborted, compacted or deleted."""
    work: Path

    def backlog(self, topic: Topic) -> int:
        """Records that are written before the mirror starts."""
        return self.records * topic.percent * (100 - ROUNDS * _LIVE_PERCENT) // 10_000

    def live(self, topic: Topic) -> int:
        """Records of one round of live traffic."""
        return self.records * topic.percent * _LIVE_PERCENT // 10_000

    def source(self) -> ClusterSpec:
        return self._cluster(agent=False)

    def target(self) -> ClusterSpec:
        return self._cluster(agent=True)

    def _cluster(self, *, agent: bool) -> ClusterSpec:
        topics = f"-Dshoal.mirror.topics={mirrored_name('').replace('.', '[.]')}({names_pattern()})"
        return ClusterSpec(
            version=self.kafka,
            nodes=NODES,
            properties={"min.insync.replicas": "2"},
            quick=False,
            agent=agent,
            jvm_options=(topics,) if agent else (),
        )

    def shoal_options(self) -> tuple[str, ...]:
        return ("--same-offsets", names_pattern(), "--follow-log-start")

    def mirror(self, source: Cluster, target: Cluster, shoal: Shoal) -> MirrorSpec:
        return MirrorSpec(
            source_alias=ALIAS,
            source=source.bootstrap,
            target=target.bootstrap,
            consumer=shoal.consumer,
            producer=shoal.producer,
            topics=",".join(topic.name for topic in TOPICS),
            tasks=_TASKS,
            version=self.kafka,
            quick=False,
            extra={
                "replication.factor": str(NODES),
                # The records of aborted transactions are not copied.
                f"{ALIAS}.consumer.isolation.level": "read_committed",
            },
        )
