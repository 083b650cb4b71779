"""Three target brokers that are killed, join late and lose their indexes, while a mirror works."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from shoal.proxy.cli.groups.command import main as groups
from shoal.scenarios.kafka.content.clients import client_config, in_thread
from shoal.scenarios.kafka.content.reading import READ_COMMITTED, read_all
from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, Transaction, fill, fill_transactions
from tests.brokers.agent.mirror_topics.rig import FAR, dense, promote, send, starting
from tests.brokers.agent.mirror_topics.test_producers import until_promoted
from tests.brokers.agent.mirror_topics.test_replicas import reassign
from tests.brokers.agent.test_replication import three_start
from tests.brokers.mirror.rig.flow import flowing
from tests.brokers.mirror.rig.steady import steady, wrapped_more
from tests.brokers.mirror.same_offsets.rig import until_equal, wiring
from tests.brokers.mirror.same_offsets.three import (
    ON_THREE,
    create_on,
    until_in_sync,
    until_led,
    until_replicas_are_equal,
)
from tests.support.kafka.every_offset import LEVELS, Asked, Found, read_by_java, read_by_librdkafka

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka import Message

    from shoal.scenarios.kafka.broker import Cluster
    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

pytestmark = pytest.mark.slow

LATE = 100
_GROUP = "moves"


async def test_kills_late_replicas_and_lost_indexes(
    three_pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    """Logs that begin at 0, at 100 and at 5e9, and one that is written to all the time. Then each offset is read."""
    pair, target = three_pair, three_pair.target
    zero, late, far, busy = begins = [f"so-{name}-{topic}" for name in ("zero", "late", "far", "busy")]
    await begin(pair.source, begins)
    nodes = list(target.nodes.values())
    for name in begins:
        await create_on(target, f"{aliases.source}.{name}", nodes[:2], {"min.insync.replicas": "1"})
    nodes[1].kill()  # a follower that is down when the copies begin
    # A mirror sends one batch at a time, so a large one is what has several sets in flight.
    large = {f"{aliases.target}.producer.batch.size": "4194304", f"{aliases.target}.producer.linger.ms": "200"}
    wired = wiring("|".join(begins), extra={**ON_THREE, **large, "sync.topic.configs.enabled": "false"})
    async with flowing(pair, aliases, tmp_path, wired) as flow:
        copies = [flow.remote(name) for name in begins]
        await wrapped_more(flow)
        await nodes[1].start()
        for copy in copies:
            reassign(nodes[0], copy, nodes)  # a new replica
            await until_in_sync(target, copy, nodes)
        for number in range(2):
            async with steady(pair, busy, 10_000, partitions=1):
                await wrapped_more(flow)
                victim = await until_led(target, flow.remote(busy))
                victim.kill()
                await wrapped_more(flow)
            await write(pair.source, [zero, late, far], seed=10 * number)
            await victim.start()
            for copy in copies:
                await until_in_sync(target, copy, nodes)
        await until_equal(flow, *begins)
        ends = await in_thread(partial(commit_ends, pair.source.bootstrap, begins))
        between = ("--from", pair.source.bootstrap, "--to", target.bootstrap, "--prefix", f"{aliases.source}.")
        assert await in_thread(lambda: groups(["sync", *between, "--groups", _GROUP])) == 0

        for node in nodes:
            node.kill()
        for copy in copies:
            for node in nodes:
                for index in (node.data / f"{copy}-0").glob("*.*index"):
                    index.unlink()
        await three_start(target)
        await write(pair.source, begins, seed=50)  # followers learn the epoch by it
        await until_equal(flow, *begins)
        for copy in copies:
            await until_replicas_are_equal(nodes, copy)

        written = {name: await committed(pair.source, name) for name in begins}
        for name in begins:  # nothing again, nothing left out, and no reset
            first = next(offset for offset in written[name] if offset >= ends[name])
            assert await in_thread(partial(first_of_group, target.bootstrap, flow.remote(name))) == first
        assert [min(written[name]) for name in (zero, late, far)] == [0, LATE, FAR]
        assert (await Topics(target.bootstrap).spans(flow.remote(late)))[0].begin == LATE
        wanted, spans = {}, {}
        for name in (zero, late, far):
            copy, found = flow.remote(name), written[name]
            spans[copy] = range(min(found), max(found) + 1)
            wanted.update(expected(copy, spans[copy], found))
        assert await read_by_librdkafka(target.bootstrap, spans) == wanted
        assert await read_by_java(target.bootstrap, spans) == wanted


async def begin(source: Cluster, topics: list[str]) -> None:
    zero, late, far, busy = topics
    for name in topics:
        await Topics(source.bootstrap).create(name)
    assert send(source.nodes[1], far, starting(dense(FAR, 3))).error == 0
    promote(source.nodes[1], far)
    await until_promoted(source.nodes[1], far)
    await fill(source.bootstrap, late, orders(300), layout=Layout(run=50, exact=True))
    await Topics(source.bootstrap).delete_records(late, {0: LATE})
    await fill(source.bootstrap, busy, orders(20_000), layout=Layout(run=100), compression_type="none")
    await write(source, [zero, late, far], seed=1)


async def write(source: Cluster, topics: list[str], *, seed: int) -> None:
    """Transactions; the end is an aborted one and its marker, so a copy ends with a filler."""
    for name in topics:
        made = [
            Transaction(records=tuple(orders(60, seed=seed + number)), commit=commit)
            for number, commit in enumerate((True, False, True, False))
        ]
        layout = Layout(run=20)
        await fill_transactions(source.bootstrap, name, made, transactional_id=name, layout=layout)


async def committed(source: Cluster, topic: str) -> dict[int, Found]:
    found: dict[int, Found] = {}

    def take(messages: list[Message]) -> None:
        for message in messages:
            found[message.offset() or 0] = Found(message.offset() or 0, *message.timestamp())

    await read_all(source.bootstrap, topic, take, isolation_level=READ_COMMITTED)
    return found


def expected(copy: str, offsets: range, found: dict[int, Found]) -> dict[Asked, Found]:
    """What a consumer gets at each offset, whatever its isolation level: a gap gives the next record."""
    wanted, following = {}, found[offsets[-1]]
    for offset in reversed(offsets):
        following = found.get(offset, following)
        wanted.update({Asked(isolation, copy, offset): following for isolation in LEVELS})
    return wanted


def commit_ends(bootstrap: str, topics: list[str]) -> dict[str, int]:
    """A group has read all, and is behind a marker now -> its offsets."""
    consumer = Consumer({**client_config(bootstrap), "group.id": _GROUP})
    ends = {name: consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=30)[1] for name in topics}
    at = [TopicPartition(name, 0, end) for name, end in ends.items()]
    consumer.commit(offsets=at, asynchronous=False)
    consumer.close()
    return ends


def first_of_group(bootstrap: str, topic: str) -> int | None:
    settings = {"group.id": _GROUP, "auto.offset.reset": "error", "isolation.level": READ_COMMITTED}
    consumer = Consumer({**client_config(bootstrap), **settings})
    consumer.assign([TopicPartition(topic, 0)])  # from the committed offset on
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert message.error() is None, message.error()
    return message.offset()
