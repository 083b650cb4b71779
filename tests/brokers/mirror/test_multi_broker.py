"""A mirror whose source and target have three brokers: a connection to each, leaders that move, a broker that dies.

One cluster is both source and target, and the copy has another name: these tests need a port for every broker on both
sides, and one partition's records over several connections, one after the other.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from shoal.scenarios.kafka.content.clients import client_config, in_thread
from shoal.scenarios.kafka.content.scan import Scanner
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.java.tools import run_tool
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.rig.doubled import check_resumed, doubled
from tests.brokers.mirror.rig.flow import Wiring, flowing
from tests.brokers.mirror.rig.steady import steady, warm_up, wrapped_more
from tests.support.kafka.clusters import Pair

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster
    from tests.conftest import Aliases

PARTITIONS = 6
# Topics of MM2 outlive a broker, too; and where source and target are one, heartbeats would be copied of copies for
# ever.
EXTRA = {
    "replication.factor": "3",
    "offset-syncs.topic.replication.factor": "3",
    "checkpoints.topic.replication.factor": "3",
    "offset.storage.replication.factor": "3",
    "status.storage.replication.factor": "3",
    "config.storage.replication.factor": "3",
    "heartbeats.replication.enabled": "false",
}


@pytest.fixture
def both(three_brokers: Cluster) -> Pair:
    scanner = Scanner(three_brokers.bootstrap)
    return Pair(source=three_brokers, target=three_brokers, scanners=(scanner, scanner))


async def move_leaders(cluster: Cluster, topic: str, work: Path, *, turn: int, partitions: int = PARTITIONS) -> None:
    """Every partition gets another leader: the n-th of three orders of the replicas."""
    nodes = sorted(cluster.nodes)
    orders = [nodes[first:] + nodes[:first] for first in range(3)]
    wanted = {number: orders[(number + turn) % 3] for number in range(partitions)}
    placed = [{"topic": topic, "partition": number, "replicas": replicas} for number, replicas in wanted.items()]
    plan = work / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": placed}))
    tool = ("ReassignPartitionsCommand", "--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(plan))
    await run_tool(*tool, "--execute")
    admin = AdminClient(client_config(cluster.bootstrap))

    def moved() -> bool:
        partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions
        if all(partition.leader == wanted[number][0] for number, partition in partitions.items()):
            return True
        admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, number) for number in wanted]).result(10)
        return False

    await until(lambda: in_thread(moved), within=60, what=f"leaders of {topic} to move", poll_s=0.2)


@pytest.mark.slow
async def test_leaders_move_and_a_broker_dies(both: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    cluster = both.source
    await Topics(cluster.bootstrap).create(topic, PARTITIONS)
    extra = {**EXTRA, f"{aliases.target}.offset.flush.interval.ms": "500"}
    async with flowing(both, aliases, tmp_path, Wiring(topics=topic, extra=extra)) as flow:
        await warm_up(both, topic, flow, partitions=PARTITIONS)
        async with steady(both, topic, partitions=PARTITIONS):
            for turn in (1, 2):
                for name in (topic, flow.remote(topic)):
                    await wrapped_more(flow)
                    await move_leaders(cluster, name, tmp_path, turn=turn)
            await wrapped_more(flow)
        # The old leader of a moved partition refuses requests: nothing was appended, so there are no duplicates.
        await flow.check_faithful(topic, duplicates=0)

        async with steady(both, topic, partitions=PARTITIONS):
            await wrapped_more(flow)
            cluster.nodes[3].kill()
            await wrapped_more(flow)
            await cluster.nodes[3].start()
            await cluster.wait_whole()
            await wrapped_more(flow)
        # MM2 may have to start its tasks again where they had committed.
        await check_resumed(await doubled(flow, topic), flow, topic)
