"""A target of three brokers: its copies have one partition, so that their replicas are found by topic."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewTopic

from shoal.scenarios.demo_offsets.replicas import compare_replicas
from shoal.scenarios.kafka.content.clients import client_config, in_thread
from shoal.scenarios.kafka.process import until
from tests.brokers.agent.mirror_topics.test_replicas import lead
from tests.brokers.agent.test_replication import leader_or_none
from tests.brokers.agent.test_transactions import ask
from tests.brokers.mirror.rig.flow import WITHIN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shoal.scenarios.kafka.broker import Cluster, Node

__all__ = ["ON_THREE", "create_on", "in_sync", "move", "until_in_sync", "until_led", "until_replicas_are_equal"]

ON_THREE = {f"{topic}.replication.factor": "3" for topic in ("config.storage", "offset.storage", "status.storage")} | {
    "replication.factor": "3"
}
"""The mirror goes on when a broker of the target is killed."""


async def create_on(cluster: Cluster, topic: str, replicas: Sequence[Node], config: Mapping[str, str]) -> None:
    """One partition; the first of the replicas leads it."""
    ids = [node.settings.node_id for node in replicas]
    new = NewTopic(topic, 1, replica_assignment=[ids], config=dict(config))
    admin = AdminClient(client_config(cluster.bootstrap))
    await in_thread(partial(admin.create_topics([new])[topic].result, WITHIN))
    await until_in_sync(cluster, topic, replicas)


def in_sync(cluster: Cluster, topic: str) -> set[int]:
    """Node ids, as each running broker knows them; none where they disagree."""
    known = {frozenset(_in_sync(node, topic)) for node in cluster.nodes.values() if node.running}
    return set(known.pop()) if len(known) == 1 else set()


def _in_sync(node: Node, topic: str) -> list[int]:
    (found,) = ask(node.address, "metadata", 9, {"topics": [{"name": topic}]}).topics
    return [int(one) for partition in found.partitions for one in partition.isr_nodes]


async def until_in_sync(cluster: Cluster, topic: str, replicas: Sequence[Node]) -> None:
    wanted = {node.settings.node_id for node in replicas}
    await until(
        lambda: in_sync(cluster, topic) == wanted, within=WITHIN, what=f"{wanted} in sync for {topic}", poll_s=0.2
    )


async def until_led(cluster: Cluster, topic: str) -> Node:
    """A running leader."""
    found: list[Node] = []

    def led() -> bool:
        node = leader_or_none(cluster, topic)
        found[:] = [node] if node is not None and node.running else []
        return bool(found)

    await until(led, within=WITHIN, what=f"{topic} to be led", poll_s=0.2)
    return found[0]


async def move(cluster: Cluster, topic: str, replicas: Sequence[Node]) -> None:
    """The first of these replicas leads from now on."""
    await lead(await until_led(cluster, topic), replicas[0], topic, [*replicas])


async def until_replicas_are_equal(replicas: Sequence[Node], topic: str) -> None:
    """Segments byte by byte, and the epochs that have batches."""
    folders = [node.data / f"{topic}-0" for node in replicas]

    def equal() -> bool:
        found = compare_replicas(folders)
        return found.files >= len(folders) and not found.differences

    await until(equal, within=60, what=f"the replicas of {topic} to be equal", poll_s=0.2)
