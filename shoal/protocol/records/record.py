"""A record in a v2 batch (KIP-98, DefaultRecord.java): zigzag varints throughout.

length: varint          of all bytes after it
attributes: int8        unused; written as 0
timestampDelta: varlong to the batch's baseTimestamp
offsetDelta: varint     to the batch's baseOffset
key: varint length, -1 = null
value: varint length, -1 = null
headers: varint count, [key (never null), value (-1 = null)]*
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import read_varint, read_varlong, write_varint, write_varlong

__all__ = [
    "Headers",
    "Record",
    "Slice",
    "encode_single_record_head",
    "int64",
    "read_record_bounds",
    "read_records",
    "write_record",
]

Slice: TypeAlias = bytes | memoryview
Headers: TypeAlias = Sequence[tuple[Slice, Slice | None]]

MIN_RECORD_SIZE = 7  # six one-byte fields after a one-byte length
_NO_ATTRIBUTES = b"\0"


class Record(NamedTuple):
    """Keys, values and headers are slices of the input: bytes of bytes, memoryviews (no copy) of a memoryview."""

    offset_delta: int
    timestamp_delta: int
    key: Slice | None
    value: Slice | None
    headers: tuple[tuple[Slice, Slice | None], ...] = ()


def read_records(payload: Slice, count: int) -> Iterator[Record]:
    """The `count` records of a decompressed payload, which they must fill exactly.

    Raises RemoteProtocolError at once for an impossible count, while iterating for damage or bytes after the last
    record.
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
    """The bytes of a record before and after its value, so that the value (-1: null) need not be copied."""
    tail = b"".join((write_varint(len(headers)), *(_bytes(part) for header in headers for part in header)))
    deltas = (write_varlong(timestamp_delta), write_varint(offset_delta))
    head = b"".join((_NO_ATTRIBUTES, *deltas, _bytes(key), write_varint(value_length)))
    return write_varint(len(head) + max(value_length, 0) + len(tail)) + head, tail


def _records(payload: Slice, count: int) -> Iterator[Record]:
    pos = 0
    for _ in range(count):
        record, pos = _read_record(payload, pos)
        yield record
    if pos != len(payload):
        raise RemoteProtocolError(f"{len(payload) - pos} bytes after the last record")


def read_record_bounds(payload: Slice, pos: int) -> tuple[int, int]:
    """The start of the attributes, and the end, of the record at `pos`: within the payload, and not too short."""
    length, pos = read_varint(payload, pos, len(payload))
    end = pos + length
    if length < MIN_RECORD_SIZE - 1 or end > len(payload):
        raise RemoteProtocolError(f"record of {length} bytes, {len(payload) - pos} are there")
    return pos, end


def _read_record(payload: Slice, pos: int) -> tuple[Record, int]:
    pos, end = read_record_bounds(payload, pos)
    timestamp_delta, pos = read_varlong(payload, pos + 1, end)
    offset_delta, pos = read_varint(payload, pos, end)
    key, pos = _read_bytes(payload, pos, end)
    value, pos = _read_bytes(payload, pos, end)
    count, pos = read_varint(payload, pos, end)
    headers: tuple[tuple[Slice, Slice | None], ...] = ()
    if count:
        headers, pos = _read_headers(payload, pos, end, count)
    if pos != end:
        raise RemoteProtocolError(f"record fields end {end - pos} bytes before the record")
    return Record(offset_delta, timestamp_delta, key, value, headers), pos


def _read_headers(payload: Slice, pos: int, end: int, count: int) -> tuple[tuple[tuple[Slice, Slice | None], ...], int]:
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
    length, pos = read_varint(payload, pos, end)
    if length == -1:
        return None, pos
    stop = pos + length
    if not pos <= stop <= end:
        raise RemoteProtocolError(f"field of {length} bytes, {end - pos} are there")
    return payload[pos:stop], stop


def _bytes(value: Slice | None) -> bytes:
    return b"\1" if value is None else write_varint(len(value)) + value


def int64(value: int) -> int:
    """Java's long arithmetic wraps, and so do timestamps and their deltas."""
    return (value + (1 << 63) & (1 << 64) - 1) - (1 << 63)
