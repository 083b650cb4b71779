"""What the leader of a mirror topic appends: batches as they are, at the offsets that they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shoal.protocol.wire.compression import Codec
from shoal.scenarios.kafka.content.reading import read_all
from shoal.scenarios.kafka.content.topics import OffsetRange, Topics
from tests.brokers.agent.logs import log_batches

from .rig import FAR, INVALID, WRONG_END, Answer, batch, dense, flagged, probe, send, starting

if TYPE_CHECKING:
    from confluent_kafka import Message

    from shoal.scenarios.kafka.broker import Cluster, Node

_EPOCH = slice(12, 16)


def without_epochs(batches: list[bytes]) -> list[bytes]:
    return [one[: _EPOCH.start] + one[_EPOCH.stop :] for one in batches]


async def offsets(cluster: Cluster, topic: str) -> list[tuple[int | None, bytes | None]]:
    """Offset and value of each record, as librdkafka reads them."""
    found: list[tuple[int | None, bytes | None]] = []

    def take(messages: list[Message]) -> None:
        found.extend((message.offset(), message.value()) for message in messages)

    await read_all(cluster.bootstrap, topic, take)
    return found


@pytest.mark.parametrize("codec", Codec)
async def test_batches_keep_their_offsets_and_their_bytes(
    cluster: Cluster, node: Node, mirrored: str, codec: Codec
) -> None:
    holes = batch(30, 0, 3, 4, codec=codec, last=9)  # 31, 32, 35 to 39 were compacted away
    sent = [dense(0, 3, codec=codec), dense(10, 2, codec=codec), holes, dense(40, 1, codec=codec)]
    assert send(node, mirrored, flagged(sent[0])) == Answer(0, 0, 0, None)
    assert send(node, mirrored, flagged(sent[1], 7), flagged(sent[2], 18)) == Answer(0, 10, 0, None)
    assert send(node, mirrored, flagged(sent[3])) == Answer(0, 40, 0, None)
    assert without_epochs(log_batches(node, mirrored)) == without_epochs(sent)
    numbers = [0, 1, 2, 10, 11, 30, 33, 34, 40]
    assert await offsets(cluster, mirrored) == [(number, b"0: %d" % number) for number in numbers]


async def test_a_log_begins_where_its_source_begins(cluster: Cluster, node: Node, mirrored: str) -> None:
    first = starting(dense(FAR, 3, codec=Codec.ZSTD))
    assert send(node, mirrored, probe()) == Answer(0, 0, 0, None)
    assert send(node, mirrored, first) == Answer(0, FAR, FAR, None)
    assert send(node, mirrored, first) == Answer(0, FAR, FAR, None)
    assert send(node, mirrored, probe()) == Answer(0, FAR + 3, FAR, None)
    assert await Topics(cluster.bootstrap).spans(mirrored) == {0: OffsetRange(FAR, FAR + 3)}
    assert send(node, mirrored, starting(dense(FAR + 3, 1))).text == (
        f"expected an empty log, the log ends at {FAR + 3}"
    )
    assert [offset for offset, _ in await offsets(cluster, mirrored)] == [FAR, FAR + 1, FAR + 2]


async def test_a_filler_moves_the_end(cluster: Cluster, node: Node, mirrored: str) -> None:
    filler = flagged(batch(3, last=6))
    assert send(node, mirrored, flagged(dense(0, 3))) == Answer(0, 0, 0, None)
    for _ in range(2):
        assert send(node, mirrored, filler) == Answer(0, 3, 0, None)
        assert await Topics(cluster.bootstrap).spans(mirrored) == {0: OffsetRange(0, 10)}
    assert [offset for offset, _ in await offsets(cluster, mirrored)] == [0, 1, 2]


async def test_the_fence_stops_what_follows_a_refused_set(cluster: Cluster, node: Node, mirrored: str) -> None:
    assert send(node, mirrored, flagged(dense(0, 3))) == Answer(0, 0, 0, None)
    refused = send(node, mirrored, flagged(dense(5, 1)))
    assert (refused.error, refused.text) == (WRONG_END, "expected end 5, the log ends at 3")
    assert send(node, mirrored, flagged(dense(5, 1), 1)).text == "expected end 4, the log ends at 3"
    assert send(node, mirrored, flagged(dense(5, 1), 2)) == Answer(0, 5, 0, None)
    assert [offset for offset, _ in await offsets(cluster, mirrored)] == [0, 1, 2, 5]


async def test_a_gap_of_which_the_log_has_only_the_filler(cluster: Cluster, node: Node, mirrored: str) -> None:
    """Its leader died behind the filler: the batch can be sent again as it is."""
    assert send(node, mirrored, flagged(batch(0, last=99))) == Answer(0, 0, 0, None)
    for behind, gap in ((dense(100, 1), 99), (dense(100, 1), 1)):
        assert send(node, mirrored, flagged(behind, gap)).error > 0
    assert send(node, mirrored, flagged(dense(100, 1), 100)) == Answer(0, 100, 0, None)
    assert send(node, mirrored, flagged(batch(101, last=3))) == Answer(0, 101, 0, None)
    assert send(node, mirrored, flagged(dense(110, 1), 10)).text == "expected end 100, the log ends at 105"
    assert send(node, mirrored, flagged(dense(110, 1), 9)) == Answer(0, 110, 0, None)
    assert [offset for offset, _ in await offsets(cluster, mirrored)] == [100, 110]


async def test_batches_that_are_in_the_log_are_left_out(cluster: Cluster, node: Node, mirrored: str) -> None:
    parts = [flagged(dense(base, 2, codec=Codec.LZ4)) for base in (0, 2, 4, 6)]
    assert send(node, mirrored, *parts[:2]) == Answer(0, 0, 0, None)
    assert send(node, mirrored, *parts[:2]) == Answer(0, 0, 0, None)
    assert send(node, mirrored, *parts[1:3]) == Answer(0, 2, 0, None)
    assert send(node, mirrored, *parts) == Answer(0, 0, 0, None)
    assert [offset for offset, _ in await offsets(cluster, mirrored)] == list(range(8))
    assert len(log_batches(node, mirrored)) == 4


async def test_ordinary_topics_of_the_broker_are_as_before(cluster: Cluster, node: Node, topic: str) -> None:
    await Topics(cluster.bootstrap).create(topic)
    assert send(node, topic, dense(0, 3)).error == 0
    assert send(node, topic, dense(0, 2), dense(0, 1)) == Answer(0, 3, 0, None)
    assert [offset for offset, _ in await offsets(cluster, topic)] == list(range(6))
    assert send(node, topic, probe()).error == INVALID
    assert send(node, topic, flagged(dense(6, 1))).error == INVALID
