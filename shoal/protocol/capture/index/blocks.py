"""Blocks of an index file: each has its own CRC, so damage costs one block, and a torn end the last one.

    block := magic 4, type u8, 0 u8, 0 u16, length u32, crc u32, payload
             (little-endian; the CRC-32C is of bytes 4-11 and payload)
    START := JSON: {"version", "row_size", "proxy", "host", "shoal" (version), "pid", "started_ns", "number", "tags"}
             (the first block of a file)
    NAMES := (number u32, length u16, UTF-8)*      before the first row that refers to them, again in every file
    ROWS  := rows of columns.ROW_SIZE bytes each
    STATE := JSON: {"written", "dropped", "closed"}: rows of this file so far, lost rows of this process

A reader that finds no block where one is expected searches for the next magic with a complete block: `Damaged` is what
it skipped.
"""

import json
from collections.abc import Iterator, Mapping
from enum import IntEnum
from struct import Struct
from typing import Any, Final, NamedTuple

from shoal.protocol.wire.crc import Buffer, crc32c
from shoal.protocol.wire.errors import RemoteProtocolError

__all__ = [
    "HEADER_SIZE",
    "LONGEST_NAME",
    "MAX_PAYLOAD",
    "Block",
    "BlockType",
    "Damaged",
    "Torn",
    "encode_block",
    "encode_names",
    "encode_object",
    "peek_block",
    "read_blocks",
    "read_names",
    "read_object",
]

_MAGIC: Final = b"\xa5KXB"
_HEADER: Final = Struct("<4sBBHII")
_CRC_FROM, _CRC_TO = 4, 12
HEADER_SIZE: Final = _HEADER.size
MAX_PAYLOAD: Final = 4 * 1024 * 1024
"""Bytes. A larger length is damage, so a reader never holds more than one such block."""
_NAME: Final = Struct("<IH")
_MAX_NAME: Final = 0xFFFF
LONGEST_NAME: Final = _NAME.size + _MAX_NAME
"""Bytes of a name in a block, at most."""


class BlockType(IntEnum):
    START = 1
    NAMES = 2
    ROWS = 3
    STATE = 4


class Block(NamedTuple):
    """`start`: of its header, in the file. `kind` is a plain number: a newer Shoal may know more types than these."""

    start: int
    kind: int
    payload: memoryview


class Damaged(NamedTuple):
    """Bytes from `start` to `end` that are not a block."""

    start: int
    end: int


class Torn(NamedTuple):
    """The last block, which is incomplete: it may still be written. Read again from `start`."""

    start: int


def encode_block(kind: int, payload: Buffer) -> bytes:
    """Raises ValueError above MAX_PAYLOAD."""
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a block of {len(payload)} bytes")
    head = _HEADER.pack(_MAGIC, kind, 0, 0, len(payload), 0)[:_CRC_TO]
    crc = crc32c(payload, crc32c(head[_CRC_FROM:]))
    return b"".join((head, crc.to_bytes(4, "little"), payload))


def encode_object(kind: int, fields: Mapping[str, Any]) -> bytes:
    """A START or STATE block."""
    return encode_block(kind, json.dumps(fields).encode())


def encode_names(names: Mapping[int, str]) -> bytes:
    """Names longer than 65,535 bytes are cut."""
    pieces = []
    for number, name in names.items():
        data = name.encode("utf-8", "replace")[:_MAX_NAME]
        pieces += [_NAME.pack(number, len(data)), data]
    return encode_block(BlockType.NAMES, b"".join(pieces))


def read_names(payload: Buffer) -> dict[int, str]:
    """Raises RemoteProtocolError."""
    names, pos, end = {}, 0, len(payload)
    while pos < end:
        if end - pos < _NAME.size:
            raise RemoteProtocolError("a block of names ends within a name")
        number, length = _NAME.unpack_from(payload, pos)
        pos += _NAME.size
        if length > end - pos:
            raise RemoteProtocolError("a block of names ends within a name")
        names[number] = str(payload[pos : pos + length], "utf-8", "replace")
        pos += length
    return names


def read_object(payload: Buffer) -> dict[str, Any]:
    """The content of a START or STATE block. Raises RemoteProtocolError."""
    try:
        value = json.loads(bytes(payload))
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"a block's JSON is damaged: {error}") from error
    if not isinstance(value, dict):
        raise RemoteProtocolError("a block's JSON is not an object")
    return value


def read_blocks(data: Buffer, start: int = 0, base: int = 0) -> Iterator[Block | Damaged | Torn]:
    """The blocks in `data` from `start` on; positions in the results are counted from `base`, where `data` begins in
    its file.

    Ends with `Torn` if the remaining bytes may become a block. Never raises.
    """
    view = memoryview(data)
    pos, end = start, len(view)
    while pos < end:
        size = _block_size(view, pos)
        if size is not None and pos + size <= end and _is_whole(view, pos, size):
            yield Block(base + pos, view[pos + 4], view[pos + HEADER_SIZE : pos + size])
            pos += size
            continue
        following = _next_whole(view, pos + 1)
        if following is None:
            yield from _unfinished(view, pos, base)
            return
        yield Damaged(base + pos, base + following)
        pos = following


def _unfinished(view: memoryview, pos: int, base: int) -> Iterator[Damaged | Torn]:
    """No complete block starts at or after `pos`, but an incomplete one may."""
    growing = _next_growing(view, pos)
    if growing > pos:
        yield Damaged(base + pos, base + growing)
    if growing < len(view):
        yield Torn(base + growing)


def _next_growing(view: memoryview, pos: int) -> int:
    data, end = _searchable(view), len(view)
    while (pos := data.find(_MAGIC[0], pos)) >= 0:
        if _may_grow(view, pos):
            return pos
        pos += 1
    return end


def _may_grow(view: memoryview, pos: int) -> bool:
    """True if the block here is incomplete but valid so far."""
    left = len(view) - pos
    if left < HEADER_SIZE:
        return _MAGIC.startswith(view[pos : pos + len(_MAGIC)])
    size = _block_size(view, pos)
    return size is not None and size > left


def _block_size(view: memoryview, pos: int) -> int | None:
    if len(view) - pos < HEADER_SIZE:
        return None
    peeked = peek_block(view[pos : pos + HEADER_SIZE])
    return peeked and peeked[1]


def peek_block(header: Buffer) -> tuple[int, int] | None:
    """Type and size (including the header) of the block with this header, without a CRC check. None: not a header."""
    if len(header) < HEADER_SIZE:
        return None
    magic, kind, _, _, length, _ = _HEADER.unpack_from(header)
    return (kind, HEADER_SIZE + length) if magic == _MAGIC and length <= MAX_PAYLOAD else None


def _is_whole(view: memoryview, pos: int, size: int) -> bool:
    crc = crc32c(view[pos + HEADER_SIZE : pos + size], crc32c(view[pos + _CRC_FROM : pos + _CRC_TO]))
    return crc == int.from_bytes(view[pos + _CRC_TO : pos + HEADER_SIZE], "little")


def _next_whole(view: memoryview, pos: int) -> int | None:
    """The start of the next complete block, as far as known."""
    data = _searchable(view)
    while (pos := data.find(_MAGIC, pos)) >= 0:
        size = _block_size(view, pos)
        if size is not None and pos + size <= len(view) and _is_whole(view, pos, size):
            return pos
        pos += 1
    return None


def _searchable(view: memoryview) -> bytes | bytearray:
    return view.obj if isinstance(view.obj, (bytes, bytearray)) and len(view.obj) == len(view) else bytes(view)
