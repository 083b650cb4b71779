from datetime import UTC, datetime
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.records.readers import read_batch
from kio.records.schema import NewRecordBatch, RecordHeader
from kio.records.schema import Record as KioRecord
from kio.records.writers import write_batch
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i64

from shoal.protocol.records.batch import (
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    NewRecord,
    body_crc,
    encode_batch,
    open_batch,
    producible_header,
    read_batch_header,
    require_crc,
    stamped_header,
    synthetic_header,
)
from shoal.protocol.records.record import encode_single_record_head
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.crc import crc32c
from shoal.protocol.wire.errors import RemoteProtocolError
from tests.support import kafka_python
from tests.support.batches import consumed, damaged
from tests.support.strategies import batches, codecs, record_lists

ONE = encode_batch([NewRecord(5, b"k", b"v" * 100)], base_offset=7, producer_id=1, producer_epoch=2, base_sequence=3)


def numbered(records: list[NewRecord]) -> list[NewRecord]:
    return [record._replace(offset_delta=index) for index, record in enumerate(records)]


# Encoding and reading


@given(codecs, record_lists())
def test_round_trip(codec: Codec, records: list[NewRecord]) -> None:
    assert consumed(encode_batch(records, codec=codec)) == numbered(records)


@given(
    st.sampled_from([Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD]),
    st.lists(
        st.builds(
            NewRecord,
            st.integers(0, 1 << 62),
            st.none() | st.binary(max_size=30),
            st.none() | st.binary(max_size=300),
            st.lists(st.tuples(st.text(max_size=5).map(str.encode), st.none() | st.binary(max_size=5)), max_size=3).map(
                tuple
            ),
            offset_delta=st.none(),
        ),
        min_size=1,
        max_size=10,
    ),
)
def test_kafka_python_reads_what_we_write(codec: Codec, records: list[NewRecord]) -> None:
    data = encode_batch(records, base_offset=40, codec=codec, producer_id=9, producer_epoch=1, base_sequence=2)
    batch = next(iter(kafka_python.memory_records.MemoryRecords(data)))
    assert batch.validate_crc()
    assert (batch.base_offset, batch.last_offset, batch.producer_id, batch.base_sequence) == (
        40,
        39 + len(records),
        9,
        2,
    )
    seen = [
        NewRecord(
            record.timestamp, record.key, record.value, tuple((key.encode(), value) for key, value in record.headers)
        )
        for record in batch
    ]
    assert seen == records


@given(record_lists(), st.sampled_from([0, 1, 3, 4]))
def test_we_read_what_kafka_python_writes(records: list[NewRecord], compression: int) -> None:
    builder = kafka_python.DefaultRecordBatchBuilder(2, compression, False, 55, 4, 12, 1 << 20)
    recent = [record._replace(timestamp=abs(record.timestamp) % (1 << 41)) for record in records]
    for index, record in enumerate(recent):
        headers = [(key.hex(), value) for key, value in record.headers]
        builder.append(index, record.timestamp, record.key, record.value, headers)
    data = bytes(builder.build())
    header, _ = open_batch(data, 0, len(data), limit=1 << 24)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (55, 4, 12)
    assert header.max_timestamp == max(record.timestamp for record in recent)
    hexed = [record._replace(headers=tuple((k.hex().encode(), v) for k, v in record.headers)) for record in recent]
    assert consumed(data) == numbered(hexed)


def test_kio_reads_and_writes_the_same_batch() -> None:
    moment = TZAwareMicros.parse(datetime(2026, 11, 21, tzinfo=UTC))
    milliseconds = int(moment.timestamp()) * 1000
    theirs = KioRecord(
        attributes=i8(0),
        timestamp=moment,
        offset=i64(0),
        key=b"k",
        value=None,
        headers=(RecordHeader(key=b"h", value=None),),
    )
    new = NewRecordBatch(
        producer_id=i64(3), producer_epoch=i16(4), base_sequence=i32(5), records=(theirs,), attributes=i16(0)
    )
    buffer = BytesIO()
    write_batch(buffer, new)
    ours = encode_batch(
        [NewRecord(milliseconds, b"k", None, ((b"h", None),))],
        leader_epoch=0,
        producer_id=3,
        producer_epoch=4,
        base_sequence=5,
    )
    assert buffer.getvalue() == ours
    assert read_batch(ours, 0)[0].records == (theirs,)


def test_a_value_is_a_view_of_the_uncompressed_batch() -> None:
    frame = bytearray(ONE)
    _, records = open_batch(frame, 0, len(frame), limit=1000)
    value = next(records).value
    assert isinstance(value, memoryview)
    frame[-2] ^= 1
    assert bytes(value) == b"v" * 99 + b"w", "no copy was made"


def test_deltas_wrap_as_in_java() -> None:
    records = [NewRecord(-(1 << 63), None, b""), NewRecord((1 << 63) - 1, None, b"")]
    assert consumed(encode_batch(records)) == numbered(records)


def test_log_append_time_is_the_timestamp_of_every_record() -> None:
    records = [NewRecord(5, None, b"a"), NewRecord(6, None, b"b")]
    data = encode_batch(records, attributes=LOG_APPEND_TIME, max_timestamp=1234)
    assert [record.timestamp for record in consumed(data)] == [1234, 1234]


# Headers


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("short", ONE[: HEADER_SIZE - 1]),
        ("cut", ONE[:-1]),
        ("magic 0", damaged(ONE, 16, 2)),
        ("magic 3", damaged(ONE, 16, 1)),
        ("negative length", damaged(ONE, 8, 0x80)),
        ("absurd length", damaged(ONE, 8, 0x7F)),
        ("length below the header", ONE[:8] + b"\0\0\0\x30" + ONE[12:]),
        ("negative base offset", damaged(ONE, 0, 0x80)),
        ("negative last offset delta", damaged(ONE, 23, 0x80)),
        ("negative count", damaged(ONE, 57, 0x80)),
    ],
)
def test_a_header_that_cannot_be_is_refused(name: str, data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_batch_header(data, 0, len(data))


def test_a_batch_is_bounded_by_end_not_by_the_buffer() -> None:
    with pytest.raises(RemoteProtocolError):
        read_batch_header(ONE + bytes(100), 0, len(ONE) - 1)


def test_an_unknown_codec_is_told_when_asked() -> None:
    header = read_batch_header(damaged(ONE, 22, 0x07), 0, len(ONE))
    with pytest.raises(RemoteProtocolError, match="unknown codec 7"):
        _ = header.codec


@pytest.mark.parametrize("position", [21, 30, 57, 61, len(ONE) - 1])
def test_damage_under_the_crc_is_found(position: int) -> None:
    bad = damaged(ONE, position, 0x01)
    header = read_batch_header(bad, 0, len(bad))
    with pytest.raises(RemoteProtocolError, match="offset 7: CRC mismatch"):
        require_crc(header, bad, 0, len(bad))
    with pytest.raises(RemoteProtocolError, match="CRC mismatch"):
        open_batch(bad, 0, len(bad), limit=1000)


# Re-stamping


@given(batches(), st.binary(max_size=20))
def test_producible_header_is_right_by_recomputation(made: tuple[list[NewRecord], bytes], before: bytes) -> None:
    _, batch = made
    start, end = len(before), len(before) + len(batch)
    old = read_batch_header(batch, 0, len(batch))
    if old.is_log_append_time:
        with pytest.raises(RemoteProtocolError, match="may not be produced"):
            producible_header(before + batch, start, end)
        return
    fresh = producible_header(before + batch + b"after", start, end) + batch[HEADER_SIZE:]
    new = read_batch_header(fresh, 0, len(fresh))
    stamps = {
        "base_offset": 0,
        "partition_leader_epoch": -1,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
    }
    assert new == old._replace(attributes=old.attributes & 7, crc=body_crc(fresh, 0, len(fresh)), **stamps)
    assert producible_header(fresh, 0, len(fresh)) == fresh[:HEADER_SIZE]
    assert consumed(fresh) == consumed(batch)


@given(batches(with_broker_bits=False), st.data())
def test_restamping_never_blesses_damage(made: tuple[list[NewRecord], bytes], data: st.DataObject) -> None:
    _, batch = made
    position = data.draw(st.integers(HEADER_SIZE, len(batch) - 1))
    bad = damaged(batch, position, data.draw(st.integers(1, 255)))
    fresh = producible_header(bad, 0, len(bad)) + bad[HEADER_SIZE:]
    assert read_batch_header(fresh, 0, len(fresh)).crc != body_crc(fresh, 0, len(fresh))


@pytest.mark.parametrize(
    "data",
    [
        ONE[:40],
        ONE[:-1],
        ONE + b"\0",
        damaged(ONE, 16, 2),
        encode_batch([NewRecord(5, None, b"")], attributes=CONTROL),
        encode_batch([NewRecord(5, None, b"")], attributes=LOG_APPEND_TIME),
    ],
)
def test_what_may_not_be_produced(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        producible_header(data, 0, len(data))


# Wrapping


@given(st.lists(batches().map(lambda made: made[1]), min_size=1, max_size=4))
def test_wrapped_batches_have_a_right_crc(inner: list[bytes]) -> None:
    run, headers = b"".join(inner), ((b"shoal.codec", b"zstd"), (b"none", None))
    head, tail = encode_single_record_head(key=b"envelope", value_length=len(run), headers=headers)
    crc = crc32c(run, crc32c(head))
    header = synthetic_header(
        base_offset=99,
        leader_epoch=4,
        max_timestamp=1_700_000_000_000,
        body_length=len(head) + len(run) + len(tail),
        crc_of_body=crc32c(tail, crc),
    )
    outer = header + head + run + tail
    assert consumed(outer) == [NewRecord(1_700_000_000_000, b"envelope", run, headers, 0)]
    batch = next(iter(kafka_python.memory_records.MemoryRecords(outer)))
    assert batch.validate_crc()
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch, batch.records_count) == (99, 99, 4, 1)
    assert (batch.first_timestamp, batch.max_timestamp) == (1_700_000_000_000, 1_700_000_000_000)


def test_null_value_in_a_single_record() -> None:
    head, tail = encode_single_record_head(key=None, value_length=-1)
    header = synthetic_header(
        base_offset=0, max_timestamp=1, body_length=len(head + tail), crc_of_body=crc32c(head + tail)
    )
    assert consumed(header + head + tail) == [NewRecord(1, None, None, (), 0)]


@given(record_lists(), codecs, st.integers(0, 1 << 62), st.integers(0, 32767), st.integers(0, (1 << 31) - 1))
def test_stamping_gives_what_a_producer_with_that_id_would_have_made(
    records: list[NewRecord], codec: Codec, producer_id: int, epoch: int, sequence: int
) -> None:
    plain = encode_batch(records, codec=codec)
    stamped = stamped_header(plain[:61], len(plain) - 61, producer_id, epoch, sequence) + plain[61:]
    assert stamped == encode_batch(
        records, codec=codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


def test_stamping_keeps_damage_visible() -> None:
    batch = damaged(encode_batch([NewRecord(1, b"k", b"v")]), -1)
    stamped = stamped_header(batch[:61], len(batch) - 61, 1, 2, 3) + batch[61:]
    assert crc32c(stamped[21:]) != int.from_bytes(stamped[17:21], "big")
