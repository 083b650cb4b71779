"""The unwrap listener with a real broker that is killed, and connections that are cut, with a client that retries like
a mirror.

The client sends each request again, the same bytes, over a new connection if the old one is lost, until it is answered
without an error. Unlike a mirror it never reads again, so at the end every record must be on the target once, in order.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

import pytest
import trio
from kio.schema.errors import ErrorCode

from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.wire.compression import Codec
from shoal.scenarios.kafka.broker import ClusterSpec
from shoal.scenarios.kafka.content.copies import read_copy
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.rig.flow import logged
from tests.support.kafka.relay import RELAY_HOST, Faults, relay
from tests.support.shallow.rig import Producer
from tests.support.shallow.world import context, flat, poll
from tests.support.shallow.wrapping import wrap_record_set
from tests.support.shoal_process import ShoalProcess, free_port_block, running_shoal, write_toml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster
    from tests.support.kafka.clusters import Pair, SharedClusters

PARTITIONS = 2
REQUESTS = 60
BATCHES = 30  # of an envelope
RECORDS = 3  # of a batch
WITHIN = 120.0
DRAIN_S = 1.0
STOPS = 8
LOST = OSError, trio.BrokenResourceError, trio.ClosedResourceError, AssertionError


@dataclass
class Stubborn:
    """A producer that retries forever. Its topic has `PARTITIONS` partitions."""

    port: int
    topic: str
    client: Producer | None = None
    losses: int = 0
    errors: list[str] = field(default_factory=list)
    last: dict[int, int] = field(default_factory=dict)  # base offset of the last answer, by partition

    async def send(self, sets: dict[int, bytes]) -> None:
        """Retry until each partition is answered without an error."""
        with trio.fail_after(WITHIN):
            while sets:
                try:
                    answers = await self.attempt(sets)
                except LOST:
                    self.losses += 1
                    await self.leave()
                    await trio.sleep(0.1)
                    continue
                self.errors += [code.name for code, _ in answers.values() if code is not ErrorCode.none]
                done = {index: offset for index, (code, offset) in answers.items() if code is ErrorCode.none}
                self.last |= done
                sets = {index: outer for index, outer in sets.items() if index not in done}

    async def attempt(self, sets: dict[int, bytes]) -> dict[int, tuple[ErrorCode, int]]:
        if self.client is None:
            self.client = Producer(await trio.open_tcp_stream("127.0.0.1", self.port))
            self.client.version = 9
            await self.client.agree()
        await self.client.send(self.client.request({(self.topic, index): outer for index, outer in sets.items()}))
        return await self.client.answers()

    async def leave(self) -> None:
        if self.client is not None:
            await trio.aclose_forcefully(self.client.stream)
            self.client = None


class Load:
    """Requests with one envelope per partition, and their records."""

    def __init__(
        self, seed: int, since: int = 1_700_000_000_000, source: str = "source-cluster", batches: int = BATCHES
    ) -> None:
        self._since = since
        self._source = source
        self._batches = batches
        self._random = random.Random(seed)
        self._serials = count(seed << 32)
        self.records: dict[int, list[NewRecord]] = {index: [] for index in range(PARTITIONS)}

    def requests(self, number: int) -> Iterator[dict[int, bytes]]:
        for _ in range(number):
            yield {index: self._envelope(index) for index in range(PARTITIONS)}

    def _envelope(self, index: int) -> bytes:
        source = b"".join(self._batch(index) for _ in range(self._batches))
        about = context(cluster=self._source, partition=index, serials=lambda: next(self._serials))
        made = wrap_record_set(source, 0, len(source), about)
        assert made.parts
        return self._outer_batch([seen.record for seen in poll(flat(made.parts))])

    def _outer_batch(self, records: list[NewRecord]) -> bytes:
        return encode_batch(records)

    def _batch(self, index: int) -> bytes:
        base = len(self.records[index])
        new = [
            NewRecord(self._since + base + at, b"%d" % (base + at), self._random.randbytes(200))
            for at in range(RECORDS)
        ]
        self.records[index] += new
        stamps = {"producer_id": 9, "producer_epoch": 1, "base_sequence": base}
        return encode_batch(new, base_offset=base, codec=self._random.choice((Codec.LZ4, Codec.NONE)), **stamps)


async def check(load: Load, cluster: Cluster, topic: str, sender: Stubborn) -> None:
    """Every record is there once, in order, and the last answer was the offset of the last record."""
    copy = await read_copy(cluster.bootstrap, topic)
    for index, records in load.records.items():
        there = copy.partitions[index]
        assert len(there.offsets) == len(records), f"{len(records)} were sent, {len(there.offsets)} are there"
        assert list(there.offsets) == list(range(len(records)))
        assert list(there.fingerprints) == marks(records)
        assert sender.last[index] == len(records) - 1


def shoal_before(bootstrap: str, work: Path, multi_batch: str = "never") -> tuple[ShoalProcess, int]:
    """An unwrapping Shoal, and its port for broker 1."""
    port = free_port_block(3)
    document = {
        "state-dir": str(work / "state"),
        "limits": {"drain-seconds": DRAIN_S},
        "cluster": [{"name": "target", "bootstrap": bootstrap, "multi-batch": multi_batch}],
        "listener": [
            {
                "name": "target",
                "cluster": "target",
                "listen": f"127.0.0.1:{port}",
                "ports": {"1": port + 1},
                "mode": "unwrap",
            }
        ],
    }
    argv = [
        "run",
        "-c",
        str(write_toml(work / "shoal.toml", document)),
        "--log-format",
        "json",
        "--report-every",
        "0.5",
    ]
    return ShoalProcess(argv, work=work, ports=[port]), port + 1


def unwrapped(shoal: ShoalProcess) -> int:
    """Batches that the broker has acknowledged to Shoal."""
    return sum(int(str(event["unwrapped_batches"])) for event in logged(shoal, "flow"))


async def flowed(shoal: ShoalProcess, batches: float) -> None:
    process = shoal.process
    await until(lambda: unwrapped(shoal) >= batches, within=WITHIN, what="the load to flow", process=process)


async def cut_now_and_then(load: Load, sender: Stubborn, faults: Faults) -> None:
    """Every few requests an answer of the broker and all later ones are lost, or a request to it is cut off."""
    kinds = random.Random(3)
    faults.cut_from = 200
    for number, sets in enumerate(load.requests(REQUESTS)):
        if number % 4 == 3:
            what = kinds.choice(("swallow_answers", "swallow_answers", "cut_requests"))
            setattr(faults, what, 1)
        await sender.send(sets)


async def cut_and_compared(cluster: Cluster, topic: str, work: Path, multi_batch: str = "never") -> int:
    """-> the number of requests with acknowledged batches."""
    await Topics(cluster.bootstrap).create(topic, PARTITIONS)
    port = cluster.nodes[1].settings.ports.proxied
    shoal, node_port = shoal_before(f"{RELAY_HOST}:{port}", work, multi_batch)
    load, sender = Load(1), Stubborn(node_port, topic)
    async with relay(port) as faults, running_shoal(shoal):
        await cut_now_and_then(load, sender, faults)
        await sender.leave()
        await check(load, cluster, topic, sender)
    assert sum(faults.done.values()) > 10
    assert sender.losses >= 10
    return sum(int(str(event["produce_requests"])) for event in logged(shoal, "flow"))


async def test_connections_to_the_broker_that_are_cut_cost_nothing(pair: Pair, topic: str, tmp_path: Path) -> None:
    await cut_and_compared(pair.target, topic, tmp_path)


def marks(records: Iterable[NewRecord]) -> list[int]:
    return [hash((*record[:1], None, *record[1:3], ())) for record in records]


@pytest.mark.slow
async def test_two_sources_of_one_topic_over_connections_that_are_cut(pair: Pair, topic: str, tmp_path: Path) -> None:
    """At the same time, in the same partitions: neither resolves what the other one left in doubt."""
    await Topics(pair.target.bootstrap).create(topic, PARTITIONS)
    port = pair.target.nodes[1].settings.ports.proxied
    shoal, node_port = shoal_before(f"{RELAY_HOST}:{port}", tmp_path)
    loads = Load(5, source="one"), Load(6, source="two")
    senders = Stubborn(node_port, topic), Stubborn(node_port, topic)
    async with relay(port) as faults, running_shoal(shoal):
        async with trio.open_nursery() as nursery:
            for load, sender in zip(loads, senders, strict=True):
                nursery.start_soon(cut_now_and_then, load, sender, faults)
        for sender in senders:
            await sender.leave()
        copy = await read_copy(pair.target.bootstrap, topic)
    losses = [sender.losses for sender in senders]
    assert sum(losses) > 20, losses
    assert min(losses) > 1, losses  # a fault meets whichever source is next: about half of them each
    for index in range(PARTITIONS):
        there = list(copy.partitions[index].fingerprints)
        for load in loads:
            ours = marks(load.records[index])
            known = set(ours)
            assert [one for one in there if one in known] == ours
        assert len(there) == sum(len(load.records[index]) for load in loads)


async def stopped_in_doubt(
    shoal: ShoalProcess, load: Load, sender: Stubborn, faults: Faults, *, at: int, cut_after: float
) -> None:
    """Shoal gets a SIGTERM when the answer to the request with batch `at`, and all later ones, are lost or delayed."""
    before = len(load.records[0])
    (sets,) = load.requests(1)
    faults.marked = bytes(load.records[0][before + at * RECORDS].value or b"")[:16]
    faults.swallow_answers, faults.cut_after = 1, cut_after
    swallowed = faults.done.get("swallow_answers", 0)

    async def attempt() -> None:
        with pytest.raises(LOST):
            await sender.attempt(sets)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(attempt)
        await until(
            lambda: faults.done.get("swallow_answers", 0) > swallowed,
            within=WITHIN,
            what="an answer to be lost",
            poll_s=0.01,
        )
        if cut_after < DRAIN_S:
            await until(lambda: nursery.child_tasks == frozenset(), within=WITHIN, what="the connection to be lost")
        await shoal.stop()
    await sender.leave()
    await shoal.start()
    await sender.send(sets)


async def stopped_many_times_in_doubt(cluster: Cluster, topic: str, work: Path, multi_batch: str = "never") -> None:
    await Topics(cluster.bootstrap).create(topic, PARTITIONS)
    port = cluster.nodes[1].settings.ports.proxied
    shoal, node_port = shoal_before(f"{RELAY_HOST}:{port}", work, multi_batch)
    load, sender = Load(7, since=time.time_ns() // 1_000_000), Stubborn(node_port, topic)
    async with relay(port) as faults, running_shoal(shoal):
        for sets in load.requests(10):  # a broker that just started gives no producer id in the first moment
            await sender.send(sets)
        for at in (1, 5, 19, 29):
            for cut_after in (0.2, 60.0):
                await stopped_in_doubt(shoal, load, sender, faults, at=at, cut_after=cut_after)
        await sender.leave()
        await check(load, cluster, topic, sender)


@pytest.mark.slow
async def test_what_is_in_doubt_when_shoal_is_stopped_comes_once(pair: Pair, topic: str, tmp_path: Path) -> None:
    """The broker's connection is lost before the SIGTERM, or nothing is answered within the drain timeout."""
    await stopped_many_times_in_doubt(pair.target, topic, tmp_path)


async def test_shoal_that_is_stopped_many_times_at_work_appends_nothing_twice(
    pair: Pair, topic: str, tmp_path: Path
) -> None:
    await Topics(pair.target.bootstrap).create(topic, PARTITIONS)
    shoal, node_port = shoal_before(pair.target.nodes[1].address, tmp_path)
    load, sender = Load(8, since=time.time_ns() // 1_000_000, batches=20 * BATCHES), Stubborn(node_port, topic)

    async def stop_and_start() -> None:
        for number in range(STOPS):
            await flowed(shoal, (number + 0.5) / STOPS * STOPS * PARTITIONS * 20 * BATCHES)
            await shoal.stop()
            await shoal.start()

    async with running_shoal(shoal), trio.open_nursery() as nursery:
        nursery.start_soon(stop_and_start)
        for sets in load.requests(2 * STOPS):
            await sender.send(sets)
        await sender.leave()
        await check(load, pair.target, topic, sender)


@pytest.mark.slow
async def test_connections_to_a_39_broker_that_are_cut_cost_nothing(pair_39: Pair, topic: str, tmp_path: Path) -> None:
    await cut_and_compared(pair_39.target, topic, tmp_path)


@pytest.fixture
def with_agent(shared_clusters: SharedClusters) -> Cluster:
    return shared_clusters.cluster("target-agent", ClusterSpec(agent=True, proxied_as=RELAY_HOST))


async def test_sets_on_connections_that_are_cut_come_once(with_agent: Cluster, topic: str, tmp_path: Path) -> None:
    """All batches of an envelope are in one set, and are sent again batch by batch if its answer is lost."""
    requests = await cut_and_compared(with_agent, topic, tmp_path, "auto")
    assert requests < REQUESTS * BATCHES / 2


@pytest.mark.slow
async def test_sets_that_are_in_doubt_when_shoal_is_stopped_come_once(
    with_agent: Cluster, topic: str, tmp_path: Path
) -> None:
    await stopped_many_times_in_doubt(with_agent, topic, tmp_path, "auto")


async def test_a_broker_that_is_killed_under_load_costs_nothing(pair: Pair, topic: str, tmp_path: Path) -> None:
    """Twice, with -9, in the middle of a pipeline. (A restarted broker knows no producer whose last record is a day
    old.)
    """
    await Topics(pair.target.bootstrap).create(topic, PARTITIONS)
    node = pair.target.nodes[1]
    shoal, node_port = shoal_before(node.address, tmp_path)
    load, sender = Load(2, since=time.time_ns() // 1_000_000), Stubborn(node_port, topic)

    async def kill_and_start() -> None:
        for share in (0.2, 0.5):
            await flowed(shoal, share * REQUESTS * PARTITIONS * BATCHES)
            node.kill()
            await node.start()

    async with running_shoal(shoal), trio.open_nursery() as nursery:
        nursery.start_soon(kill_and_start)
        for sets in load.requests(REQUESTS):
            await sender.send(sets)
        await sender.leave()
        await check(load, pair.target, topic, sender)
    assert sender.losses >= 2


@pytest.mark.slow
async def test_a_broker_stopped_in_order_while_five_requests_are_in_doubt_costs_nothing(
    pair: Pair, topic: str, tmp_path: Path
) -> None:
    """All five are appended, but afterwards the broker knows only the last one: the others are out of order for it.

    (The records are new: the broker forgets a producer whose last batch is older than a day.)
    """
    await Topics(pair.target.bootstrap).create(topic, PARTITIONS)
    node = pair.target.nodes[1]
    port = node.settings.ports.proxied
    shoal, node_port = shoal_before(f"{RELAY_HOST}:{port}", tmp_path)
    load, sender = Load(4, since=time.time_ns() // 1_000_000), Stubborn(node_port, topic)
    async with relay(port) as faults, running_shoal(shoal):
        for sets in load.requests(10):  # a broker that just started gives no producer id in the first moment
            await sender.send(sets)
        before = len(load.records[0])
        (sets,) = load.requests(1)
        faults.marked = bytes(load.records[0][before + RECORDS].value or b"")[:16]
        faults.swallow_answers, faults.cut_after = 1, 0.5
        with pytest.raises(LOST):
            await sender.attempt(sets)
        await sender.leave()
        there = (await read_copy(pair.target.bootstrap, topic)).partitions[0]
        assert len(there.offsets) == before + (1 + 5) * RECORDS, f"{len(there.offsets)} are there"
        await node.stop()
        await node.start()
        await sender.send(sets)
        await sender.leave()
        await check(load, pair.target, topic, sender)
