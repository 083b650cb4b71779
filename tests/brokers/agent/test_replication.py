"""Three brokers: followers copy sets, leaders change, brokers are killed and recover, and all replicas are equal."""

from collections.abc import Iterator

import pytest
import trio

from shoal.protocol.records.batch import read_batch_header
from shoal.protocol.wire.compression import Codec
from shoal.scenarios.kafka.broker import Cluster, ClusterSpec, Node
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.process import until
from tests.support.batches import consumed
from tests.support.kafka.clusters import SharedClusters

from .conftest import LINES
from .logs import as_logged, log_batches, log_bytes
from .sets import Answer, batches, produce, produce_one
from .test_transactions import ask

pytestmark = pytest.mark.agent
SENT = batches(60, tuple(Codec))


@pytest.fixture(params=LINES)
def three(shared_clusters: SharedClusters, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    name = f"agent-three-{request.param}"
    yield shared_clusters.cluster(name, ClusterSpec(version=request.param, nodes=3, agent=True))
    trio.run(shared_clusters.cluster(name, ClusterSpec()).stop)  # the next line starts three more


def leader(cluster: Cluster, topic: str) -> Node:
    alive = next(node for node in cluster.nodes.values() if node.running)
    found = ask(alive.address, "metadata", 9, {"topics": [{"name": topic}]})
    (partition,) = found.topics[0].partitions
    return cluster.nodes[int(partition.leader_id)]


async def until_led(cluster: Cluster, topic: str) -> Node:
    """The leader, when it answers as one and enough replicas are in sync: after a leader change metadata may be stale
    for a moment, and restarted followers need time to catch up."""

    def led() -> bool:
        found = leader_or_none(cluster, topic)
        if found is None or not found.running:
            return False
        answers = produce(found.address, {(topic, 0): batches(1)})
        return isinstance(answers, dict) and answers[topic, 0].error == 0

    await until(led, within=60, what=f"{topic} to be led")
    return leader(cluster, topic)


def leader_or_none(cluster: Cluster, topic: str) -> Node | None:
    try:
        return leader(cluster, topic)
    except (KeyError, ValueError):  # -1: there is none now; no partition yet: the topic is new to that broker
        return None


async def until_known(cluster: Cluster, topic: str) -> Node:
    """The leader of a new topic, when both the requested broker and the leader know it."""

    def known() -> bool:
        found = leader_or_none(cluster, topic)
        return found is not None and (found.data / f"{topic}-0").is_dir()

    await until(known, within=60, what=f"{topic} to be known")
    return leader(cluster, topic)


async def until_copies_are_equal(cluster: Cluster, topic: str) -> bytes:
    def equal() -> bool:
        return len({log_bytes(node, topic) for node in cluster.nodes.values()}) == 1

    await until(equal, within=60, what=f"all copies of {topic} to be equal")
    return log_bytes(cluster.nodes[1], topic)


async def test_sets_survive_changes_of_leaders_and_kills(three: Cluster, topic: str) -> None:
    await Topics(three.bootstrap).create(topic, replication=3, config={"min.insync.replicas": "2"})
    first = await until_known(three, topic)
    assert produce_one(first.address, topic, SENT) == Answer(0, 0)
    await until_copies_are_equal(three, topic)
    assert log_batches(first, topic) == as_logged(SENT)

    first.kill()  # right after its acknowledgement, with unflushed data
    second = await until_led(three, topic)
    assert second is not first
    answer = produce_one(second.address, topic, SENT)
    assert answer.error == 0
    await first.start()
    await until_copies_are_equal(three, topic)

    for node in three.nodes.values():
        node.kill()
    await three_start(three)
    third = await until_led(three, topic)
    assert produce_one(third.address, topic, SENT).error == 0
    whole_log_is_right(await until_copies_are_equal(three, topic), third, topic)


async def three_start(cluster: Cluster) -> None:
    async with trio.open_nursery() as nursery:
        for node in cluster.nodes.values():
            nursery.start_soon(node.start)
    await cluster.wait_whole()


def whole_log_is_right(log: bytes, node: Node, topic: str) -> None:
    """Three times the set, single batches of `until_led` between them; offsets without a gap, every CRC right."""
    found = log_batches(node, topic)
    assert b"".join(found) == log
    offset = 0
    for batch in found:
        header = read_batch_header(batch, 0, len(batch))
        assert header.base_offset == offset
        offset = header.last_offset + 1
    assert [record for batch in found for record in consumed(batch)].count(consumed(SENT[-1])[0]) == 3
    sets = [batch[16:] for batch in SENT]
    bodies = [batch[16:] for batch in found]
    starts = [index for index in range(len(bodies)) if bodies[index : index + len(sets)] == sets]
    assert len(starts) == 3
