"""Brokers and mirrors of Kafka 3.9.1 and 4.3.0 in every combination; the other tests have 4.3.0 on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shoal.scenarios.kafka.content.records import oddities, orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, fill
from tests.brokers.mirror.rig.flow import Wiring, flowing

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair


async def copy(
    pair: Pair, topic: str, aliases: Aliases, work: Path, mirror: str, *, compression: str = "producer"
) -> None:
    bootstrap = pair.source.bootstrap
    await Topics(bootstrap).create(topic, 4, config={"compression.type": compression})
    wiring = Wiring(topics=topic, tasks=2, version=mirror)
    async with flowing(pair, aliases, work, wiring) as flow:
        for seed, codec in enumerate(("zstd", "gzip", "lz4", "snappy", "none")):
            layout = Layout(partitions=4, run=100)
            await fill(bootstrap, topic, orders(4_000, seed=seed), layout=layout, compression_type=codec)
            await fill(bootstrap, topic, oddities(400, seed=seed), layout=layout, compression_type=codec)
            if seed == 0:
                await flow.check(topic)  # later records are wrapped
        await flow.check(topic)
    assert flow.counts()["unwrapped_records"] >= flow.counts()["wrapped_records"] > 5_000
    assert flow.counts()["claim_checks"] > 0


@pytest.mark.slow
async def test_mirror_3_9_on_brokers_3_9(pair_39: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    await copy(pair_39, topic, aliases, tmp_path, "3.9.1")


async def test_mirror_4_3_on_brokers_3_9(pair_39: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    """Kafka 3.9 refuses Fetch requests below v10 for topics with this compression.type, so Shoal's own must not be."""
    await copy(pair_39, topic, aliases, tmp_path, "4.3.0", compression="zstd")


@pytest.mark.slow
async def test_mirror_3_9_on_brokers_4_3(pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    await copy(pair, topic, aliases, tmp_path, "3.9.1")
