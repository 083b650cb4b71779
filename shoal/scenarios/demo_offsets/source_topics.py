"""The source as it is before the mirror starts: written, compacted, and with a log that begins late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.scenarios.demo_offsets.compaction import KEPT, cleaning_settings, until_cleaned
from shoal.scenarios.demo_offsets.plan import COMPACTED, LATE_START, NODES, PARTITIONS, TOPICS
from shoal.scenarios.demo_offsets.traffic import write_all
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.segments import segment_contents

if TYPE_CHECKING:
    from shoal.scenarios.demo.phases import Phase
    from shoal.scenarios.demo_offsets.plan import Plan
    from shoal.scenarios.kafka.broker import Cluster

__all__ = ["begin_late", "compact", "fill_source"]


async def fill_source(plan: Plan, source: Cluster, phase: Phase) -> None:
    topics = Topics(source.bootstrap)
    for topic in TOPICS:
        cleaning = cleaning_settings(plan.backlog(topic)) if topic is COMPACTED else {}
        await topics.create(topic.name, PARTITIONS, replication=NODES, config={**topic.config, **cleaning})
    await write_all(source.bootstrap, plan.backlog, seed=0)
    written = sum(map(plan.backlog, TOPICS))
    phase.done(f"{written:,} records in {len(TOPICS)} topics of {PARTITIONS} partitions, {NODES} replicas")


async def compact(plan: Plan, source: Cluster, phase: Phase) -> None:
    """Returns when the cleaner has done all that there is to do, on all brokers, and will do nothing more."""
    await until_cleaned(source, COMPACTED.name, PARTITIONS)
    await Topics(source.bootstrap).alter(COMPACTED.name, KEPT)
    left = segment_contents(source.nodes[1].data, COMPACTED.name).records
    phase.done(f"{left:,} of {plan.backlog(COMPACTED):,} records left")


async def begin_late(source: Cluster, phase: Phase) -> None:
    """Delete the first third of each partition, which ends within a batch."""
    topics = Topics(source.bootstrap)
    before = {partition: end // 3 for partition, end in (await topics.ends(LATE_START.name)).items()}
    await topics.delete_records(LATE_START.name, before)
    phase.done(f"{LATE_START.name} begins at {', '.join(map(str, before.values()))}")
