"""Produce v0-v2 as raw frames through Shoal to Kafka 4.3.0, and what a modern consumer reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import trio
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME

from shoal.protocol.legacy.message import Message
from shoal.protocol.wire.compression import Codec
from shoal.scenarios.kafka.content.reading import read_all
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.ports import LOOPBACK
from tests.support.batches import damaged
from tests.support.legacy.produce_frames import Said, produce_frame, said
from tests.support.legacy.sets import CODECS, golden, golden_messages, numbered, singles, wrapped
from tests.support.rig import Peer
from tests.support.shoal_process import ShoalProcess, free_port_block, running_shoal, write_toml

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster
    from tests.support.kafka.clusters import Pair

pytestmark = pytest.mark.kafka

FIRST = 1_500_000_000_000
UNKNOWN_TOPIC_OR_PARTITION = 3


@pytest.fixture
def cluster(pair: Pair) -> Cluster:
    return pair.source


@dataclass
class Old:
    """A client of versions 0-2."""

    peer: Peer
    sent: int = 0

    async def produce(
        self, version: int, topics: Mapping[str, Sequence[tuple[int, bytes]]], *, acks: int = 1
    ) -> dict[tuple[str, int], Said]:
        """Retry while the broker does not lead the new topic yet."""
        while True:
            self.sent += 1
            await self.peer.send(produce_frame(version, self.sent, topics, acks=acks, timeout_ms=10_000))
            if acks == 0:
                return {}
            number, found, _ = said(version, await self.peer.frame())
            assert number == self.sent
            if all(one.error_code != UNKNOWN_TOPIC_OR_PARTITION for one in found.values()):
                return found


@pytest.fixture
async def old(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Old]:
    port = free_port_block(3)
    document: dict[str, object] = {
        "cluster": [{"name": "one", "bootstrap": [cluster.bootstrap]}],
        "listener": [
            {
                "name": "old",
                "cluster": "one",
                "listen": f"{LOOPBACK}:{port}",
                "ports": f"{port + 1}-{port + 2}",
                "legacy": True,
            }
        ],
    }
    argv = ["run", "-c", str(write_toml(tmp_path / "shoal.toml", document))]
    shoal = running_shoal(ShoalProcess(argv, work=tmp_path, ports=[port]))
    async with shoal, await trio.open_tcp_stream(LOOPBACK, port) as stream:
        yield Old(Peer(stream))


Seen = tuple[int, int, int, bytes | None, bytes | None]
"""Offset, kind of timestamp, timestamp, key, value."""


async def seen(cluster: Cluster, topic: str) -> dict[int, list[Seen]]:
    found: dict[int, list[Seen]] = {}

    def take(messages: Sequence[object]) -> None:
        for message in messages:
            row = (message.offset(), *message.timestamp(), message.key(), message.value())  # type: ignore[attr-defined]
            found.setdefault(message.partition(), []).append(row)  # type: ignore[attr-defined]

    await read_all(cluster.bootstrap, topic, take)
    return found


def expected(magic: int, listed: Sequence[Message]) -> list[Seen]:
    """A batch of magic 2 has no timestamp type for "none": it is -1, as after a broker's own conversion."""
    return [
        (at, TIMESTAMP_CREATE_TIME, one.timestamp if magic else -1, one.key, one.value)  # type: ignore[misc]
        for at, one in enumerate(listed)
    ]


def told(*values: bytes) -> list[Message]:
    return [Message(at, FIRST + at, False, b"key", value) for at, value in enumerate(values)]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_every_record_of_every_codec_arrives(old: Old, cluster: Cluster, topic: str, version: int) -> None:
    """Partition n has the records that Java wrote with codec n, three times, in different requests and acks."""
    await Topics(cluster.bootstrap).create(topic, len(CODECS))
    magic = version // 2
    sets = [golden(f"magic{magic}-{codec.name.lower()}") for codec in CODECS]
    stamp = -1 if version == 2 else None
    for number, acks in enumerate((1, -1)):
        found = await old.produce(version, {topic: list(enumerate(sets))}, acks=acks)
        assert found == {(topic, codec): Said(0, 12 * number, stamp) for codec in CODECS}
    for codec in CODECS:
        await old.produce(version, {topic: [(codec, sets[codec])]}, acks=0)
    await old.produce(version, {topic: [(0, wrapped(magic, Codec.NONE, told(b"behind")))]})
    messages = golden_messages(magic) * 3
    found_there = await seen(cluster, topic)
    assert found_there.pop(0) == expected(magic, [*messages, *told(b"behind")])
    assert found_there == {codec: expected(magic, messages) for codec in CODECS if codec}


async def test_bad_sets_are_refused_alone(old: Old, cluster: Cluster, topic: str) -> None:
    await Topics(cluster.bootstrap).create(topic, 4)
    good = golden("magic1-gzip")
    sets = [good, damaged(good, len(good) - 1), good[:-1], b""]
    found = await old.produce(2, {topic: list(enumerate(sets))})
    assert found == {
        (topic, 0): Said(0, 0, -1),
        (topic, 1): Said(2, -1, -1),
        (topic, 2): Said(2, -1, -1),
        (topic, 3): Said(0, -1, -1),
    }
    assert await seen(cluster, topic) == {0: expected(1, golden_messages(1))}


async def test_the_broker_stamps_what_its_topic_says(old: Old, cluster: Cluster, topic: str) -> None:
    await Topics(cluster.bootstrap).create(topic, config={"message.timestamp.type": "LogAppendTime"})
    found = await old.produce(2, {topic: [(0, golden("magic1-lz4"))]})
    stamp = found[topic, 0].log_append_time
    assert stamp is not None
    assert stamp > FIRST
    rows = (await seen(cluster, topic))[0]
    assert {row[1:3] for row in rows} == {(TIMESTAMP_LOG_APPEND_TIME, stamp)}
    assert [row[3:] for row in rows] == [(one.key, one.value) for one in golden_messages(1)]


async def test_the_brokers_own_refusals_are_told_in_old_codes(old: Old, cluster: Cluster, topic: str) -> None:
    """INVALID_RECORD (87) is the answer of a compacted topic to a record without a key; of old brokers it was 2."""
    await Topics(cluster.bootstrap).create(topic, config={"cleanup.policy": "compact"})
    no_key = wrapped(1, Codec.GZIP, [told(b"value")[0]._replace(key=None)])
    assert await old.produce(2, {topic: [(0, no_key)]}) == {(topic, 0): Said(2, -1, -1)}
    assert await old.produce(0, {topic: [(0, wrapped(0, Codec.GZIP, told(b"value")))]}) == {
        (topic, 0): Said(0, 0, None)
    }


async def test_a_set_above_max_message_bytes_is_cut(old: Old, cluster: Cluster, topic: str) -> None:
    """Each message of it is smaller."""
    await Topics(cluster.bootstrap).create(topic, config={"max.message.bytes": "100000"})
    values = [bytes([at]) * 30_000 for at in range(40)]
    found = await old.produce(2, {topic: [(0, singles(1, numbered(told(*values), 1)))]}, acks=-1)
    assert found == {(topic, 0): Said(0, 0, -1)}
    assert (await old.produce(1, {topic: [(0, singles(0, told(b"x" * 300_000)))]}))[topic, 0].error_code == 10
    assert await seen(cluster, topic) == {0: expected(1, told(*values))}
