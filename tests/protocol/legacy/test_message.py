from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.legacy.message import LOG_APPEND_TIME, OVERHEAD, write_message
from shoal.protocol.wire.errors import LocalProtocolError
from tests.support.kafka_python import LegacyRecordBatch

# Written by kafka-clients 3.9.1: MemoryRecords.builder(buffer, magic, Compression.NONE, CREATE_TIME, 7), one record.
MAGIC_0 = bytes.fromhex("0000000000000007 00000010 1fecd70a 00 00 000000016b 0000000176")
MAGIC_1 = bytes.fromhex("0000000000000007 00000018 bf070c1c 01 00 0000015d3ef79800 000000016b 0000000176")

blobs = st.none() | st.binary(max_size=50)
offsets = st.integers(0, (1 << 63) - 1)


def test_bytes_are_those_that_java_writes() -> None:
    assert write_message(0, 7, -1, 0, b"k", b"v") == MAGIC_0
    assert write_message(1, 7, 1_500_000_000_000, 0, b"k", b"v") == MAGIC_1


@given(
    magic=st.sampled_from([0, 1]),
    offset=offsets,
    timestamp=st.integers(-1, (1 << 63) - 1),
    late=st.sampled_from([0, LOG_APPEND_TIME]),
    key=blobs,
    value=blobs,
)
def test_kafka_python_reads_what_was_written(
    magic: int, offset: int, timestamp: int, late: int, key: bytes | None, value: bytes | None
) -> None:
    message = write_message(magic, offset, timestamp, late, key, value)
    assert len(message) == OVERHEAD[magic] + len(key or b"") + len(value or b"")
    batch: Any = LegacyRecordBatch(message, magic)
    assert batch.validate_crc()
    (record,) = batch
    expected = (offset, timestamp, late // LOG_APPEND_TIME) if magic else (offset, None, None)
    assert (record.offset, record.timestamp, record.timestamp_type) == expected
    assert (record.key, record.value) == (key, value)


def test_memoryviews_are_written_like_bytes() -> None:
    view = memoryview(b"_key_value_")
    assert write_message(1, 3, 5, 0, view[1:4], view[5:10]) == write_message(1, 3, 5, 0, b"key", b"value")


def test_magic_2_is_no_message() -> None:
    with pytest.raises(LocalProtocolError, match="not 2"):
        write_message(2, 0, 0, 0, None, None)
