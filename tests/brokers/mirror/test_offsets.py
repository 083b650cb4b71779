"""Consumer groups continue at the target where they were, and skip nothing (sync.group.offsets.enabled)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition

from shoal.scenarios.kafka.content.clients import client_config, in_thread
from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, fill
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.rig.flow import WITHIN, Wiring, flowing

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

RUN = 100
# An envelope holds at most 512 KiB; a batch here has about 9 kB.
ENVELOPE_RECORDS = 512 * 1024 // 9_000 * RUN


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    """Commit like a group that has consumed everything before `offset`."""
    consumer = Consumer(client_config(bootstrap, group_id=group, enable_auto_commit=False))
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def committed(bootstrap: str, group: str, topic: str) -> int:
    consumer = Consumer(client_config(bootstrap, group_id=group))
    try:
        found = consumer.committed([TopicPartition(topic, 0)], timeout=10)
    finally:
        consumer.close()
    return found[0].offset


async def test_a_group_goes_on_at_the_target_without_skipping(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    groups = {f"{topic}-{offset}": offset for offset in (50, 4_777, 9_050, 11_000, 11_999)}
    extra = {
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        f"{aliases.source}->{aliases.target}.groups": f"{topic}-.*",
    }
    bootstrap, target = pair.source.bootstrap, pair.target.bootstrap
    await Topics(bootstrap).create(topic, 1)
    for group in groups:
        await in_thread(partial(commit, bootstrap, group, topic, 0))
    async with flowing(pair, aliases, tmp_path, Wiring(topics=topic, tasks=1, extra=extra)) as flow:
        # MM2 translates only the last offset of earlier records.
        await flow.running.process.until_printed("starting checkpoint and offset sync stores", within=WITHIN)
        for seed in range(4):
            await fill(bootstrap, topic, orders(3_000, seed=seed), layout=Layout(run=RUN), compression_type="zstd")
            await flow.check(topic)
        assert flow.counts()["wrapped_records"] > 5_000
        for group, offset in groups.items():
            await in_thread(partial(commit, bootstrap, group, topic, offset))

        for group, offset in groups.items():
            # MM2 keeps 64 offset syncs, ever further apart the older they are: half of the way back at most.
            reread = max(ENVELOPE_RECORDS, (12_000 - offset) * 2)

            async def is_there(group: str = group, offset: int = offset, reread: int = reread) -> bool:
                place = await in_thread(partial(committed, target, group, flow.remote(topic)))
                # The copy has the source's offsets here, so the group's true place at the target is `offset`.
                assert place <= offset, "records would be skipped"
                return place > 0 and offset - place <= reread

            await until(is_there, within=WITHIN, what=f"group {group} to be at the target", poll_s=0.5)
