"""Three real brokers with the agent: a follower that has copied a part of a set becomes the leader, and the rest
follows.

The leader appends a set as a whole. A follower copies as many batches as fit into a fetch, so with small fetches it has
a part of the set for a while (also by default: `replica.fetch.max.bytes` is as large as a set). At that moment the
leader is killed with -9; the files on disk show when. The log shows afterwards how often this happened: each batch has
the epoch of the leader that appended it, so an envelope with two epochs was continued by another leader.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import pytest
import trio
from kio.schema.errors import ErrorCode

from shoal.protocol.records.batch import NewRecord, encode_batch, read_batch_header
from shoal.scenarios.kafka.broker import ClusterSpec, running_cluster
from shoal.scenarios.kafka.content.copies import read_copy
from shoal.scenarios.kafka.content.scan import Scanner
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.process import until
from tests.brokers.agent.logs import log_batches
from tests.brokers.agent.test_transactions import ask
from tests.brokers.mirror.rig.flow import logged
from tests.brokers.mirror.unwrap.test_produce import LOST, RECORDS, Load, Stubborn, marks
from tests.support.shoal_process import ShoalProcess, free_port_block, running_shoal, write_toml

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster, Node

pytestmark = pytest.mark.kafka

BATCHES = 300  # of an envelope: 200 kB
FETCH = 4096  # bytes: six batches
SPEC = ClusterSpec(
    nodes=3,
    agent=True,
    properties={"replica.fetch.max.bytes": str(FETCH), "broker.session.timeout.ms": "2000"},
)
PRODUCER_ID = 5_000_000  # no broker gives this one to anybody else
PARTITION = 0
SET = BATCHES * 600  # bytes, about
LEFT_OUT = 60_000  # bytes, more than 64 batches: the most that are in flight one by one
KILLS = 20
WITHIN = 120.0


class OneLoad(Load):
    """One partition; the outer batches have a mirror's own stamps if it is idempotent."""

    def __init__(self, seed: int, *, idempotent: bool) -> None:
        super().__init__(seed, since=time.time_ns() // 1_000_000, batches=BATCHES)
        self._idempotent = idempotent
        self._outer = 0
        self.envelopes = 0

    def endless(self) -> Iterator[dict[int, bytes]]:
        while True:
            self.envelopes += 1
            yield {PARTITION: self._envelope(PARTITION)}

    def _outer_batch(self, records: list[NewRecord]) -> bytes:
        if not self._idempotent:
            return super()._outer_batch(records)
        first, self._outer = self._outer, self._outer + len(records)
        return encode_batch(records, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=first)


class Roving(Stubborn):
    """Tries the next broker's port if the current one is down or does not lead the partition."""

    def __init__(self, ports: list[int], topic: str) -> None:
        super().__init__(ports[0], topic)
        self._ports = ports
        self.goes_on = trio.Event()

    async def attempt(self, sets: dict[int, bytes]) -> dict[int, tuple[ErrorCode, int]]:
        try:
            answers = await super().attempt(sets)
        except LOST:
            self._go_on()
            raise
        if any(code is ErrorCode.not_leader_or_follower for code, _ in answers.values()):
            await self.leave()
            self._go_on()
            await trio.sleep(0.05)
        return answers

    def _go_on(self) -> None:
        self.port = self._ports[(self._ports.index(self.port) + 1) % len(self._ports)]


def sizes(cluster: Cluster, topic: str) -> dict[int, int]:
    """Bytes on each broker's disk."""
    return {
        node_id: sum(segment.stat().st_size for segment in (node.data / f"{topic}-{PARTITION}").glob("*.log"))
        for node_id, node in cluster.nodes.items()
    }


async def leader_of_all_in_sync(cluster: Cluster, topic: str) -> Node:
    """Wait until every broker runs and has joined."""
    leaders = set[int]()

    def in_sync() -> bool:
        leaders.clear()
        for node in cluster.nodes.values():
            (partition,) = ask(node.address, "metadata", 9, {"topics": [{"name": topic}]}).topics[0].partitions
            leaders.add(int(partition.leader_id))
            if len(partition.isr_nodes) < len(cluster.nodes):
                return False
        return len(leaders) == 1

    await until(in_sync, within=WITHIN, what=f"all replicas of {topic} to be in sync", poll_s=0.1)
    return cluster.nodes[leaders.pop()]


async def killed_in_the_middle(cluster: Cluster, topic: str, sender: Roving) -> None:
    """Kill when the leader has a whole set and every follower a large part of it; afterwards all run again."""
    leader = await leader_of_all_in_sync(cluster, topic)
    sender.goes_on.set()

    def in_the_middle() -> bool:
        there = sizes(cluster, topic)
        ahead = there.pop(leader.settings.node_id)
        return ahead - max(there.values()) > LEFT_OUT and ahead - min(there.values()) < SET - LEFT_OUT

    await until(in_the_middle, within=WITHIN, what="a set to be copied in part", poll_s=0.001)
    leader.kill()
    sender.goes_on = trio.Event()  # meanwhile it completes what is in flight
    await leader.start()


def shoal_before_three(cluster: Cluster, work: Path) -> tuple[ShoalProcess, list[int]]:
    port = free_port_block(4)
    document = {
        "state-dir": str(work / "state"),
        "cluster": [{"name": "target", "bootstrap": cluster.bootstrap}],
        "listener": [
            {
                "name": "target",
                "cluster": "target",
                "listen": f"127.0.0.1:{port}",
                "ports": {str(node_id): port + node_id for node_id in cluster.nodes},
                "mode": "unwrap",
            }
        ],
    }
    config = write_toml(work / "shoal.toml", document)
    argv = ["run", "-c", str(config), "--log-format", "json", "--report-every", "0.5"]
    return ShoalProcess(argv, work=work, ports=[port]), [port + node_id for node_id in cluster.nodes]


class Seen(NamedTuple):
    kills: int
    envelopes: int
    parts: int  # envelopes that two leaders have appended in parts
    later: int  # batches of these that a later leader has appended
    requests: int  # answered by the brokers


async def killed_again_and_again(cluster: Cluster, work: Path, *, idempotent: bool, kills: int) -> Seen:
    """-> the observations, when every record is there once and in order, and no topic has an envelope."""
    topic = "idempotent" if idempotent else "plain"
    work = work / topic
    work.mkdir()
    await Topics(cluster.bootstrap).create(topic, replication=3, config={"min.insync.replicas": "2"})
    shoal, ports = shoal_before_three(cluster, work)
    load, sender = OneLoad(kills, idempotent=idempotent), Roving(ports, topic)
    async with running_shoal(shoal), trio.open_nursery() as nursery:
        done = trio.Event()

        async def kill_and_kill() -> None:
            for _ in range(kills):
                await killed_in_the_middle(cluster, topic, sender)
            done.set()
            sender.goes_on.set()

        nursery.start_soon(kill_and_kill)
        for sets in load.endless():
            await sender.goes_on.wait()
            await sender.send(sets)
            if done.is_set():
                break
        await sender.leave()
    leader = await leader_of_all_in_sync(cluster, topic)
    await check_one(load, cluster, topic, sender)
    assert sender.losses >= kills
    requests = sum(int(str(event["produce_requests"])) for event in logged(shoal, "flow"))
    return Seen(kills, load.envelopes, *parts(leader, topic), requests)


def parts(leader: Node, topic: str) -> tuple[int, int]:
    """-> envelopes that several leaders have appended, and their batches by later leaders."""
    epochs = defaultdict[int, list[int]](list)
    for batch in log_batches(leader, topic, PARTITION):
        header = read_batch_header(batch, 0, len(batch))
        epochs[header.base_offset // (BATCHES * RECORDS)].append(header.partition_leader_epoch)
    later = [sum(epoch != of_envelope[0] for epoch in of_envelope) for of_envelope in epochs.values()]
    return sum(map(bool, later)), sum(later)


async def check_one(load: OneLoad, cluster: Cluster, topic: str, sender: Stubborn) -> None:
    there = (await read_copy(cluster.bootstrap, topic)).partitions[PARTITION]
    records = load.records[PARTITION]
    assert len(there.offsets) == len(records), f"{len(records)} were sent, {len(there.offsets)} are there"
    assert list(there.offsets) == list(range(len(records)))
    assert list(there.fingerprints) == marks(records)
    assert sender.last[PARTITION] == len(records) - 1
    assert await Scanner(cluster.bootstrap).scan() == []


@pytest.mark.slow
async def test_what_a_new_leader_has_a_part_of_is_continued(tmp_path: Path) -> None:
    async with running_cluster(tmp_path / "cluster", SPEC) as cluster:
        for idempotent in (False, True):
            seen = await killed_again_and_again(cluster, tmp_path, idempotent=idempotent, kills=1)
            assert seen.parts == 1, seen


@pytest.mark.slow
@pytest.mark.parametrize("idempotent", [False, True], ids=["own", "mirrors"])
async def test_leaders_die_in_the_middle_of_sets_many_times(tmp_path: Path, *, idempotent: bool) -> None:
    async with running_cluster(tmp_path / "cluster", SPEC) as cluster:
        seen = await killed_again_and_again(cluster, tmp_path, idempotent=idempotent, kills=KILLS)
        print(seen)
        assert seen.parts > KILLS / 2, seen
