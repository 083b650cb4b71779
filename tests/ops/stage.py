"""What every section gets: a directory of its own, the version of Kafka, and where to report progress.

A section raises AssertionError, or an error of the harness, if what it shows is not true.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shoal.scenarios.kafka.broker import Cluster, ClusterSpec
from shoal.scenarios.kafka.content.topics import Topics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from shoal.scenarios.progress import Progress

__all__ = ["Stage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    work: Path
    kept: Path  # beside the report
    kafka: str
    progress: Progress

    def of(self, section: str) -> Stage:
        work = self.work / section
        work.mkdir()
        return replace(self, work=work)

    @asynccontextmanager
    async def one_broker(self, topic: str) -> AsyncIterator[Cluster]:
        """A cluster with this topic, of three partitions. It is killed at the end: its data is no longer needed."""
        cluster = await Cluster.start(self.work / "kafka", ClusterSpec(version=self.kafka))
        try:
            await Topics(cluster.bootstrap).create(topic, 3)
            yield cluster
        finally:
            cluster.kill_all()
