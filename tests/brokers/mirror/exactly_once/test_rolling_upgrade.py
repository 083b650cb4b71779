"""Rolling upgrade of the target under a running mirror: leaders move between brokers that accept produce requests with
topic names (up to 4.0) and brokers that accept topic ids (4.1 and later), so a retry may identify the same partition
differently.

One cluster is both source and target. metadata.version is that of the oldest version, which permits a downgrade.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shoal.scenarios.kafka.broker import Cluster, ClusterSpec, running_cluster
from shoal.scenarios.kafka.content.reading import READ_COMMITTED
from shoal.scenarios.kafka.content.topics import Topics
from tests.brokers.mirror.exactly_once.test_exactly_once import exactly_once, is_refused
from tests.brokers.mirror.exactly_once.test_exactly_once_clusters import both
from tests.brokers.mirror.rig.flow import Wiring, flowing
from tests.brokers.mirror.rig.steady import PARTITIONS, steady, warm_up, wrapped_more
from tests.brokers.mirror.test_multi_broker import EXTRA, move_leaders

if TYPE_CHECKING:
    from pathlib import Path

    from tests.brokers.mirror.rig.flow import Flow
    from tests.conftest import Aliases

# Heartbeats and checkpoints of MM2 may be late while a broker starts; they are not tested here.
PATIENT = {**EXTRA, "emit.checkpoints.enabled": "false"}


async def restarted_as(cluster: Cluster, node_id: int, version: str) -> None:
    node = cluster.nodes[node_id]
    await node.stop()
    await node.become(version)
    await node.start()
    await cluster.wait_whole()


async def rolled(cluster: Cluster, flow: Flow, version: str) -> None:
    for node_id in cluster.nodes:
        await restarted_as(cluster, node_id, version)
        await wrapped_more(flow)


@pytest.mark.slow
async def test_leaders_move_between_brokers_of_two_versions(topic: str, aliases: Aliases, tmp_path: Path) -> None:
    async with running_cluster(tmp_path / "cluster", ClusterSpec(version="3.9.1", nodes=3)) as cluster:
        await restarted_as(cluster, 2, "4.3.0")
        pair = both(cluster)
        await Topics(cluster.bootstrap).create(topic, PARTITIONS)
        async with flowing(pair, aliases, tmp_path, Wiring(topics=topic, extra=PATIENT)) as flow:
            await warm_up(pair, topic, flow)
            async with steady(pair, topic):
                for turn in range(1, 5):
                    await wrapped_more(flow)
                    await move_leaders(cluster, flow.remote(topic), tmp_path, turn=turn, partitions=PARTITIONS)
                await wrapped_more(flow)
            await flow.check_faithful(topic, duplicates=0)


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new"), [("3.9.1", "4.3.0"), ("4.0.2", "4.3.0")])
async def test_a_rolling_upgrade_and_back(old: str, new: str, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    async with running_cluster(tmp_path / "cluster", ClusterSpec(version=old, nodes=3)) as cluster:
        pair = both(cluster)
        await Topics(cluster.bootstrap).create(topic, PARTITIONS)
        async with flowing(pair, aliases, tmp_path, Wiring(topics=topic, extra=PATIENT)) as flow:
            await warm_up(pair, topic, flow)
            async with steady(pair, topic):
                for version in (new, old):
                    await rolled(cluster, flow, version)
            await flow.check_faithful(topic, duplicates=0)


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new"), [("3.9.1", "4.3.0"), ("4.0.2", "4.3.0")])
async def test_a_rolling_upgrade_and_back_exactly_once(
    old: str, new: str, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    async with running_cluster(tmp_path / "cluster", ClusterSpec(version=old, nodes=3)) as cluster:
        pair = both(cluster)
        wiring = Wiring(topics=topic, extra=PATIENT)
        async with exactly_once(pair, topic, aliases, tmp_path, wiring=wiring) as flow:
            async with steady(pair, topic):
                for version in (new, old):
                    await rolled(cluster, flow, version)
            await flow.check(topic, isolation=READ_COMMITTED)
            assert not is_refused(flow)
