"""Three brokers: replicas of mirror topics stay equal over gaps, elections and kills."""

from __future__ import annotations

import os
import random
import signal
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from shoal.protocol.records.batch import read_batch_header
from shoal.protocol.wire.compression import Codec
from shoal.scenarios.kafka.broker import Cluster, ClusterSpec, Node
from shoal.scenarios.kafka.content.topics import OffsetRange, Topics
from shoal.scenarios.kafka.process import until
from tests.brokers.agent.conftest import LINES
from tests.brokers.agent.logs import log_batches
from tests.brokers.agent.test_replication import leader_or_none, three_start, until_copies_are_equal, until_known
from tests.brokers.agent.test_transactions import ask

from .rig import FAR, MIRRORED, OPTIONS, batch, dense, flagged, probe, send
from .sender import Sender
from .test_appends import without_epochs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.kafka.clusters import SharedClusters

pytestmark = pytest.mark.agent
_PREFERRED = 0


@pytest.fixture(params=LINES)
def three(shared_clusters: SharedClusters, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    name = f"mirror-topics-three-{request.param}"
    spec = ClusterSpec(version=request.param, nodes=3, agent=True, jvm_options=OPTIONS)
    yield shared_clusters.cluster(name, spec)
    trio.run(shared_clusters.cluster(name, ClusterSpec()).stop)  # the next line starts three more


async def until_led(cluster: Cluster, topic: str) -> Node:
    found: list[Node] = []

    def led() -> bool:
        node = leader_or_none(cluster, topic)
        if node is None or not node.running or send(node, topic, probe()).error:
            return False
        found.append(node)
        return True

    await until(led, within=60, what=f"{topic} to be led")
    return found[0]


def epochs(node: Node, topic: str) -> list[tuple[int, int]]:
    """Those with records, and their first offsets. A leader knows its own epoch at once, a follower learns it with the
    first record.
    """
    end = end_of(log_batches(node, topic))
    _version, _count, *lines = (node.data / f"{topic}-0" / "leader-epoch-checkpoint").read_text().splitlines()
    known = [(int(epoch), int(start)) for epoch, start in map(str.split, lines)]
    return [(epoch, start) for epoch, start in known if start < end]


async def until_all_is_equal(cluster: Cluster, topic: str) -> list[bytes]:
    await until_copies_are_equal(cluster, topic)
    nodes = cluster.nodes.values()
    await until(lambda: len({(*epochs(node, topic),) for node in nodes}) == 1, within=30, what="equal epochs")
    return log_batches(cluster.nodes[1], topic)


def holed(count: int, *, base: int) -> list[bytes]:
    draw = random.Random(3)
    batches = []
    for _ in range(count):
        base += draw.choice([0, 0, 0, 1, 7])
        deltas = sorted(draw.sample(range(6), draw.randint(1, 5)))
        batches.append(batch(base, *deltas, last=6, codec=draw.choice(list(Codec))))
        base += 7
    return batches


def reached(counts: list[int], wanted: int) -> bool:
    return counts[-1:] > [wanted]


async def test_kills_of_leaders_with_eight_in_flight(three: Cluster, topic: str) -> None:
    name = MIRRORED + topic
    await Topics(three.bootstrap).create(name, replication=3, config={"min.insync.replicas": "2"})
    await until_known(three, name)
    batches = holed(3000, base=FAR)
    await until_led(three, name)
    acknowledged: list[int] = []
    sender = Sender(three, name, batches)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, partial(sender.run, acknowledged.append))
        for at in (700, 1900):
            await until(partial(reached, acknowledged, at), within=60, what=f"{at} batches")
            victim = await until_led(three, name)
            victim.kill()
            await until_led(three, name)
            await victim.start()
    assert sender.broken > 0
    assert acknowledged[-1] == len(batches)
    fillers = [one for one in await until_all_is_equal(three, name) if len(one) == 61]
    logged = [one for one in log_batches(three.nodes[1], name) if one not in fillers]
    assert without_epochs(logged) == without_epochs(batches)

    for node in three.nodes.values():
        node.kill()
        for index in (node.data / f"{name}-0").glob("*.*index"):
            index.unlink()
    await three_start(three)
    end = end_of(batches)
    assert (
        send(await until_led(three, name), name, flagged(dense(end, 1))).error == 0
    )  # followers learn the epoch by it
    found = [one for one in await until_all_is_equal(three, name) if one not in fillers]
    assert without_epochs(found) == without_epochs([*batches, dense(end, 1)])


async def test_replicas_that_come_later_begin_where_the_source_does(three: Cluster, topic: str) -> None:
    """A follower that was down at the start, and a new replica."""
    name = MIRRORED + topic
    await Topics(three.bootstrap).create(name, replication=2, config={"min.insync.replicas": "1"})
    await until_known(three, name)
    leader = await until_led(three, name)
    follower, other = sorted(
        (node for node in three.nodes.values() if node is not leader),
        key=lambda node: not (node.data / f"{name}-0").is_dir(),
    )
    follower.kill()
    batches = holed(20, base=FAR)
    Sender(three, name, batches).run()
    await follower.start()
    reassign(leader, name, [leader, follower, other])
    assert without_epochs(await until_all_is_equal(three, name)) == without_epochs(batches)
    files = [sorted(path.name for path in (node.data / f"{name}-0").glob("*.log")) for node in three.nodes.values()]
    assert files == [[f"{FAR:020}.log"]] * 3
    assert await Topics(three.bootstrap).spans(name) == {0: OffsetRange(FAR, end_of(batches))}


def end_of(batches: list[bytes]) -> int:
    return read_batch_header(batches[-1], 0, len(batches[-1])).last_offset + 1


async def test_a_stale_replica_behind_a_gap_at_an_election(three: Cluster, topic: str) -> None:
    """It has 110 to 129 of the old epoch, the new one goes on at 1110. Where replicas do not agree on the offset at
    which the new epoch begins, a leader that was a follower then would let it keep them."""
    name = MIRRORED + topic
    await Topics(three.bootstrap).create(name, replication=3, config={"min.insync.replicas": "1"})
    await until_known(three, name)
    old = await until_led(three, name)
    assert send(old, name, flagged(dense(0, 110))).error == 0
    await until_copies_are_equal(three, name)
    others = [node for node in three.nodes.values() if node is not old]
    for node in others:
        os.kill(node.process.pid, signal.SIGSTOP)
    for base in (110, 120):  # the first also goes to a follower that has asked before it was stopped
        assert send(old, name, flagged(dense(base, 10)), acks=1).error == 0
    old.kill()
    for node in others:
        os.kill(node.process.pid, signal.SIGCONT)
    second = await until_led(three, name)
    end = send(second, name, probe()).base_offset
    assert end in (110, 120)
    assert send(second, name, flagged(dense(1110, 5), 1110 - end)).error == 0
    (third,) = [node for node in others if node is not second]
    await lead(second, third, name, [third, second, old])
    assert await until_led(three, name) is third
    await old.start()
    assert send(third, name, flagged(dense(1115, 1))).error == 0
    known = [dense(0, 110), dense(110, 10)][: 1 + (end == 120)]
    wanted = [*known, batch(end, last=1109 - end), dense(1110, 5), dense(1115, 1)]
    assert without_epochs(await until_all_is_equal(three, name)) == without_epochs(wanted)


async def lead(now: Node, then: Node, topic: str, order: list[Node]) -> None:
    """Another leader, by preference."""
    reassign(now, topic, order)

    def led() -> bool:
        partitions = [{"topic": topic, "partitions": [0]}]
        body = {"election_type": _PREFERRED, "topic_partitions": partitions, "timeout_ms": 30_000}
        ask(now.address, "elect_leaders", 2, body)
        (found,) = ask(now.address, "metadata", 9, {"topics": [{"name": topic}]}).topics[0].partitions
        return int(found.leader_id) == then.settings.node_id

    await until(led, within=60, what=f"node {then.settings.node_id} to lead")


def reassign(through: Node, topic: str, replicas: list[Node]) -> None:
    partition = {"partition_index": 0, "replicas": [node.settings.node_id for node in replicas]}
    asked = {"timeout_ms": 30_000, "topics": [{"name": topic, "partitions": [partition]}]}
    answer = ask(through.address, "alter_partition_reassignments", 0, asked)
    assert int(answer.error_code) == int(answer.responses[0].partitions[0].error_code) == 0
