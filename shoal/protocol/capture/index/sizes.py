"""The uncompressed size that a compressed batch states, read in place while it passes.

`compression.stated_size` is the same for a whole batch in memory. Here a batch may be incomplete, and each microsecond
counts. gzip and snappy do not state it at the beginning: their functions need a whole batch; record_sets.py reads it in
steps.
"""

from struct import Struct
from typing import Final

__all__ = [
    "LEAST_GZIP",
    "NOT_HERE",
    "UNKNOWN",
    "XERIAL",
    "XERIAL_HEADER",
    "gzip_size",
    "preamble",
    "said_size",
    "snappy_size",
    "zstd_size",
]

UNKNOWN: Final = -1
NOT_HERE: Final = -2
"""The bytes that state the size have not arrived yet."""

_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_START: Final = Struct("<IB")  # magic, frame header descriptor
_ZSTD_LEAST: Final = 6
_ZSTD_HEADER: Final = 18  # the longest frame header (RFC 8878 3.1.1.1)
_DICTIONARY_ID: Final = (0, 1, 2, 4)  # bytes
_MOST: Final = 0x7FFFFFFF
LEAST_GZIP: Final = 18  # RFC 1952: header, an empty block, CRC-32 and ISIZE
XERIAL: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = 16
_INT32: Final = Struct(">i")


def _content_size(descriptor: int) -> tuple[int, int, int] | None:
    """Start and end of the size in a frame, and the number to add to it; None: not stated (RFC 8878 3.1.1.1)."""
    flag, single = descriptor >> 6, descriptor >> 5 & 1
    if not (flag or single):
        return None
    start = _ZSTD_START.size + (not single) + _DICTIONARY_ID[descriptor & 3]
    return start, start + (1 << flag), 256 if flag == 1 else 0


_CONTENT_SIZE: Final = tuple(map(_content_size, range(256)))


def zstd_size(view: bytes | bytearray | memoryview, pos: int, end: int) -> int:
    """The content size of the frame in `view[pos:end]`, of which `view` may have only the start."""
    if len(view) < min(pos + _ZSTD_HEADER, end):
        return NOT_HERE
    if end - pos < _ZSTD_LEAST:
        return UNKNOWN
    magic, descriptor = _ZSTD_START.unpack_from(view, pos)
    place = _CONTENT_SIZE[descriptor] if magic == _ZSTD_MAGIC else None
    if place is None:
        return UNKNOWN
    start, stop, more = place
    if pos + stop > end:
        return UNKNOWN
    value = int.from_bytes(view[pos + start : pos + stop], "little") + more
    return value if value <= _MOST else UNKNOWN


def gzip_size(view: bytes | bytearray | memoryview, pos: int, end: int) -> int:
    """The size of its last member, modulo 2^32."""
    value = int.from_bytes(view[end - 4 : end], "little") if end - pos >= LEAST_GZIP else _MOST + 1
    return value if value <= _MOST else UNKNOWN


def snappy_size(view: bytes | bytearray | memoryview, pos: int, end: int) -> int:
    """The size of all blocks in the Java client's framing, or of a single raw block."""
    if end - pos <= XERIAL_HEADER or bytes(view[pos : pos + len(XERIAL)]) != XERIAL:
        return preamble(view, pos, end)
    total = 0
    while pos < end:
        if end - pos > XERIAL_HEADER and bytes(view[pos : pos + len(XERIAL)]) == XERIAL:
            pos += XERIAL_HEADER
            continue
        size = _INT32.unpack_from(view, pos)[0] if end - pos > _INT32.size else 0
        pos += _INT32.size
        plain = preamble(view, pos, pos + size) if 0 < size <= end - pos else UNKNOWN
        if plain == UNKNOWN:
            return UNKNOWN
        total += plain
        pos += size
    return total if total <= _MOST else UNKNOWN


_ZSTD: Final = 4
_SAID_BEHIND: Final = {1: gzip_size, 2: snappy_size}
"""By codec; lz4 does not state it."""


def said_size(codec: int, view: bytes | bytearray | memoryview, pos: int, end: int, stop: int) -> int:
    """The size that any codec states for compressed records in `view[pos:end]`, which have arrived up to `stop`.
    NOT_HERE: the bytes that state it have not arrived."""
    if codec == _ZSTD:
        return zstd_size(view, pos, end)
    said = _SAID_BEHIND.get(codec)
    if said is None:
        return UNKNOWN
    return said(view, pos, end) if end <= stop else NOT_HERE


def preamble(view: bytes | bytearray | memoryview, pos: int, end: int) -> int:
    """The decoded length of the raw snappy block in `view[pos:end]`: an unsigned varint of at most 32 bits."""
    value = 0
    for shift in range(0, 35, 7):
        if pos >= end:
            return UNKNOWN
        byte = view[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value if value <= _MOST else UNKNOWN
    return UNKNOWN
