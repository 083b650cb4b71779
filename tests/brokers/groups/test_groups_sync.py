"""`shoal groups sync` from a stock broker to one with the agent: consumers of both protocols move, none is reset."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio
from confluent_kafka import Consumer, TopicPartition

from shoal.protocol.messages.groups import Committed, encode_offset_commit, read_offset_commit
from shoal.protocol.wire import types
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.proxy.config.parse import parse_addresses
from shoal.proxy.config.settings import Limits
from shoal.proxy.net.broker_client import open_client
from shoal.proxy.net.upstream import Upstream
from shoal.scenarios.kafka.broker import ClusterSpec
from shoal.scenarios.kafka.content.topics import Topics
from tests.brokers.agent.mirror_topics.rig import MIRRORED, dense, flagged, mirror_cluster, promote, send

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shoal.scenarios.kafka.broker import Cluster
    from tests.support.kafka.clusters import SharedClusters

pytestmark = pytest.mark.kafka

RECORDS = 20
PROTOCOLS = ("classic", "consumer")


@pytest.fixture(params=["4.3.0"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def source(shared_clusters: SharedClusters, version: str) -> Cluster:
    return shared_clusters.cluster(f"plain-{version}", ClusterSpec(version=version))


@pytest.fixture
def target(shared_clusters: SharedClusters, version: str) -> Cluster:
    return mirror_cluster(shared_clusters, version)


@pytest.fixture
async def mirrored(source: Cluster, target: Cluster, topic: str) -> str:
    """A topic whose records are at both clusters."""
    name = MIRRORED + topic
    for cluster, batch in ((source, dense(0, RECORDS)), (target, flagged(dense(0, RECORDS)))):
        await Topics(cluster.bootstrap).create(name)
        assert send(cluster.nodes[1], name, batch).error == 0
    return name


@pytest.fixture
def group(topic: str) -> str:
    return f"group-{topic}"


def command(source: Cluster, target: Cluster, group: str, *arguments: str) -> list[str]:
    brokers = ["--from", source.bootstrap, "--to", target.bootstrap, "--groups", group]
    return [sys.executable, "-m", "shoal", "groups", "sync", *brokers, *arguments]


async def sync(source: Cluster, target: Cluster, group: str, *arguments: str) -> tuple[int, list[str]]:
    run = partial(subprocess.run, capture_output=True, text=True, check=False, timeout=90)
    done = await trio.to_thread.run_sync(run, command(source, target, group, *arguments))
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def consumer(cluster: Cluster, group: str, protocol: str = "classic") -> Consumer:
    settings = {"group.id": group, "group.protocol": protocol, "enable.auto.commit": False}
    return Consumer({"bootstrap.servers": cluster.bootstrap, "auto.offset.reset": "error", **settings})


def read_one(reader: Consumer) -> tuple[int, bytes]:
    """-> offset and value of the next record."""
    message = reader.poll(60)
    assert message is not None
    assert message.error() is None
    return message.offset() or 0, message.value() or b""


async def commit(cluster: Cluster, group: str, topic: str, offset: int, metadata: str = "") -> None:
    """From outside of the group."""

    def run() -> None:
        one = consumer(cluster, group)
        one.commit(offsets=[TopicPartition(topic, 0, offset, metadata)], asynchronous=False)
        one.close()

    await trio.to_thread.run_sync(run)


async def committed(cluster: Cluster, group: str, topic: str) -> TopicPartition:
    def run() -> TopicPartition:
        one = consumer(cluster, group)
        (found,) = one.committed([TopicPartition(topic, 0)], timeout=30)
        one.close()
        return found

    return await trio.to_thread.run_sync(run)


async def offset(cluster: Cluster, group: str, topic: str) -> int:
    """-1001: none is committed."""
    return int((await committed(cluster, group, topic)).offset)


@asynccontextmanager
async def reading(cluster: Cluster, group: str, topic: str, protocol: str = "classic") -> AsyncIterator[Consumer]:
    """A member of the group, which has read a record."""
    member = consumer(cluster, group, protocol)
    member.subscribe([topic])
    try:
        await trio.to_thread.run_sync(read_one, member)
        yield member
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(member.close)


def copied(group: str, topic: str, value: int) -> str:
    return f"{group}: copied {topic}-0:{value}"


async def move(source: Cluster, target: Cluster, mirrored: str, group: str, protocol: str) -> None:
    await commit(source, group, mirrored, 3)
    async with reading(source, group, mirrored, protocol) as member:

        def read_on() -> None:
            assert [read_one(member)[0] for _ in range(3)] == [4, 5, 6]
            member.commit(offsets=[TopicPartition(mirrored, 0, 7, "state")], asynchronous=False)

        await trio.to_thread.run_sync(read_on)
        code, lines = await sync(source, target, group)  # while the group is active at the source
        assert (code, lines) == (0, [copied(group, mirrored, 7), "1 group: 1 offset copied, 0 in place, 0 kept"])
    found = await committed(target, group, mirrored)
    assert (found.offset, found.metadata, found.leader_epoch or -1) == (7, "state", -1)
    async with reading(target, group, mirrored, protocol) as member:
        following = await trio.to_thread.run_sync(read_one, member)
        assert following == (8, b"0: 8")
        code, lines = await sync(source, target, group)
        assert code == 1
        assert lines[0].startswith(f"{group}: left out: it has members at the target (")
        assert await refusal(target, group, mirrored) in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
    assert await offset(target, group, mirrored) == 7
    await commit(source, group, mirrored, 12)
    assert await sync(source, target, group) == (
        0,
        [copied(group, mirrored, 12), "1 group: 1 offset copied, 0 in place, 0 kept"],
    ), "a group whose members have left is inactive, whichever protocol they used"


async def refusal(cluster: Cluster, group: str, topic: str) -> int:
    """The coordinator itself refuses a commit while the group has members."""
    asked = {types.TopicPartition(topic, 0): Committed(1, None)}
    with open_client(Upstream(Limits()), parse_addresses(cluster.bootstrap)) as client:
        frame = await client.exchange(encode_offset_commit("test", group, asked))
    (code,) = read_offset_commit(frame, asked).values()
    return code


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_group_moves(source: Cluster, target: Cluster, mirrored: str, group: str, protocol: str) -> None:
    await move(source, target, mirrored, group, protocol)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.9.1"], indirect=True)
async def test_a_group_moves_between_older_brokers(source: Cluster, target: Cluster, mirrored: str, group: str) -> None:
    await move(source, target, mirrored, group, "classic")


async def test_what_is_copied_and_what_is_not(source: Cluster, target: Cluster, mirrored: str, group: str) -> None:
    await commit(source, group, mirrored, 5)
    code, lines = await sync(source, target, group, "--dry-run")
    assert (code, lines[0]) == (0, f"{group}: would copy {mirrored}-0:5")
    assert await offset(target, group, mirrored) < 0, "a dry run changes nothing"

    await commit(target, group, mirrored, 9)
    code, lines = await sync(source, target, group)
    assert (code, lines[0]) == (0, f"{group}: kept, the target is ahead: {mirrored}-0:9 (source 5)")
    assert await offset(target, group, mirrored) == 9
    code, lines = await sync(source, target, group, "--allow-backwards")
    assert (code, await offset(target, group, mirrored)) == (0, 5)

    assert send(source.nodes[1], mirrored, dense(0, 10)).error == 0  # the mirror does not have these yet
    await commit(source, group, mirrored, RECORDS + 10)
    code, lines = await sync(source, target, group)
    assert (code, lines[:2]) == (
        1,
        [
            copied(group, mirrored, RECORDS),
            f"{group}: only up to the end of the target's log: {mirrored}-0:{RECORDS} (source {RECORDS + 10})",
        ],
    )
    assert await offset(target, group, mirrored) == RECORDS
    assert send(target.nodes[1], mirrored, flagged(dense(RECORDS, 10))).error == 0
    assert (await sync(source, target, group))[0] == 0
    assert await offset(target, group, mirrored) == RECORDS + 10


async def test_topics_that_are_no_mirror_topics_are_left_out(
    source: Cluster, target: Cluster, mirrored: str, topic: str, group: str
) -> None:
    for cluster in (source, target):
        await Topics(cluster.bootstrap).create(topic)
    await commit(source, group, topic, 0)
    await commit(source, group, mirrored, 4)
    code, lines = await sync(source, target, group)
    assert (code, lines[0]) == (0, copied(group, mirrored, 4))
    assert lines[1].startswith(f"{topic}-0: left out: not a mirror topic there")
    assert await offset(target, group, topic) < 0
    assert (await sync(source, target, group, "--topics", topic))[0] == 1

    promote(target.nodes[1], mirrored)
    await commit(source, group, mirrored, 6)
    code, lines = await sync(source, target, group)
    assert (code, lines[0]) == (0, copied(group, mirrored, 6))


async def test_it_goes_on_until_a_signal(source: Cluster, target: Cluster, mirrored: str, group: str) -> None:
    await commit(source, group, mirrored, 4)
    running = await trio.lowlevel.open_process(command(source, target, group, "--every", "0.2"), stdout=subprocess.PIPE)
    assert running.stdout is not None
    with trio.fail_after(60):
        text = ""
        for value in (4, 5, 8):
            await commit(source, group, mirrored, value)
            while copied(group, mirrored, value) not in text:
                piece = await running.stdout.receive_some()
                assert piece, text
                text += piece.decode()
        running.send_signal(signal.SIGTERM)
        assert await running.wait() == 0
        text += "".join([piece.decode() async for piece in running.stdout])
    assert text.splitlines() == [copied(group, mirrored, value) for value in (4, 5, 8)]
