"""Sets of several batches on real brokers with the agent: what is appended, byte for byte, and what is not."""

from collections.abc import Sequence

import pytest

from shoal.protocol.records.batch import CONTROL, TRANSACTIONAL, encode_batch, read_batch_header
from shoal.protocol.wire.compression import Codec
from shoal.scenarios.kafka.broker import Cluster, Node
from shoal.scenarios.kafka.content.topics import Topics
from tests.brokers.proxy.rig.frames import Closed
from tests.support.batches import consumed, damaged

from .logs import as_logged, log_batches
from .sets import Answer, batches, produce, produce_one, records

SIZES = (2, 5, 500)
MIXED = tuple(Codec)
TOPIC_CODECS = {"uncompressed": Codec.NONE, **{codec.name.lower(): codec for codec in MIXED[1:]}}
CORRUPT, TOO_LARGE, INVALID = 2, 10, 87
GOOD = batches(3)
BAD_BATCHES = {
    "CRC": (damaged(GOOD[1], -3), CORRUPT),
    "hole": (encode_batch(records(2), last_offset_delta=5), INVALID),
    "hole, compressed": (encode_batch(records(2), codec=Codec.ZSTD, last_offset_delta=5), INVALID),
    "more records stated than there are": (damaged(GOOD[1], 60, 0x01), CORRUPT),
    "too large": (encode_batch(records(40, size=1000)), TOO_LARGE),
    "base offset": (encode_batch(records(2), base_offset=7), INVALID),
    "control": (encode_batch(records(1), attributes=CONTROL, producer_id=9, producer_epoch=0), INVALID),
    "transactional": (
        encode_batch(records(1), attributes=TRANSACTIONAL, producer_id=9, producer_epoch=0, base_sequence=0),
        INVALID,
    ),
    "producer id without a sequence": (encode_batch(records(1), producer_id=9, producer_epoch=0), INVALID),
    "unknown codec": (damaged(GOOD[1], 22, 0x07), INVALID),
    "magic 1": (damaged(GOOD[1], 16, 0x03), INVALID),
    "cut off": (GOOD[1][:-1], INVALID),
}


def record_count(batch: bytes) -> int:
    return read_batch_header(batch, 0, len(batch)).record_count


@pytest.mark.parametrize("codecs", [*((codec,) for codec in MIXED), MIXED], ids=[*(c.name for c in MIXED), "mixed"])
async def test_batches_go_into_the_log_as_they_came(
    cluster: Cluster, node: Node, topic: str, codecs: Sequence[Codec]
) -> None:
    await Topics(cluster.bootstrap).create(topic)
    sent: list[bytes] = []
    for size in SIZES:
        answer = produce_one(node.address, topic, batches(size, codecs))
        assert answer == Answer(0, sum(map(record_count, sent)))
        sent += batches(size, codecs)
    assert log_batches(node, topic) == as_logged(sent)


@pytest.mark.parametrize("kind", TOPIC_CODECS)
async def test_a_topic_with_a_codec_of_its_own_gets_that_codec_batch_by_batch(
    cluster: Cluster, node: Node, topic: str, kind: str
) -> None:
    await Topics(cluster.bootstrap).create(topic, config={"compression.type": kind})
    codec = TOPIC_CODECS[kind]
    for last in range(5):  # Kafka takes the last compressed batch's codec for the whole set's
        sent = batches(5 + last, MIXED)
        base = sum(map(record_count, log_batches(node, topic)))
        assert produce_one(node.address, topic, sent) == Answer(0, base)
        logged = log_batches(node, topic)[-len(sent) :]
        assert [read_batch_header(batch, 0, len(batch)).codec for batch in logged] == [codec] * len(sent)
        assert list(map(consumed, logged)) == list(map(consumed, sent))
        kept = [index for index in range(len(sent)) if MIXED[index % 5] is codec]
        assert [logged[index] for index in kept] == [as_logged(sent, base=base)[index] for index in kept]


@pytest.mark.parametrize("bad", BAD_BATCHES)
async def test_a_bad_batch_keeps_its_whole_partition_out_and_no_other(
    cluster: Cluster, node: Node, topic: str, bad: str
) -> None:
    await Topics(cluster.bootstrap).create(topic, 2, config={"max.message.bytes": "20000"})
    batch, error = BAD_BATCHES[bad]
    answers = produce(node.address, {(topic, 0): [GOOD[0], batch, GOOD[2]], (topic, 1): GOOD})
    assert answers == {(topic, 0): Answer(error, -1), (topic, 1): Answer(0, 0)}
    assert log_batches(node, topic, 0) == []
    assert log_batches(node, topic, 1) == as_logged(GOOD)
    assert produce_one(node.address, topic, GOOD) == Answer(0, 0)  # no offset was used up
    assert log_batches(node, topic, 0) == as_logged(GOOD)


async def test_a_set_of_bad_batches_without_acks_ends_the_connection(cluster: Cluster, node: Node, topic: str) -> None:
    await Topics(cluster.bootstrap).create(topic)
    batch, _ = BAD_BATCHES["CRC"]
    assert produce(node.address, {(topic, 0): [GOOD[0], batch]}, acks=0) == Closed()
    assert log_batches(node, topic) == []
