"""Topics with LogAppendTime: a set is stored like its batches one by one."""

import time
from collections.abc import Sequence
from struct import unpack_from

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message

from shoal.protocol.messages.produce import read_produce_response
from shoal.protocol.records.batch import BatchHeader, read_batch_header
from shoal.protocol.wire.compression import Codec
from shoal.scenarios.kafka.broker import Cluster, Node
from shoal.scenarios.kafka.content.reading import read_all
from shoal.scenarios.kafka.content.topics import Topics
from tests.brokers.proxy.rig.frames import Closed
from tests.support.batches import consumed

from .logs import log_batches
from .sets import VERSION, batches, exchange

MIXED = tuple(Codec)
CONFIG = {"message.timestamp.type": "LogAppendTime"}
CODECS = {**{codec.name: (codec,) for codec in MIXED}, "mixed": MIXED}
CRC, MAX_TIMESTAMP = slice(17, 21), slice(35, 43)


def answered(node: Node, topic: str, sent: Sequence[bytes]) -> tuple[int, int, int]:
    """Error, base offset and append time in the broker's answer."""
    frame = exchange(node.address, {(topic, 0): sent})
    assert not isinstance(frame, Closed)
    (row,) = read_produce_response(frame, VERSION).partitions
    (appended_at,) = unpack_from(">q", frame, row.base_offset_at + 8)
    return row.error_code, row.base_offset, appended_at


def header(batch: bytes) -> BatchHeader:
    return read_batch_header(batch, 0, len(batch))


def without_time(batch: bytes) -> bytes:
    """Two appends happen at different times; consumers check the CRC, which covers them."""
    blank = bytearray(batch)
    blank[CRC], blank[MAX_TIMESTAMP] = bytes(4), bytes(8)
    return bytes(blank)


@pytest.mark.parametrize("codecs", CODECS)
@pytest.mark.parametrize("config", [{}, {"compression.type": "gzip"}], ids=["as it came", "gzip"])
async def test_a_set_is_written_as_its_batches_are(
    cluster: Cluster, node: Node, topic: str, codecs: str, config: dict[str, str]
) -> None:
    sent = batches(10, CODECS[codecs])
    one_by_one, in_a_set = f"{topic}-single", f"{topic}-set"
    for name in (one_by_one, in_a_set):
        await Topics(cluster.bootstrap).create(name, config={**CONFIG, **config})
    began = time.time_ns() // 1_000_000
    singles = [answered(node, one_by_one, [batch]) for batch in sent]
    error, base, appended_at = answered(node, in_a_set, sent)
    ended = time.time_ns() // 1_000_000
    ours, theirs = log_batches(node, in_a_set), log_batches(node, one_by_one)
    assert list(map(without_time, ours)) == list(map(without_time, theirs))
    assert (error, base) == singles[0][:2]
    assert [header(batch).base_offset for batch in ours] == [offset for _, offset, _ in singles]
    assert [header(batch).max_timestamp for batch in theirs] == [at for _, _, at in singles]
    times = [header(batch).max_timestamp for batch in ours]
    assert times == sorted(times)
    assert began <= times[0] <= times[-1] == appended_at <= ended
    await the_consumer_sees_the_log(cluster, in_a_set, ours)


async def the_consumer_sees_the_log(cluster: Cluster, topic: str, logged: Sequence[bytes]) -> None:
    read: list[Message] = []
    await read_all(cluster.bootstrap, topic, read.extend)
    records = [record for batch in logged for record in consumed(batch)]
    assert [message.timestamp() for message in read] == [
        (TIMESTAMP_LOG_APPEND_TIME, record.timestamp) for record in records
    ]
    assert [(message.offset(), message.value()) for message in read] == [
        (offset, record.value) for offset, record in enumerate(records)
    ]
