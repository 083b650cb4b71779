"""What the leader of a mirror topic refuses, nothing of it appended, and the texts that say why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shoal.protocol.records.batch import CONTROL, TRANSACTIONAL, NewRecord, encode_batch, seal_batch
from shoal.protocol.wire.compression import Codec
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.process import until
from tests.brokers.agent.logs import log_batches
from tests.brokers.agent.sets import TIMESTAMP
from tests.support.batches import damaged

from .rig import (
    CORRUPT,
    FAR,
    INVALID,
    MIRRORED,
    READ_ONLY,
    TOO_LARGE,
    WRONG_END,
    Answer,
    batch,
    configure,
    dense,
    flagged,
    probe,
    send,
    starting,
)

if TYPE_CHECKING:
    from shoal.scenarios.kafka.broker import Cluster, Node

TRANSACTION_REFUSED = 53
SET_TOO_LARGE = 18
STAMPS = {"base_timestamp": TIMESTAMP, "max_timestamp": TIMESTAMP}
_RECORDS = [NewRecord(TIMESTAMP, b"k", b"v")]


def uncompressed(codec: Codec) -> bytes:
    """A batch that says it is compressed."""
    return seal_batch(b"", codec=Codec.NONE, attributes=codec, base_offset=3, record_count=1, **STAMPS)


BAD = {
    "CRC": (damaged(dense(3, 2), -3), CORRUPT, "the batch at offset 3 has a wrong CRC"),
    "too large": (
        encode_batch([NewRecord(0, b"k", bytes(30_000))], base_offset=3),
        TOO_LARGE,
        "max.message.bytes of the topic is 20000",
    ),
    "offsets go back": (batch(3, 0, 2, 1, last=2), INVALID, "the batch at offset 3 has offsets out of order"),
    "an offset behind the last": (batch(3, 0, 5, last=2), INVALID, "the batch at offset 3 has offsets out of order"),
    "an offset twice, compressed": (
        batch(3, 0, 0, codec=Codec.ZSTD, last=2),
        INVALID,
        "the batch at offset 3 has offsets out of order",
    ),
    "producer id": (
        encode_batch(_RECORDS, base_offset=3, producer_id=9, producer_epoch=0, base_sequence=0),
        INVALID,
        "a mirror's batch has a producer id, or is of a transaction",
    ),
    "transactional": (
        encode_batch(_RECORDS, base_offset=3, attributes=TRANSACTIONAL),
        TRANSACTION_REFUSED,  # by Kafka, before the log
        "",
    ),
    "control": (
        encode_batch(_RECORDS, base_offset=3, attributes=CONTROL),
        INVALID,
        "a mirror's batch has a producer id, or is of a transaction",
    ),
    **{
        f"no {codec.name} stream": (uncompressed(codec), INVALID, "a batch can't be read: ")
        for codec in list(Codec)[1:]
    },
    "more records than offsets": (
        batch(3, 0, 1, 2, last=1),
        INVALID,
        "a mirror's batch at offset 3 has impossible fields",
    ),
    "below 0": (dense(-3, 2), INVALID, "a mirror's batch at offset -3 has impossible fields"),
    "the last of all offsets": (
        encode_batch(_RECORDS, base_offset=2**63 - 1),
        INVALID,
        f"a mirror's batch at offset {2**63 - 1} has impossible fields",
    ),
    "a filler with more than a header": (
        seal_batch(b"more", codec=Codec.NONE, base_offset=3, record_count=0, last_offset_delta=1, **STAMPS),
        INVALID,
        "the batch at offset 3 has no records, but bytes of some",
    ),
    "at the end of all offsets": (
        encode_batch(_RECORDS, base_offset=2**63 - 1, last_offset_delta=1),
        INVALID,
        f"a mirror's batch at offset {2**63 - 1} has impossible fields",
    ),
}


@pytest.fixture
async def begun(cluster: Cluster, node: Node, mirrored: str) -> str:
    """A mirror topic with three records."""
    await Topics(cluster.bootstrap).alter(mirrored, {"max.message.bytes": "20000"})
    assert send(node, mirrored, flagged(dense(0, 3))) == Answer(0, 0, 0, None)
    return mirrored


def refused(node: Node, topic: str, *sent: bytes) -> tuple[int, str]:
    before = log_batches(node, topic)
    answer = send(node, topic, *sent)
    assert log_batches(node, topic) == before
    assert answer.base_offset == -1
    return answer.error, answer.text or ""


@pytest.mark.parametrize("kind", BAD)
async def test_a_bad_batch_keeps_its_set_out(node: Node, begun: str, kind: str) -> None:
    bad, error, text = BAD[kind]
    found, said = refused(node, begun, flagged(bad))
    assert found == error
    assert text in said
    found, _ = refused(node, begun, flagged(dense(3, 2)), flagged(bad))
    assert found > 0
    assert send(node, begun, flagged(dense(3, 2))) == Answer(0, 3, 0, None)


async def test_sets_that_no_mirror_sends(node: Node, begun: str) -> None:
    two, three = dense(3, 2), dense(5, 1)
    assert refused(node, begun, flagged(two), three) == (INVALID, "only some batches of a set are a mirror's")
    assert refused(node, begun, flagged(two), flagged(dense(7, 1))) == (
        INVALID,
        "a mirror's batch at offset 7 has impossible fields",
    )
    assert refused(node, begun, flagged(two), flagged(two))[0] == INVALID
    assert refused(node, begun, flagged(two), starting(three))[0] == INVALID
    assert refused(node, begun, starting(two)) == (WRONG_END, "expected an empty log, the log ends at 3")
    far = [flagged(batch(3, last=2**31 - 1)), flagged(dense(2**31 + 3, 1))]
    assert refused(node, begun, *far) == (
        INVALID,
        "a mirror's set goes over more than 2^31 offsets: send it in several",
    )


async def test_an_ordinary_producer_is_told_that_the_topic_is_read_only(node: Node, begun: str) -> None:
    text = f"{begun} is a mirror topic: only its mirror writes to it until it is promoted (shoal promote {begun})"
    for sent in ([dense(0, 1)], [dense(0, 1), dense(0, 2)], [encode_batch(_RECORDS, leader_epoch=0)]):
        assert refused(node, begun, *sent) == (READ_ONLY, text)


async def test_a_set_that_is_too_large_for_a_segment_changes_nothing(
    cluster: Cluster, node: Node, mirrored: str
) -> None:
    await Topics(cluster.bootstrap).alter(mirrored, {"segment.bytes": "1048576", "max.message.bytes": "2000000"})
    large = encode_batch([NewRecord(0, b"k", bytes(1_100_000))], base_offset=FAR)
    found, said = refused(node, mirrored, starting(large))
    assert (found, said.endswith("segment.bytes of the topic is 1048576")) == (SET_TOO_LARGE, True)
    assert send(node, mirrored, probe()) == Answer(0, 0, 0, None)
    assert send(node, mirrored, flagged(dense(0, 1))) == Answer(0, 0, 0, None)


async def test_a_batch_that_straddles_the_end(node: Node, begun: str) -> None:
    assert refused(node, begun, flagged(dense(1, 4))) == (
        INVALID,
        "the log ends at 3, in the middle of the batch at offset 1",
    )


async def test_another_source_is_never_acknowledged(cluster: Cluster, node: Node, begun: str) -> None:
    """Created again: the same offsets, other records."""
    assert send(node, begun, flagged(dense(3, 3))).error == 0
    text = (
        "the batch at offset {} is another than the log has there: its source was created again or truncated, or "
        f"{begun}-0 had another writer"
    )
    assert refused(node, begun, flagged(dense(0, 3, seed=1))) == (INVALID, text.format(0))
    assert refused(node, begun, starting(dense(0, 2))) == (INVALID, text.format(0))
    assert refused(node, begun, flagged(dense(0, 3)), flagged(dense(3, 3, seed=1))) == (INVALID, text.format(3))
    assert refused(node, begun, flagged(batch(0, last=2))) == (INVALID, text.format(0))
    await Topics(cluster.bootstrap).delete_records(begun, {0: 2})
    assert refused(node, begun, flagged(dense(0, 3))) == (
        INVALID,
        "the batch at offset 0 can't be compared: the log starts at 2",
    )


async def test_a_compacted_topic_needs_keys(cluster: Cluster, node: Node, topic: str) -> None:
    await Topics(cluster.bootstrap).create(MIRRORED + topic, config={"cleanup.policy": "compact"})
    keyless = encode_batch([NewRecord(TIMESTAMP, None, b"v")])
    text = "record 0 has no key, and the topic is compacted"
    assert refused(node, MIRRORED + topic, flagged(keyless)) == (INVALID, text)


@pytest.mark.parametrize("policy", ["compact", "delete"])
async def test_records_that_compaction_has_removed_are_no_difference(
    cluster: Cluster, node: Node, topic: str, policy: str
) -> None:
    """Also if the topic is not compacted any more."""
    name = MIRRORED + topic
    at_once = {"min.cleanable.dirty.ratio": "0.01", "segment.ms": "100", "max.compaction.lag.ms": "100"}
    await Topics(cluster.bootstrap).create(name, config={"cleanup.policy": "compact", "retention.ms": "-1", **at_once})
    sent = [flagged(few_keys(base)) for base in range(0, 40, 4)]
    for one in sent:
        assert send(node, name, one).error == 0
    at = iter(range(40, 10_000, 4))  # a second later each: it ends a segment, and the last one is not cleaned

    def cleaned() -> bool:
        assert send(node, name, flagged(few_keys(next(at)))).error == 0
        return len(log_batches(node, name)[0]) < len(sent[0])

    await until(cleaned, within=60, what="compaction")
    configure(node, name, "cleanup.policy", policy)
    assert send(node, name, *sent) == Answer(0, 0, 0, None)
    assert refused(node, name, flagged(few_keys(0, seed=1)))[0] == INVALID


async def test_what_was_never_compacted_has_all_its_records(cluster: Cluster, node: Node, topic: str) -> None:
    name = MIRRORED + topic
    await Topics(cluster.bootstrap).create(name, config={"cleanup.policy": "compact"})
    assert send(node, name, flagged(batch(0, last=9))).error == 0  # a gap of the source
    assert send(node, name, flagged(batch(10, 0, 3, last=9))).error == 0
    assert refused(node, name, starting(dense(0, 10)))[0] == INVALID
    assert refused(node, name, flagged(dense(10, 10)))[0] == INVALID
    assert send(node, name, flagged(batch(10, 0, 3, last=9))) == Answer(0, 10, 0, None)


def few_keys(base: int, seed: int = 0) -> bytes:
    """Four records: one with a key of its own, three with keys that all such batches have."""
    keys = [b"only %d" % base, b"a", b"b", b"c"]
    records = [NewRecord(TIMESTAMP + 1000 * base, key, b"%d: %d" % (seed, base)) for key in keys]
    return encode_batch(records, base_offset=base, codec=Codec.LZ4)
