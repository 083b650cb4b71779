"""Kafka's primitive types: adjacent read and write pairs.

Every reader is `read_x(buf, pos, end) -> (value, pos)`: it reads from `pos`, never at or beyond `end` (the buffer may
be longer than the frame), and raises `RemoteProtocolError` for invalid bytes. Every writer returns bytes. Source: Kafka
protocol guide, "Protocol Primitive Types"; KIP-482 for the compact types and tagged fields.
"""

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from shoal.protocol.wire.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Buffer: TypeAlias = bytes | bytearray | memoryview
Topic: TypeAlias = str | bytes
"""A topic's name, or its 16-byte id (Fetch v13+, Produce v13+)."""


class TopicPartition(NamedTuple):
    """A partition by its topic's name, even where a request uses the topic id: each partition has one identity."""

    topic: str
    partition: int


class PartitionRef(NamedTuple):
    """A partition as a request refers to it: by its topic's name, or by the topic's id. The response repeats it.

    Not an identity: the next request for the same partition may use the other form.
    """

    topic: Topic
    partition: int

    def __str__(self) -> str:
        topic = self.topic.hex() if isinstance(self.topic, bytes) else self.topic
        return f"partition {topic}-{self.partition}"


UVARINT_BYTES: Final = 5
"""An unsigned varint carries 32 bits: five groups of seven (`ByteUtils.readUnsignedVarint`)."""
VARLONG_BYTES: Final = 10
_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))

_INT8 = Struct(">b")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")


def _int_pair(layout: Struct) -> tuple["Callable[[Buffer, int, int], tuple[int, int]]", "Callable[[int], bytes]"]:
    def read(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
        after = pos + layout.size
        if after > end:
            raise RemoteProtocolError(f"an integer of {layout.size} bytes at {pos} runs past the end at {end}")
        value: int = layout.unpack_from(buf, pos)[0]
        return value, after

    return read, layout.pack


read_int8, write_int8 = _int_pair(_INT8)
read_int16, write_int16 = _int_pair(_INT16)
read_int32, write_int32 = _int_pair(_INT32)
read_int64, write_int64 = _int_pair(_INT64)


def _read_base128(buf: Buffer, pos: int, end: int, most: int) -> tuple[int, int]:
    value = shift = 0
    for at in range(pos, min(end, pos + most)):
        byte = buf[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
    raise RemoteProtocolError(f"a varint at {pos} does not end within {most} bytes before {end}")


def read_uvarint(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """UNSIGNED_VARINT, at most five bytes."""
    return _read_base128(buf, pos, end, UVARINT_BYTES)


def write_uvarint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return bytes((value,))
    if 0 <= value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if not 0 <= value < 1 << 32:
        raise LocalProtocolError(f"{value} does not fit an unsigned varint")
    return _write_base128(value)


def _write_base128(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """VARINT: zigzag, 32 bits (record lengths and deltas)."""
    if pos < end and (raw := buf[pos]) < 0x80:
        return raw >> 1 ^ -(raw & 1), pos + 1
    raw, pos = _read_base128(buf, pos, end, UVARINT_BYTES)
    return (raw & 0xFFFFFFFF) >> 1 ^ -(raw & 1), pos


def write_varint(value: int) -> bytes:
    raw = (value << 1 ^ value >> 31) & 0xFFFFFFFF
    return _ONE_BYTE[raw] if raw < 0x80 else _write_base128(raw)


def read_varlong(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """VARLONG: zigzag, 64 bits (timestamp deltas)."""
    if pos < end and (raw := buf[pos]) < 0x80:
        return raw >> 1 ^ -(raw & 1), pos + 1
    raw, pos = _read_base128(buf, pos, end, VARLONG_BYTES)
    return (raw & 0xFFFFFFFFFFFFFFFF) >> 1 ^ -(raw & 1), pos


def write_varlong(value: int) -> bytes:
    raw = (value << 1 ^ value >> 63) & 0xFFFFFFFFFFFFFFFF
    return _ONE_BYTE[raw] if raw < 0x80 else _write_base128(raw)


def _read_text(buf: Buffer, pos: int, length: int, end: int) -> tuple[str, int]:
    after = pos + length
    if length < 0 or after > end:
        raise RemoteProtocolError(f"a string of {length} bytes at {pos} does not fit before {end}")
    try:
        return str(buf[pos:after], "utf-8"), after
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"the string at {pos} is not UTF-8") from error


def read_string(buf: Buffer, pos: int, end: int) -> tuple[str | None, int]:
    """STRING or NULLABLE_STRING: an int16 length, -1 = null."""
    length, pos = read_int16(buf, pos, end)
    return (None, pos) if length == -1 else _read_text(buf, pos, length, end)


def write_string(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    data = value.encode()
    if len(data) > 0x7FFF:
        raise LocalProtocolError(f"a string of {len(data)} bytes does not fit an int16 length")
    return _INT16.pack(len(data)) + data


def read_compact_string(buf: Buffer, pos: int, end: int) -> tuple[str | None, int]:
    """COMPACT_STRING or COMPACT_NULLABLE_STRING: an unsigned varint of length + 1, 0 = null."""
    length, pos = read_uvarint(buf, pos, end)
    return (None, pos) if length == 0 else _read_text(buf, pos, length - 1, end)


def write_compact_string(value: str | None) -> bytes:
    if value is None:
        return b"\x00"
    data = value.encode()
    return write_uvarint(len(data) + 1) + data


def read_uuid(buf: Buffer, pos: int, end: int) -> tuple[bytes, int]:
    after = pos + 16
    if after > end:
        raise RemoteProtocolError(f"a uuid at {pos} runs past the end at {end}")
    return bytes(buf[pos:after]), after


def write_uuid(value: bytes) -> bytes:
    if len(value) != 16:
        raise LocalProtocolError(f"a uuid has 16 bytes, not {len(value)}")
    return value


def read_tagged_fields(buf: Buffer, pos: int, end: int) -> tuple[list[tuple[int, int, int]], int]:
    """A tagged-field section as `(tag, start, end)` of each value; tags must ascend (KIP-482)."""
    count, pos = read_uvarint(buf, pos, end)
    fields: list[tuple[int, int, int]] = []
    last = -1
    for _ in range(count):
        tag, pos = read_uvarint(buf, pos, end)
        size, pos = read_uvarint(buf, pos, end)
        if tag <= last or size > end - pos:
            raise RemoteProtocolError(f"tagged field {tag} before {pos} is out of order or runs past the end at {end}")
        fields.append((tag, pos, pos + size))
        last, pos = tag, pos + size
    return fields, pos


def skip_tagged_fields(buf: Buffer, pos: int, end: int) -> int:
    """The position after a tagged-field section."""
    count, pos = read_uvarint(buf, pos, end)
    for _ in range(count):
        _, pos = read_uvarint(buf, pos, end)
        size, pos = read_uvarint(buf, pos, end)
        pos += size
        if pos > end:
            raise RemoteProtocolError(f"a tagged field of {size} bytes runs past the end at {end}")
    return pos


def write_tagged_fields(fields: "Iterable[tuple[int, Sequence[Buffer]]]" = ()) -> bytes:
    """A tagged-field section from `(tag, pieces of its value)`, tags ascending."""
    written = [(tag, b"".join(pieces)) for tag, pieces in fields]
    head = write_uvarint(len(written))
    return head + b"".join(write_uvarint(tag) + write_uvarint(len(data)) + data for tag, data in written)
