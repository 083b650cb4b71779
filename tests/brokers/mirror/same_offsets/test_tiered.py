"""A copy whose older segments are in tiered storage: they are read from there, and can't be compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from shoal.scenarios.kafka.broker import ClusterSpec
from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.scan import Scanner
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, fill
from shoal.scenarios.kafka.mirror import Mirror
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.rig.flow import WITHIN, flowing
from tests.brokers.mirror.same_offsets.conftest import BEGINNING_FAR, OPTIONS
from tests.brokers.mirror.same_offsets.rig import until_equal, wiring
from tests.support.kafka.clusters import Pair
from tests.support.kafka.tiered import TIERED_TOPIC, tiered_properties, tiered_storage

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Aliases
    from tests.support.kafka.clusters import SharedClusters

pytestmark = pytest.mark.slow

HUNDREDS = Layout(run=100)


@pytest.fixture
def tiered_pair(shared_clusters: SharedClusters, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    properties = tiered_properties(trio.run(tiered_storage), tmp_path_factory.mktemp("tiered"))
    source = shared_clusters.cluster("offsets-far-source", ClusterSpec(agent=True, jvm_options=BEGINNING_FAR))
    spec = ClusterSpec(agent=True, jvm_options=OPTIONS, properties=properties)
    target = shared_clusters.cluster("offsets-tiered-target", spec)
    return Pair(source=source, target=target, scanners=(Scanner(source.bootstrap), Scanner(target.bootstrap)))


async def test_a_copy_in_tiered_storage_goes_on(tiered_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path) -> None:
    pair, copy = tiered_pair, f"{aliases.source}.{kept}"
    (broker,) = pair.target.nodes.values()
    await Topics(pair.source.bootstrap).create(kept)
    await Topics(pair.target.bootstrap).create(copy, config=TIERED_TOPIC)
    await fill(pair.source.bootstrap, kept, orders(10_000), layout=HUNDREDS, compression_type="none")
    async with flowing(pair, aliases, tmp_path, wiring(kept, extra={"sync.topic.configs.enabled": "false"})) as flow:
        await until_equal(flow, kept)
        await until(lambda: is_elsewhere(broker.data / f"{copy}-0"), within=WITHIN, what="all to be elsewhere")
        await until_equal(flow, kept)
        assert await flow.running.stop()
        flow.mirror = await Mirror.start(tmp_path, flow.spec)
        await fill(pair.source.bootstrap, kept, orders(500, seed=1), layout=HUNDREDS, compression_type="none")
        await until_equal(flow, kept)
        assert flow.events("same-offsets-stopped") == []


def is_elsewhere(partition: Path) -> bool:
    """The broker has an empty segment only."""
    return [segment.stat().st_size for segment in partition.glob("*.log")] == [0]
