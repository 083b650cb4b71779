"""How far a mirror is behind, by Shoal's own count, against what source and target have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.rig.flow import Flow, Wiring, flowing
from tests.brokers.mirror.rig.steady import PARTITIONS, RUN, put, warm_up

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

WITHIN = 5.0


def lag(flow: Flow) -> int:
    """By Shoal's latest report; -1: unknown."""
    reports = [event for event in flow.events("flow") if "lag_records" in event]
    assert reports
    return -1 if reports[-1]["lag_unknown"] else int(str(reports[-1]["lag_records"]))


async def behind(flow: Flow, topic: str) -> int:
    """What the target lacks."""
    source, target = Topics(flow.pair.source.bootstrap), Topics(flow.pair.target.bootstrap)
    return await source.total(topic) - await target.total(flow.remote(topic))


async def until_behind(flow: Flow, records: int) -> None:
    """To one batch."""
    await until(
        lambda: lag(flow) >= 0 and abs(lag(flow) - records) <= (RUN if records else 0),
        within=WITHIN,
        what=f"a lag of {records}",
        process=flow.shoal.process,
    )


@pytest.mark.slow
async def test_a_mirror_is_stopped_while_a_producer_runs(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    await Topics(pair.source.bootstrap).create(topic, PARTITIONS)
    async with flowing(pair, aliases, tmp_path, Wiring(topics=topic)) as flow:
        await warm_up(pair, topic, flow)
        await until_behind(flow, 0)
        await flow.running.stop()
        for seed in (1, 2):
            await put(pair, topic, 8_000, seed=seed)
            wanted = await behind(flow, topic)
            assert wanted == seed * 8_000
            await until_behind(flow, wanted)
        flow.running.restart()
        await flow.check(topic)
        await until_behind(flow, 0)
