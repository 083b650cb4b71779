"""Record batches (magic 2) by `struct`, as the tests' producers send them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMESTAMP = 1_700_000_000_000  # ms; fixed, so both sides write the same bytes

_CONTROL = 0x20  # attribute bit 5


def batch(
    values: Sequence[bytes], *, producer_id: int = -1, epoch: int = -1, sequence: int = -1, transactional: bool = False
) -> bytes:
    """An uncompressed batch of records without keys and headers."""
    records = b"".join(_record(delta, value) for delta, value in enumerate(values))
    covered = struct.pack(
        ">hiqqqhii",
        0x10 if transactional else 0,
        len(values) - 1,
        TIMESTAMP,
        TIMESTAMP,
        producer_id,
        epoch,
        sequence,
        len(values),
    )
    covered += records
    return struct.pack(">qiibI", 0, 9 + len(covered), -1, 2, crc32c.crc32c(covered)) + covered


def corrupted(good: bytes) -> bytes:
    """The same batch with a flipped bit in its last record: the broker refuses its CRC."""
    return good[:-3] + bytes([good[-3] ^ 1]) + good[-2:]


def without_identity(records: bytes) -> bytes:
    """A record set without what differs between two producers: producer ids, the time of transaction markers and CRCs
    are zero. AssertionError if a CRC is wrong."""
    out = bytearray(records)
    start = 0
    while start + 61 <= len(out):
        (length,) = struct.unpack_from(">i", out, start + 8)
        (crc, attributes) = struct.unpack_from(">Ih", out, start + 17)
        end = start + 12 + length
        assert crc == crc32c.crc32c(bytes(out[start + 21 : end])), f"the CRC of the batch at {start} is wrong"
        out[start + 17 : start + 21] = bytes(4)
        out[start + 43 : start + 51] = bytes(8)
        if attributes & _CONTROL:
            out[start + 27 : start + 43] = bytes(16)
        start = end
    return bytes(out)


def _record(delta: int, value: bytes) -> bytes:
    body = b"\0\0" + _varint(delta) + _varint(-1) + _varint(len(value)) + value + b"\0"
    return _varint(len(body)) + body


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
