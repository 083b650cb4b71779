"""One record inside a v2 batch (KIP-98, DefaultRecord.java): zigzag varints throughout.

length: varint          of all that follows
attributes: int8        unused; written as 0
timestampDelta: varlong to the batch's baseTimestamp
offsetDelta: varint     to the batch's baseOffset
key: varint length, -1 = null
value: varint length, -1 = null
headers: varint count, [key (never null), value (-1 = null)]*
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from shoal.protocol.errors import RemoteProtocolError

__all__ = ["Headers", "Record", "Slice", "encode_single_record_head", "read_records", "write_record"]

Slice: TypeAlias = bytes | memoryview
Headers: TypeAlias = Sequence[tuple[Slice, Slice | None]]

MIN_RECORD_SIZE = 7  # six one-byte fields and the length before them

_VARINT_LIMIT = 1 << 32
_VARLONG_LIMIT = 1 << 64


class Record(NamedTuple):
    """Keys, values and headers are slices of what was read: bytes of bytes, memoryviews (no copy) of a memoryview."""

    offset_delta: int
    timestamp_delta: int
    key: Slice | None
    value: Slice | None
    headers: tuple[tuple[Slice, Slice | None], ...] = ()


def read_records(payload: Slice, count: int) -> Iterator[Record]:
    """The `count` records of a decompressed payload, which they must fill exactly.

    An impossible count raises RemoteProtocolError here, damage while iterating, bytes left over after the last record.
    """
    if not 0 <= count <= len(payload) // MIN_RECORD_SIZE:
        raise RemoteProtocolError(f"{count} records cannot be in {len(payload)} bytes")
    return _records(payload, count)


def write_record(record: Record) -> bytes:
    """The bytes of one record, length first."""
    value = record.value
    head, tail = encode_single_record_head(
        key=record.key,
        value_length=-1 if value is None else len(value),
        headers=record.headers,
        offset_delta=record.offset_delta,
        timestamp_delta=record.timestamp_delta,
    )
    return b"".join((head, value or b"", tail))


def encode_single_record_head(
    *, key: Slice | None, value_length: int, headers: Headers = (), offset_delta: int = 0, timestamp_delta: int = 0
) -> tuple[bytes, bytes]:
    """The bytes of a record before its value and after it, so that the value (-1: null) need not be copied."""
    tail = b"".join((_varint(len(headers)), *(_bytes(part) for header in headers for part in header)))
    head = b"".join(
        (b"\0", _varint(timestamp_delta), _varint(offset_delta), _bytes(key), _varint(value_length))  # \0: attributes
    )
    return _varint(len(head) + max(value_length, 0) + len(tail)) + head, tail


def _records(payload: Slice, count: int) -> Iterator[Record]:
    pos = 0
    for _ in range(count):
        try:
            record, pos = _read_record(payload, pos)
        except IndexError:
            raise RemoteProtocolError("record is truncated") from None
        yield record
    if pos != len(payload):
        raise RemoteProtocolError(f"{len(payload) - pos} bytes after the last record")


def _read_record(payload: Slice, pos: int) -> tuple[Record, int]:
    length, pos = _read_varint(payload, pos)
    end = pos + length
    if length < MIN_RECORD_SIZE - 1 or end > len(payload):
        raise RemoteProtocolError(f"record of {length} bytes, {len(payload) - pos} are there")
    timestamp_delta, pos = _read_varint(payload, pos + 1, _VARLONG_LIMIT)
    offset_delta, pos = _read_varint(payload, pos)
    key, pos = _read_bytes(payload, pos, end)
    value, pos = _read_bytes(payload, pos, end)
    if payload[pos]:
        headers, pos = _read_headers(payload, pos, end)
    else:
        headers, pos = (), pos + 1
    if pos != end:
        raise RemoteProtocolError(f"record fields end {pos - end:+} bytes from its stated end")
    return Record(offset_delta, timestamp_delta, key, value, headers), pos


def _read_headers(payload: Slice, pos: int, end: int) -> tuple[tuple[tuple[Slice, Slice | None], ...], int]:
    count, pos = _read_varint(payload, pos)
    if not 0 <= count <= (end - pos) // 2:
        raise RemoteProtocolError(f"{count} headers cannot be in {end - pos} bytes")
    headers = []
    for _ in range(count):
        key, pos = _read_bytes(payload, pos, end)
        if key is None:
            raise RemoteProtocolError("header key is null")
        value, pos = _read_bytes(payload, pos, end)
        headers.append((key, value))
    return tuple(headers), pos


def _read_bytes(payload: Slice, pos: int, end: int) -> tuple[Slice | None, int]:
    length, pos = _read_varint(payload, pos)
    stop = pos + length
    if length < 0:
        if length != -1:
            raise RemoteProtocolError(f"length {length} in a record")
        return None, pos
    if stop > end:
        raise RemoteProtocolError(f"field of {length} bytes, {end - pos} are there")
    return payload[pos:stop], stop


def _bytes(value: Slice | None) -> bytes:
    return b"\1" if value is None else _varint(len(value)) + value


def _read_varint(payload: Slice, pos: int, limit: int = _VARINT_LIMIT) -> tuple[int, int]:
    byte = payload[pos]
    pos += 1
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), pos
    value, bits = byte & 0x7F, 7
    while byte >= 0x80:
        byte = payload[pos]
        pos += 1
        value |= (byte & 0x7F) << bits
        bits += 7
        if value >= limit or bits > 70:  # ten bytes, even where leading zero groups follow
            raise RemoteProtocolError("varint is too long")
    return value >> 1 ^ -(value & 1), pos


def _varint(value: int) -> bytes:
    value = value << 1 ^ value >> 63
    if value < 0x80:
        return value.to_bytes(1, "big")
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)
