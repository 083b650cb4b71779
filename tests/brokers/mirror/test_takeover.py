"""Takeovers while a mirror copies, and either Shoal is killed in the middle: nothing is lost, no envelope is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.rig.flow import WITHIN, Wiring, flowing, logged
from tests.brokers.mirror.rig.steady import ENVELOPE_RECORDS, PARTITIONS, steady, warm_up, wrapped_more

if TYPE_CHECKING:
    from pathlib import Path

    from tests.brokers.mirror.rig.flow import Flow
    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

TIMES = 3


async def until_taken(flow: Flow, times: int) -> None:
    await until(
        lambda: len(logged(flow.shoal, "took-over")) >= times,
        within=WITHIN,
        what="a takeover",
        process=flow.shoal.process,
    )


@pytest.mark.slow
async def test_takeovers_while_a_mirror_copies(pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    await Topics(pair.source.bootstrap).create(topic, PARTITIONS)
    async with flowing(pair, aliases, tmp_path, Wiring(topics=topic, tables={})) as flow:
        await warm_up(pair, topic, flow)
        async with steady(pair, topic):
            for _ in range(TIMES):
                await wrapped_more(flow)
                await flow.shoal.take_over()
            await wrapped_more(flow)
        await flow.check_faithful(topic, duplicates=0)

        async with steady(pair, topic):
            await wrapped_more(flow)
            old = flow.shoal.begin_takeover()
            await until_taken(flow, TIMES + 1)
            old.kill()  # while it drains, or after
            await wrapped_more(flow)

            old = flow.shoal.begin_takeover()
            await until_taken(flow, TIMES + 2)
            flow.shoal.kill()
            flow.shoal.begin_takeover()  # from the one that drains, if it still does
            await wrapped_more(flow)
            await until(lambda: not old.running, within=WITHIN, what="the Shoal before to end")
        # Per partition and killed Shoal, at most the run that was in flight.
        await flow.check_faithful(topic, duplicates=2 * PARTITIONS * ENVELOPE_RECORDS)
