"""Batches that stay with Shoal while a stock MirrorMaker 2 copies their topic: kept, and read from the source again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.scenarios.kafka.content.topics import Topics
from tests.brokers.mirror.rig.flow import Wiring, flowing
from tests.brokers.mirror.rig.steady import KILL_RECORDS, PARTITIONS, steady, warm_up, wrapped_more

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair


async def test_a_killed_shoal_redeems_the_claim_checks_of_the_one_before(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    await Topics(pair.source.bootstrap).create(topic, PARTITIONS)
    async with flowing(pair, aliases, tmp_path, Wiring(topics=topic)) as flow:
        await warm_up(pair, topic, flow)
        async with steady(pair, topic):
            for _ in range(2):
                await wrapped_more(flow)
                flow.shoal.kill()
                await flow.shoal.start()
            await wrapped_more(flow)
        await flow.check_faithful(topic, duplicates=2 * PARTITIONS * KILL_RECORDS)
        counts = flow.counts()
        assert counts["claim_checks"] > 0
        assert counts["read_again"] > 0
