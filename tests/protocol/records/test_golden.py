"""Bytes written by Kafka's own classes (tests/data/batches/README.md)."""

from pathlib import Path

import pytest

from shoal.protocol.records.batch import (
    HEADER_SIZE,
    NewRecord,
    body_crc,
    open_batch,
    producible_header,
    read_batch_header,
)
from shoal.protocol.records.record import Record, write_record
from shoal.protocol.records.recordset import Span, split
from shoal.protocol.wire.compression import Codec, stated_size
from shoal.protocol.wire.errors import RemoteProtocolError
from tests.support.batches import consumed

DATA = Path(__file__).parents[2] / "data" / "batches"
FIRST_TIMESTAMP = 1_700_000_000_000
APPEND_TIMESTAMP = FIRST_TIMESTAMP + 999_999


def golden(name: str) -> bytes:
    return (DATA / f"{name}.bin").read_bytes()


def expected(index: int) -> NewRecord:
    """The record that GoldenBatches.java writes."""
    return NewRecord(
        FIRST_TIMESTAMP + 7 * (index % 50),
        None if index % 5 == 0 else b"key-%d" % index,
        None if index % 7 == 0 else b"value-%d " % index * index,
        tuple((b"h%d" % j, None if (index + j) % 2 == 0 else b"v%d" % index) for j in range(index % 3)),
        index,
    )


@pytest.mark.parametrize("codec", Codec)
def test_every_codec_is_read(codec: Codec) -> None:
    data = golden(codec.name.lower())
    header, _ = open_batch(data, 0, len(data), limit=1 << 20)
    assert header.codec is codec
    assert (header.base_offset, header.last_offset) == (1000, 1000 + header.record_count - 1)
    assert consumed(data) == [expected(index) for index in range(20 if codec is Codec.NONE else 200)]


@pytest.mark.parametrize(
    ("codec", "states"), [(Codec.GZIP, True), (Codec.SNAPPY, True), (Codec.LZ4, False), (Codec.ZSTD, False)]
)
def test_what_java_states_about_the_plain_size(codec: Codec, states: bool) -> None:
    plain = sum(len(part) for part in _payload_of_200_records())
    assert stated_size(codec, golden(codec.name.lower())[HEADER_SIZE:]) == (plain if states else None)


def _payload_of_200_records() -> list[bytes]:
    records = [expected(index) for index in range(200)]
    return [
        write_record(Record(index, record.timestamp - FIRST_TIMESTAMP, record.key, record.value, tuple(record.headers)))
        for index, record in enumerate(records)
    ]


def test_log_append_time_stamps_every_record() -> None:
    data = golden("log-append-time")
    assert read_batch_header(data, 0, len(data)).is_log_append_time
    assert [record.timestamp for record in consumed(data)] == [APPEND_TIMESTAMP] * 5
    with pytest.raises(RemoteProtocolError, match="may not be produced"):
        producible_header(data, 0, len(data))


def test_transactional_batch_is_restamped() -> None:
    data = golden("transactional")
    header = read_batch_header(data, 0, len(data))
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 40)
    assert header.partition_leader_epoch == 9
    fresh = producible_header(data, 0, len(data)) + data[HEADER_SIZE:]
    restamped = read_batch_header(fresh, 0, len(fresh))
    assert restamped == header._replace(
        base_offset=0,
        partition_leader_epoch=-1,
        crc=body_crc(fresh, 0, len(fresh)),
        attributes=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )
    assert consumed(fresh) == [expected(index) for index in range(5)]


def test_control_batch_is_never_producible() -> None:
    data = golden("commit-marker")
    header = read_batch_header(data, 0, len(data))
    assert header.is_control
    assert header.is_transactional
    with pytest.raises(RemoteProtocolError, match="may not be produced"):
        producible_header(data, 0, len(data))


def test_compacted_batch_keeps_offsets_and_timestamps() -> None:
    data = golden("compacted")
    header = read_batch_header(data, 0, len(data))
    assert header.has_delete_horizon
    assert (header.record_count, header.last_offset_delta) == (2, 4)
    assert consumed(data) == [expected(1), expected(3)]


def test_emptied_batch_keeps_its_offsets() -> None:
    data = golden("compacted-empty")
    header = read_batch_header(data, 0, len(data))
    assert (header.record_count, header.last_offset, header.size) == (0, 1004, HEADER_SIZE)
    assert consumed(data) == []


@pytest.mark.parametrize(("name", "magic", "count"), [("magic0", 0, 3), ("magic1", 1, 3), ("magic1-gzip", 1, 1)])
def test_old_messages_are_told_apart(name: str, magic: int, count: int) -> None:
    data = golden(name)
    spans, tail = split(data, 0, len(data))
    assert [span.magic for span in spans] == [magic] * count
    assert spans[-1].end == tail == len(data)
    with pytest.raises(RemoteProtocolError, match="magic"):
        read_batch_header(data, 0, len(data))


def test_formats_mixed_in_one_set() -> None:
    data = golden("magic1-gzip") + golden("zstd") + golden("none")[:-1]
    spans, tail = split(data, 0, len(data))
    first, second = len(golden("magic1-gzip")), len(golden("zstd"))
    assert spans == [Span(0, first, 1, 1002), Span(first, first + second, 2, 1000)]
    assert tail == first + second
