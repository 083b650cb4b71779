"""Raw Fetch v0-v3 to Kafka 4.3.0 through a legacy listener in this process: the client's view, and Shoal's
counters."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import OFFSET_BEGINNING, Message, TopicPartition

from shoal.proxy.config.settings import KIB, MIB, Limits
from shoal.scenarios.kafka.content.reading import READ_COMMITTED, read_from
from shoal.scenarios.kafka.content.records import orders, sized
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, Transaction, fill, fill_transactions
from shoal.scenarios.kafka.process import until as until_in_time
from tests.brokers.mirror.test_multi_broker import move_leaders
from tests.support.legacy.rig import Message as Old
from tests.support.legacy.rig import legacy_before

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster
    from tests.support.legacy.rig import LegacyRig, OldConsumer, Place

CODECS = ("none", "gzip", "snappy", "lz4")
PARTITIONS = 6
CHUNK = 16 * KIB
CORRUPT_MESSAGE, NOT_LEADER = 2, 6


async def in_the_log(bootstrap: str, topic: str, partitions: int, *, magic: int = 1) -> dict[Place, list[Old]]:
    """The records that a modern consumer reads."""
    seen: list[Message] = []
    starts = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
    await read_from(bootstrap, starts, seen.extend, isolation_level=READ_COMMITTED)
    found: dict[Place, list[Old]] = {(topic, number): [] for number in range(partitions)}
    for one in seen:
        timestamp = one.timestamp()[1] if magic else -1
        found[topic, one.partition() or 0].append(Old(one.offset() or 0, timestamp, one.key(), one.value()))
    return found


def ends(expected: dict[Place, list[Old]]) -> dict[Place, int]:
    return {place: messages[-1].offset + 1 for place, messages in expected.items()}


def starts(expected: dict[Place, list[Old]]) -> dict[Place, int]:
    return dict.fromkeys(expected, 0)


def in_another_format(expected: dict[Place, list[Old]], version: int) -> dict[Place, list[Old]]:
    if version > 1:
        return expected
    return {place: [message._replace(timestamp=-1) for message in messages] for place, messages in expected.items()}


async def test_every_version_reads_all_codecs_of_all_partitions_and_none_starves(modern: Cluster, topic: str) -> None:
    await Topics(modern.bootstrap).create(topic, PARTITIONS)
    layout = Layout(partitions=PARTITIONS, run=150, exact=True)
    for seed, codec in enumerate(CODECS):
        await fill(modern.bootstrap, topic, orders(5_400, seed=seed), layout=layout, compression_type=codec)
    expected = await in_the_log(modern.bootstrap, topic, PARTITIONS)
    async with legacy_before(modern.bootstrap, chunk_bytes=CHUNK, fetch_bytes=64 * KIB) as r:
        for version in range(4):
            consumer = await r.consumer(version)
            served, at = set[int](), starts(expected)
            for _ in range(2 * PARTITIONS):  # at most this many answers until each had its turn
                for place, given in (await consumer.fetch(at)).items():
                    if given.messages:
                        served.add(place[1])
                        at[place] = given.messages[-1].offset + 1
            assert served == set(range(PARTITIONS))
            got = await consumer.consume(starts(expected), ends(expected))
            assert got == in_another_format(expected, version)


async def test_batches_of_a_megabyte_come_in_chunks(modern: Cluster, topic: str) -> None:
    await Topics(modern.bootstrap).create(topic)
    layout = Layout(run=1100, exact=True)
    for codec in ("gzip", "none"):
        await fill(modern.bootstrap, topic, sized(3_300, 860), layout=layout, compression_type=codec)
    expected = await in_the_log(modern.bootstrap, topic, 1)
    async with legacy_before(modern.bootstrap, fetch_bytes=256 * KIB) as r:
        consumer = await r.consumer()
        assert await consumer.consume(starts(expected), ends(expected), most=300_000) == expected
        assert r.path.tally.chunks > r.path.tally.source_bytes // (128 * KIB)
        assert r.path.tally.source_bytes // r.path.tally.conversions > 400 * KIB


async def test_at_a_tail_of_markers_there_is_one_question_to_the_broker_for_each_of_the_client(
    modern: Cluster, topic: str
) -> None:
    await Topics(modern.bootstrap).create(topic)
    batch = tuple(orders(50))
    transactions = [Transaction(records=batch, commit=commit) for commit in (True, False, True, False, False)]
    await fill_transactions(modern.bootstrap, topic, transactions, transactional_id=topic)
    expected = await in_the_log(modern.bootstrap, topic, 1)
    async with legacy_before(modern.bootstrap) as r:
        consumer = await r.consumer()
        assert await consumer.consume(starts(expected), ends(expected)) == expected
        asked = partial(_asked, r)
        before, at = asked(), ends(expected)
        for _ in range(6):
            given = (await consumer.fetch(at, max_wait_ms=100))[topic, 0]
            assert (given.error, given.messages, given.size) == (0, [], 0)
        assert asked() - before <= 6 + 1
        await consumer.ask(at, max_wait_ms=20_000)
        await fill(modern.bootstrap, topic, orders(1, seed=9))
        assert (await consumer.answer())[topic, 0].messages


def _asked(r: LegacyRig) -> int:
    return r.inner.server.statistics().listeners[0].traffic.asked


@pytest.fixture
async def passing_topic(modern: Cluster, topic: str) -> AsyncIterator[str]:
    """Deleted afterwards, because other tests read all topics of this cluster."""
    await Topics(modern.bootstrap).create(topic)
    yield topic
    await Topics(modern.bootstrap).delete(topic)


async def test_a_damaged_batch_is_an_error_and_no_circle(
    modern: Cluster, passing_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = passing_topic
    await fill(modern.bootstrap, topic, orders(300), layout=Layout(run=100, exact=True), compression_type="gzip")
    expected = (await in_the_log(modern.bootstrap, topic, 1))[topic, 0]
    _damage(next(iter(modern.nodes.values())).data / f"{topic}-0" / "00000000000000000000.log", batch=1)
    async with legacy_before(modern.bootstrap) as r:
        consumer = await r.consumer()
        assert (await consumer.fetch({(topic, 0): 0}))[topic, 0].messages == expected[:100]
        before = _asked(r)
        for _ in range(3):
            given = (await consumer.fetch({(topic, 0): 100}, max_wait_ms=5_000))[topic, 0]
            assert (given.error, given.messages) == (CORRUPT_MESSAGE, [])
        assert _asked(r) == before + 3
        assert "offset 100" in caplog.text
        assert topic in caplog.text
        assert (await consumer.fetch({(topic, 0): 200}))[topic, 0].messages == expected[200:]


def _damage(segment: Path, *, batch: int) -> None:
    data = bytearray(segment.read_bytes())
    at = 0
    for _ in range(batch):
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    data[at + 100] ^= 0x20
    with segment.open("r+b") as file:
        file.seek(at + 100)
        file.write(data[at + 100 : at + 101])


async def slow_reader(r: LegacyRig, topic: str, *, node: int | None = None) -> OldConsumer:
    """It has requested a megabyte and reads nothing; the broker's first answer is evicted."""
    slow = await r.slow_consumer(node=node)
    await slow.ask({(topic, 0): 0})
    await r.blocked(slow)
    return slow


async def taken_back(r: LegacyRig, topic: str, *, node: int | None = None) -> OldConsumer:
    slow = await slow_reader(r, topic, node=node)
    other = await r.slow_consumer(node=node)
    await other.fetch({(topic, 0): 0})
    await until_in_time(lambda: r.budget.evictions > 0, within=10, what="the source to be taken back")
    await other.stream.aclose()
    return slow


@pytest.fixture
async def megabyte(modern: Cluster, topic: str) -> list[Old]:
    """The records of one partition in large batches."""
    await Topics(modern.bootstrap).create(topic)
    await fill(modern.bootstrap, topic, sized(1000, 1000), layout=Layout(run=500, exact=True), compression_type="gzip")
    return (await in_the_log(modern.bootstrap, topic, 1))[topic, 0]


async def test_what_was_taken_back_is_fetched_again_for_who_reads_on(
    modern: Cluster, topic: str, megabyte: list[Old]
) -> None:
    async with legacy_before(modern.bootstrap, chunk_bytes=CHUNK, budget_bytes=MIB + 600 * KIB) as r:
        slow = await taken_back(r, topic)
        given = (await slow.answer())[topic, 0]
        assert given.messages == megabyte[: len(given.messages)]
        assert given.padding < (
            CHUNK if len(given.messages) < len(megabyte) else MIB // 4
        )  # the promise was an estimate
        assert r.path.tally.resumed > 0
        at = given.messages[-1].offset + 1
        rest = await slow.consume({(topic, 0): at}, {(topic, 0): 1000})
        assert given.messages + rest[topic, 0] == megabyte


async def test_a_proxy_that_is_drained_ends_the_answer_that_it_has_begun(
    modern: Cluster, topic: str, megabyte: list[Old]
) -> None:
    limits = Limits(close_seconds=0.1)
    async with legacy_before(modern.bootstrap, chunk_bytes=CHUNK, limits=limits) as r:
        slow = await slow_reader(r, topic)
        r.inner.server.drain()
        given = (await slow.answer())[topic, 0]
        assert len(given.messages) > 900
        assert given.messages == megabyte[: len(given.messages)]
        assert await slow.at_end()


@pytest.mark.slow
async def test_a_broker_that_dies_in_the_middle_of_an_answer_leaves_whole_messages(
    modern: Cluster, topic: str, megabyte: list[Old]
) -> None:
    (node,) = modern.nodes.values()
    async with legacy_before(modern.bootstrap, chunk_bytes=CHUNK, budget_bytes=MIB + 600 * KIB) as r:
        slow = await taken_back(r, topic)
        connection = r.connection_of(slow)
        node.kill()
        await until_in_time(lambda: connection.requests.without_answers, within=10, what="the broker to be gone")
        given = (await slow.answer())[topic, 0]
        assert given.messages == megabyte[: len(given.messages)]
        assert given.padding > CHUNK
        assert await slow.at_end()
        await node.start()
        again = await r.consumer()
        at = given.messages[-1].offset + 1
        has_leader = partial(_has_leader, again, topic)
        await until_in_time(has_leader, within=30, what="a leader")
        rest = await again.consume({(topic, 0): at}, {(topic, 0): 1000})
        assert given.messages + rest[topic, 0] == megabyte


async def _has_leader(consumer: OldConsumer, topic: str) -> bool:
    return (await consumer.fetch({(topic, 0): 0}))[topic, 0].error != NOT_LEADER


@pytest.mark.slow
async def test_a_leader_that_moves_in_the_middle_of_an_answer_is_told_with_the_next(
    three_brokers: Cluster, topic: str, tmp_path: Path
) -> None:
    bootstrap = three_brokers.bootstrap
    await Topics(bootstrap).create(topic, replication=3)
    await move_leaders(three_brokers, topic, tmp_path, turn=0, partitions=1)
    await fill(bootstrap, topic, sized(1000, 1000), layout=Layout(run=500, exact=True), compression_type="gzip")
    expected = (await in_the_log(bootstrap, topic, 1))[topic, 0]
    addresses = [node.address for node in three_brokers.nodes.values()]
    first, second, _ = sorted(three_brokers.nodes)
    async with legacy_before(*addresses, chunk_bytes=CHUNK, budget_bytes=MIB + 600 * KIB) as r:
        bound_ports = r.inner.listener.ports.bound
        await until_in_time(lambda: second in bound_ports, within=10, what="the brokers to be known")
        slow = await taken_back(r, topic, node=first)
        await move_leaders(three_brokers, topic, tmp_path, turn=1, partitions=1)
        given = (await slow.answer())[topic, 0]
        assert given.messages == expected[: len(given.messages)]
        assert given.padding > CHUNK
        at = {(topic, 0): given.messages[-1].offset + 1}
        assert (await slow.fetch(at))[topic, 0].error == NOT_LEADER
        at_the_new = await r.slow_consumer(node=second)
        rest = await at_the_new.consume(at, {(topic, 0): 1000})
        assert given.messages + rest[topic, 0] == expected
