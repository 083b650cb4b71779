"""A message of magic 0 (Kafka 0.8, 0.9) or 1 (0.10, KIP-32) in a message set (LegacyRecord.java).

    offset: int64             of the message; meaningless in a Produce request
    size: int32               of all bytes after it
    crc: uint32               CRC-32 (not -32C) of all bytes after it
    magic: int8
    attributes: int8          bits 0-2 codec; bit 3 LogAppendTime (magic 1)
    timestamp: int64          magic 1 only; ms, -1 = none
    key: int32 length, -1 = null
    value: int32 length, -1 = null

A message with a codec is a wrapper: its value is a compressed message set, its key is null. Its inner messages have the
wrapper's magic and no codec. The wrapper's offset is that of its last message; inner offsets are absolute in magic 0,
and relative to the wrapper's first message in magic 1 (KIP-31).
"""

from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from shoal.protocol.records.record import Slice
from shoal.protocol.wire.errors import LocalProtocolError

__all__ = [
    "ATTRIBUTES_AT",
    "CODEC_MASK",
    "CRC_AT",
    "CRC_FROM",
    "LOG_APPEND_TIME",
    "LOG_OVERHEAD",
    "OVERHEAD",
    "Message",
    "write_message",
]

LOG_OVERHEAD: Final = 12
"""Offset and size, which the size does not include."""
CRC_AT: Final = 12
CRC_FROM: Final = 16
ATTRIBUTES_AT: Final = 17
OVERHEAD: Final = (26, 34)
"""Bytes of a message of magic 0, 1 without key and value (LegacyRecord.RECORD_OVERHEAD_V0, V1 and LOG_OVERHEAD)."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08

_LOG_HEAD = Struct(">qiI")  # offset, size, crc
_HEADS = (Struct(">bbi"), Struct(">bbqi"))  # magic, attributes, [timestamp,] key length
_LENGTH = Struct(">i")
_CRC_BYTES = 4
_NULL = _LENGTH.pack(-1)


class Message(NamedTuple):
    """A message as a consumer gets it: `offset` absolute, `timestamp` in ms, -1 = none (always in magic 0)."""

    offset: int
    timestamp: int
    log_append_time: bool
    key: Slice | None
    value: Slice | None


def write_message(
    magic: int, offset: int, timestamp: int, attributes: int, key: Slice | None, value: Slice | None
) -> bytes:
    """A whole message, beginning with its offset. A wrapper's `value` is already compressed; magic 0 has no
    `timestamp`."""
    key_length = -1 if key is None else len(key)
    if magic == 1:
        head = _HEADS[1].pack(1, attributes, timestamp, key_length)
    elif magic == 0:
        head = _HEADS[0].pack(0, attributes, key_length)
    else:
        raise LocalProtocolError(f"messages have magic 0 or 1, not {magic}")
    body = b"".join((head, key or b"", _NULL if value is None else _LENGTH.pack(len(value)), value or b""))
    return _LOG_HEAD.pack(offset, len(body) + _CRC_BYTES, crc32(body)) + body
