import tracemalloc
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shoal.protocol.legacy.message import LOG_APPEND_TIME, Message, write_message
from shoal.protocol.legacy.produce.up_conversion import MAX_RECORDS, up_convert
from shoal.protocol.legacy.reading import Room
from shoal.protocol.records.batch import BatchHeader, NewRecord, encode_batch, read_batch_header
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.errors import RemoteProtocolError, TooLarge
from tests.support.batches import consumed
from tests.support.kafka_python import memory_records
from tests.support.legacy import sets

ONE = Message(0, sets.FIRST, False, b"key", b"value")


def converted(record_set: bytes, *, limit: int = sets.LIMIT, max_records: int = MAX_RECORDS) -> bytes:
    """The only batch, after checking its description."""
    found = up_convert(b"_" + record_set + b"__", 1, 1 + len(record_set), Room(limit), max_records=max_records)
    batch = b"".join(found.parts)
    header = read_batch_header(batch, 0, len(batch))
    assert (header.record_count, header.codec, header.size) == (found.records, found.codec, len(batch))
    return batch


def as_records(listed: list[Message]) -> list[NewRecord]:
    return [
        NewRecord(message.timestamp, message.key, message.value, offset_delta=index)
        for index, message in enumerate(listed)
    ]


def newest(header: BatchHeader) -> tuple[int, int]:
    return header.base_timestamp, header.max_timestamp


@pytest.mark.parametrize("codec", sets.CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_what_java_wrote(magic: int, codec: Codec) -> None:
    batch = converted(sets.golden(f"magic{magic}-{codec.name.lower()}"))
    assert consumed(batch) == as_records(sets.golden_messages(magic))
    assert read_batch_header(batch, 0, len(batch)).codec is codec


@given(st.sampled_from(sets.BY_KAFKA_PYTHON), sets.message_lists)
def test_kafka_python_reads_from_the_batch_what_it_reads_from_the_set(
    form: tuple[int, Codec], listed: list[Message]
) -> None:
    """kafka-python does not wrap timestamps as Java's long does, so no delta here overflows."""
    assume(all(message.timestamp - listed[0].timestamp < 1 << 63 for message in listed))
    magic, codec = form
    record_set = sets.by_kafka_python(magic, codec, listed if codec else listed[:1])
    seen: Any = memory_records.MemoryRecords(converted(record_set)).next_batch()
    assert seen.validate_crc()
    records = [
        Message(message.offset, message.timestamp, bool(message.timestamp_type), message.key, message.value)
        for message in seen
    ]
    assert records == sets.seen_by_kafka_python(magic, record_set)
    assert (seen.producer_id, seen.producer_epoch, seen.base_sequence) == (-1, -1, -1)


@given(sets.magics, sets.codecs, sets.message_lists)
def test_batch_is_that_of_a_modern_producer(magic: int, codec: Codec, listed: list[Message]) -> None:
    """Byte for byte, with timestamps unchanged; magic 0 has none."""
    expected = sets.numbered(listed, magic)
    assert converted(sets.wrapped(magic, codec, expected)) == encode_batch(as_records(expected), codec=codec)


@given(st.lists(st.tuples(sets.magics, sets.codecs, sets.message_lists), min_size=1, max_size=4))
def test_several_entries_become_one_batch(parts: list[tuple[int, Codec, list[Message]]]) -> None:
    """Its codec is the first that is not NONE."""
    record_set = b"".join(sets.wrapped(magic, codec, sets.numbered(listed, magic)) for magic, codec, listed in parts)
    batch = converted(record_set)
    expected = [message for magic, _, listed in parts for message in sets.numbered(listed, magic)]
    assert consumed(batch) == as_records(expected)
    compressed = [codec for _, codec, _ in parts if codec]
    assert read_batch_header(batch, 0, len(batch)).codec == (compressed or [Codec.NONE])[0]


def test_offsets_of_a_producer_are_of_no_meaning() -> None:
    """kafka-python's first producers wrote 0 everywhere, and librdkafka 0 in the wrapper."""
    listed = [ONE, ONE._replace(offset=-1), ONE, ONE._replace(offset=7)]
    for record_set in (sets.singles(1, listed), sets.wrapper(1, Codec.GZIP, sets.singles(1, listed), offset=0)):
        assert consumed(converted(record_set)) == as_records(listed)


def test_oldest_and_newest_need_not_be_first_and_last() -> None:
    listed = [ONE._replace(timestamp=sets.FIRST + after) for after in (5, 0, 9, 3)]
    batch = converted(sets.wrapped(1, Codec.LZ4, sets.numbered(listed, 1)))
    assert newest(read_batch_header(batch, 0, len(batch))) == (sets.FIRST + 5, sets.FIRST + 9)


def test_no_timestamps_at_all() -> None:
    batch = converted(sets.singles(0, [ONE, ONE]))
    assert newest(read_batch_header(batch, 0, len(batch))) == (-1, -1)


def test_empty_set_is_no_batch() -> None:
    assert up_convert(b"", 0, 0, Room(0)) == ([], 0, Codec.NONE)


@pytest.mark.parametrize(
    "record_set",
    [
        write_message(1, 0, sets.FIRST, LOG_APPEND_TIME, None, b"stamped"),
        sets.wrapped(1, Codec.GZIP, [ONE], LOG_APPEND_TIME),
        write_message(1, 0, -2, 0, None, b"before there was time"),
        sets.singles(1, [ONE])[:-1],
        sets.singles(1, [ONE]) + b"\0" * 5,
        encode_batch([NewRecord(sets.FIRST, None, b"of magic 2")]),
        sets.wrapper(1, Codec.GZIP, sets.wrapper(1, Codec.GZIP, sets.singles(1, [ONE]))),
    ],
)
def test_what_a_broker_would_not_append_is_refused(record_set: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        converted(record_set)


def test_bomb_is_told_from_damage() -> None:
    with pytest.raises(TooLarge):
        converted(sets.wrapped(1, Codec.GZIP, [ONE._replace(value=bytes(1 << 20))]), limit=1 << 20)


def test_too_many_messages_are_refused() -> None:
    assert len(consumed(converted(sets.singles(0, [ONE] * 100), max_records=100))) == 100
    with pytest.raises(TooLarge):
        converted(sets.singles(0, [ONE] * 101), max_records=100)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_memory_is_the_limit_s_whatever_is_in_the_wrapper(codec: Codec) -> None:
    bomb = sets.wrapper(1, codec, bytes(30 << 20))
    tracemalloc.start()
    with pytest.raises(TooLarge):
        converted(bomb, limit=1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < len(bomb) * 2 + (5 << 20)
