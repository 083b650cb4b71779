"""Ordinary traffic with and without the agent: equal calls to both brokers give equal answers, logs and copies."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from shoal.protocol.records.batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, encode_batch, read_batch_header
from shoal.protocol.wire.compression import Codec
from shoal.scenarios.kafka.broker import Cluster, ClusterSpec, Node
from shoal.scenarios.kafka.content.compare import first_difference
from shoal.scenarios.kafka.content.copies import read_copy
from shoal.scenarios.kafka.content.reading import READ_COMMITTED
from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Transaction, fill, fill_transactions
from shoal.scenarios.kafka.java.tools import run_tool
from tests.support.batches import consumed, damaged
from tests.support.kafka.clusters import SharedClusters

from .conftest import LINES
from .logs import log_batches, log_bytes
from .sets import batches, exchange, records

pytestmark = pytest.mark.agent
TOPIC_CONFIGS: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "zstd": {"compression.type": "zstd"},
    "uncompressed": {"compression.type": "uncompressed"},
    "compacted": {"cleanup.policy": "compact"},
    "small": {"max.message.bytes": "2000", "segment.bytes": "1048576"},
}


def single_batches() -> Iterator[bytes]:
    """Valid requests of a client, and many invalid ones."""
    for codec in Codec:
        yield encode_batch(records(4), codec=codec)
        yield encode_batch(records(4), codec=codec, base_offset=9)
        yield encode_batch(records(2), codec=codec, last_offset_delta=5)
        yield encode_batch(records(40, size=100), codec=codec)
        yield damaged(encode_batch(records(3), codec=codec), -2)
    yield encode_batch([record._replace(key=None) for record in records(2)])
    yield encode_batch([record._replace(value=None) for record in records(2)])
    yield encode_batch(records(2), attributes=CONTROL, producer_id=5, producer_epoch=0)
    yield encode_batch(records(2), attributes=TRANSACTIONAL, producer_id=5, producer_epoch=0, base_sequence=0)
    yield encode_batch(records(2), attributes=LOG_APPEND_TIME)
    for sequence in (0, 2, 2, 0, 10, 4):  # new, next, repeated twice, a gap, next
        yield encode_batch(records(2), producer_id=77, producer_epoch=0, base_sequence=sequence)
    yield encode_batch(records(2), producer_id=77, producer_epoch=0)
    yield encode_batch(records(0), last_offset_delta=0)


def odd_sets() -> Iterator[list[bytes]]:
    """Sets that the agent leaves to Kafka."""
    good = batches(2)
    yield []
    yield [good[0][:30]]
    yield [good[0], good[1][:30]]
    yield [good[0], b"\0"]
    for position, flip in ((16, 3), (22, CONTROL), (22, TRANSACTIONAL), (8, 0x80), (11, 0xFF)):
        yield [good[0], damaged(good[1], position, flip)]
        yield [damaged(good[0], position, flip), good[1]]


class Two(NamedTuple):
    stock: Cluster
    agent: Cluster
    version: str


@pytest.fixture(params=[*LINES, "3.9.0", "4.0.0", "4.3.0"])
def two(shared_clusters: SharedClusters, request: pytest.FixtureRequest) -> Two:
    version = str(request.param)
    stock = shared_clusters.cluster(f"stock-{version}", ClusterSpec(version=version))
    return Two(stock, shared_clusters.cluster(f"agent-{version}", ClusterSpec(version=version, agent=True)), version)


def answers(node: Node, topic: str, sets: Sequence[Sequence[bytes]], versions: Sequence[int]) -> list[object]:
    return [
        exchange(node.address, {(topic, 0): one}, version=version, acks=acks)
        for version in versions
        for acks in (-1, 1)
        for one in sets
    ]


@pytest.mark.parametrize("config", TOPIC_CONFIGS)
async def test_produce_requests_are_answered_with_the_same_bytes(two: Two, topic: str, config: str) -> None:
    sets = [*([batch] for batch in single_batches()), *odd_sets()]
    versions = (3, 7, 8, 9, 11)
    found = []
    for cluster in two[:2]:
        await Topics(cluster.bootstrap).create(topic, config=TOPIC_CONFIGS[config])
        found.append(answers(cluster.nodes[1], topic, sets, versions))
    assert found[0] == found[1]
    stock, agent = (log_bytes(cluster.nodes[1], topic) for cluster in two[:2])
    assert stock == agent
    assert stock


async def test_librdkafka_writes_the_same(two: Two, topic: str) -> None:
    plain, committed = f"{topic}-plain", f"{topic}-committed"
    copies = []
    for cluster in two[:2]:
        for name in (plain, committed):
            await Topics(cluster.bootstrap).create(name, 2)
        await fill(cluster.bootstrap, plain, orders(5000), compression_type="lz4", enable_idempotence=True)
        transactions = [Transaction(records=tuple(orders(300)), commit=number % 3 != 1) for number in range(6)]
        await fill_transactions(cluster.bootstrap, committed, transactions, transactional_id=topic)
        isolated = await read_copy(cluster.bootstrap, committed, isolation=READ_COMMITTED)
        copies.append(
            (await read_copy(cluster.bootstrap, plain), isolated, await read_copy(cluster.bootstrap, committed))
        )
    for stock, agent in zip(*copies, strict=True):
        assert stock.records > 0
        assert await first_difference(stock, agent, offsets=True) is None


async def test_java_clients_see_the_same(two: Two, topic: str) -> None:
    seen = [await java_session(cluster, topic, two.version) for cluster in two[:2]]
    assert seen[0] == seen[1]
    logs = [[consumed(batch) for batch in log_batches(cluster.nodes[1], topic)] for cluster in two[:2]]
    values = [[record.value for batch in log for record in batch] for log in logs]
    assert values[0] == values[1]
    assert values[0] == [b"line %d" % number for number in range(600)]


async def java_session(cluster: Cluster, topic: str, version: str) -> list[str]:
    """Topics, two idempotent producers, a group, its offsets, configs; what the tools print, without times."""

    async def tool(name: str, *args: str, stdin: bytes = b"") -> str:
        text = await run_tool(name, "--bootstrap-server", cluster.bootstrap, *args, version=version, stdin=stdin)
        return re.sub(r"TopicId: \S+", "TopicId: *", text)

    halves = ["".join(f"line {number}\n" for number in numbers).encode() for numbers in (range(300), range(300, 600))]
    group = ("--group", f"g-{topic}")
    return [
        await tool("TopicCommand", "--create", "--topic", topic, "--partitions", "1"),
        await tool(
            "ConsoleProducer",
            "--topic",
            topic,
            "--compression-codec",
            "snappy",
            stdin=halves[0],
        ),
        await tool("ConsoleProducer", "--topic", topic, "--batch-size", "100", stdin=halves[1]),
        await tool("ConsoleConsumer", "--topic", topic, "--from-beginning", *group, "--max-messages", "600"),
        await tool("GetOffsetShell", "--topic", topic),
        await tool(
            "ConfigCommand",
            "--entity-type",
            "topics",
            "--entity-name",
            topic,
            "--alter",
            "--add-config",
            "retention.ms=-1",
        ),
        await tool("TopicCommand", "--describe", "--topic", topic),
        await tool("ConsumerGroupCommand", *group, "--topic", topic, "--reset-offsets", "--to-earliest", "--execute"),
    ]


async def test_java_transactions_are_the_same(two: Two, topic: str, tmp_path: Path) -> None:
    """Many short batches, as large as the producer makes them, of lines that are drawn equally each time."""
    lines = tmp_path / "lines"
    lines.write_text("".join(f"line {number}\n" for number in range(500)))
    drawn = []
    for cluster in two[:2]:
        await Topics(cluster.bootstrap).create(topic)
        transactions = ("--transactional-id", f"x-{topic}", "--transaction-duration-ms", "20")
        amount = ("--num-records", "4000", "--throughput", "8000", "--payload-file", str(lines))
        properties = ("--producer-props", f"bootstrap.servers={cluster.bootstrap}", "compression.type=lz4")
        told = await run_tool(
            "ProducerPerformance", "--topic", topic, *amount, *transactions, *properties, version=two.version
        )
        assert "4000 records sent" in told
        reading = ("--from-beginning", "--max-messages", "4000", "--isolation-level", "read_committed")
        printed = await run_tool(
            "ConsoleConsumer",
            "--bootstrap-server",
            cluster.bootstrap,
            "--topic",
            topic,
            *reading,
            version=two.version,
        )
        drawn.append([line for line in printed.splitlines() if line.startswith("line ")])
        headers = [read_batch_header(batch, 0, len(batch)) for batch in log_batches(cluster.nodes[1], topic)]
        assert sum(header.attributes & CONTROL != 0 for header in headers) >= 3
        assert all(header.attributes & TRANSACTIONAL for header in headers)
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 4000
