"""Message sets for tests: written by hand, by Java, by kafka-python; strategies."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from shoal.protocol.legacy.lz4_header import as_magic_0
from shoal.protocol.legacy.message import Message, write_message
from shoal.protocol.legacy.reading import Room, read_messages, read_produced
from shoal.protocol.wire.compression import Codec, compress
from tests.support.kafka_python import LegacyRecordBatch, LegacyRecordBatchBuilder

LIMIT = 1 << 24
FIRST = 1_500_000_000_000
CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
BY_KAFKA_PYTHON = [(0, Codec.NONE), (0, Codec.GZIP), (1, Codec.NONE), (1, Codec.GZIP), (1, Codec.LZ4)]
"""Magic and codec: what kafka-python can do without further packages."""

codecs = st.sampled_from(CODECS)
magics = st.sampled_from([0, 1])
_timestamps = st.integers(1_400_000_000_000, 1_900_000_000_000) | st.sampled_from([-1, 0, (1 << 63) - 1])
_blobs = (
    st.none() | st.binary(max_size=40) | st.builds(lambda part, n: part * n, st.binary(max_size=9), st.integers(0, 300))
)
messages = st.builds(Message, st.just(0), _timestamps, st.just(False), _blobs, _blobs)
message_lists = st.lists(messages, min_size=1, max_size=12)


def golden(name: str) -> bytes:
    return (Path(__file__).parents[2] / "data" / "legacy" / f"{name}.bin").read_bytes()


def golden_messages(magic: int, *, late: bool = False) -> list[Message]:
    keys, values = (b"key", None, b""), (b"value", None, b"", b"a longer value, " * 20)
    return [
        Message(
            1000 + index,
            -1 if magic == 0 else FIRST + 999_999 if late else FIRST + index * 7 % 5,
            late,
            keys[index % 3],
            values[index % 4],
        )
        for index in range(12)
    ]


def numbered(listed: Sequence[Message], magic: int, first: int = 0) -> list[Message]:
    """As a consumer of magic `magic` gets them."""
    return [
        message._replace(offset=first + index, timestamp=message.timestamp if magic else -1)
        for index, message in enumerate(listed)
    ]


def singles(magic: int, listed: Sequence[Message]) -> bytes:
    return b"".join(write_message(magic, one.offset, one.timestamp, 0, one.key, one.value) for one in listed)


def wrapped(magic: int, codec: Codec, listed: Sequence[Message], attributes: int = 0) -> bytes:
    """One wrapper, as a log has it; without a codec the messages alone."""
    if not codec:
        return singles(magic, listed)
    inner = singles(magic, [one._replace(offset=one.offset - listed[0].offset) for one in listed] if magic else listed)
    return wrapper(magic, codec, inner, listed[-1].offset, max(one.timestamp for one in listed), attributes)


def wrapper(
    magic: int, codec: Codec, inner: bytes, offset: int = 0, timestamp: int = FIRST, attributes: int = 0
) -> bytes:
    packed = compress(codec, inner)
    value = as_magic_0(packed) if magic == 0 and codec is Codec.LZ4 else packed
    return write_message(magic, offset, timestamp, codec | attributes, None, value)


def read(record_set: bytes, *, limit: int = LIMIT, ordered: bool = True) -> list[Message]:
    place = b"_" + record_set + b"__", 1, 1 + len(record_set)
    found = read_messages(*place, limit=limit) if ordered else read_produced(*place, Room(limit))
    return [one._replace(key=_copy(one.key), value=_copy(one.value)) for one in found]


def _copy(part: Any) -> bytes | None:
    return None if part is None else bytes(part)


def by_kafka_python(magic: int, codec: Codec, listed: Sequence[Message]) -> bytes:
    builder: Any = LegacyRecordBatchBuilder(magic, int(codec), 1 << 24)
    for index, one in enumerate(listed):
        builder.append(index, one.timestamp, one.key, one.value)
    return bytes(builder.build())


def seen_by_kafka_python(magic: int, record_set: bytes) -> list[Message]:
    """The message of a set with one entry."""
    batch: Any = LegacyRecordBatch(record_set, magic)
    assert batch.validate_crc()
    return [
        Message(one.offset, -1 if magic == 0 else one.timestamp, bool(one.timestamp_type), one.key, one.value)
        for one in batch
    ]
