"""Read message sets of magic 0 and 1 as a consumer does: messages out of wrappers, absolute offsets, effective
timestamps.

Stricter than Kafka (AbstractLegacyRecordBatch.java): a set ends where its last message ends, and a message where its
value ends, also inside a wrapper. Kafka ignores trailing bytes; here they would be lost silently.

As in Kafka: a wrapper has at least one message, of its own magic, none of them a wrapper; every CRC is checked, a
wrapper's before its content is read; a wrapper with LogAppendTime gives its timestamp to all its messages; offsets
inside a wrapper of magic 1 are relative to its first message, except if the wrapper's offset is 0, as librdkafka once
produced it.

Offsets of a produced set mean nothing (some clients write 0 in every message): only offsets of a log must ascend.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from shoal.protocol.legacy.lz4_header import as_standard
from shoal.protocol.legacy.message import CODEC_MASK, CRC_FROM, LOG_APPEND_TIME, LOG_OVERHEAD, OVERHEAD, Message
from shoal.protocol.wire.compression import Codec, decompress
from shoal.protocol.wire.crc import Buffer
from shoal.protocol.wire.errors import RemoteProtocolError

__all__ = ["Room", "read_messages", "read_produced"]

_HEAD = Struct(">qiIbb")  # offset, size, crc, magic, attributes
_TIMED = Struct(">qi")  # timestamp, key length
_LENGTH = Struct(">i")
_OFFSET_AND_SIZE = Struct(">qi")
_NO_TIMESTAMP = -1

_head, _timed, _length = _HEAD.unpack_from, _TIMED.unpack_from, _LENGTH.unpack_from


class _Entry(NamedTuple):
    """A message as encoded: `offset` may be relative."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: memoryview | None
    value: memoryview | None


class Room:
    """The decompressed bytes that further wrappers may take.

    A failure halves it: it may have cost everything left, so a sender can cause at most twice the total work.
    """

    def __init__(self, limit: int) -> None:
        self.left = limit

    def open(self, codec: Codec, data: Buffer) -> bytes:
        """`decompress` within this room."""
        try:
            plain = decompress(codec, data, self.left)
        except RemoteProtocolError:
            self.left //= 2
            raise
        self.left -= len(plain)
        return plain


def read_messages(buf: Buffer, start: int, end: int, *, limit: int) -> Iterator[Message]:
    """The messages of the whole set `buf[start:end]` of a log, with keys and values as memoryviews.

    Raises, while iterating, RemoteProtocolError for damage, a nested wrapper, another magic or codec, or an offset that
    does not ascend; TooLarge if wrappers decompress to more than `limit` bytes. The decompressed bytes of one wrapper
    are held at a time.
    """
    return _ascending(read_produced(buf, start, end, Room(limit)))


def read_produced(buf: Buffer, start: int, end: int, room: Room) -> Iterator[Message]:
    """`read_messages` for a produced set, whose offsets mean nothing. Wrappers are opened within `room`."""
    for entry in _entries(memoryview(buf)[start:end]):
        if entry.attributes & CODEC_MASK:
            yield from _inside(entry, memoryview(_opened(entry, room)))
        else:
            late = entry.magic == 1 and bool(entry.attributes & LOG_APPEND_TIME)
            yield Message(entry.offset, entry.timestamp, late, entry.key, entry.value)


def _ascending(messages: Iterator[Message]) -> Iterator[Message]:
    last = -1
    for message in messages:
        if message.offset <= last:
            raise RemoteProtocolError(f"message at offset {message.offset} behind one at {last}")
        last = message.offset
        yield message


def _entries(view: memoryview) -> Iterator[_Entry]:
    """The messages that fill `view`, wrappers or not, after a CRC check."""
    pos, end = 0, len(view)
    while pos < end:
        if end - pos < _HEAD.size:
            raise RemoteProtocolError(f"{end - pos} bytes are not a message")
        offset, size, crc, magic, attributes = _head(view, pos)
        stop = pos + LOG_OVERHEAD + size
        if not 0 <= magic <= 1 or stop - pos < OVERHEAD[magic] or stop > end:
            raise RemoteProtocolError(f"message of magic {magic} and {size} bytes, {end - pos} are there")
        if crc32(view[pos + CRC_FROM : stop]) != crc:
            raise RemoteProtocolError(f"message at offset {offset}: CRC mismatch")
        yield _Entry(offset, magic, attributes, *_content(view, magic, pos + _HEAD.size, stop))
        pos = stop


def _content(view: memoryview, magic: int, pos: int, end: int) -> tuple[int, memoryview | None, memoryview | None]:
    """Timestamp, key and value. The caller has checked that there is room for their lengths."""
    timestamp, key, value = _NO_TIMESTAMP, None, None
    if magic:
        timestamp, length = _timed(view, pos)
        pos += _TIMED.size
    else:
        (length,) = _length(view, pos)
        pos += _LENGTH.size
    if length != -1:
        key, pos = _part(view, pos, length, end - _LENGTH.size)
    (length,) = _length(view, pos)
    pos += _LENGTH.size
    if length != -1:
        value, pos = _part(view, pos, length, end)
    if pos != end:
        raise RemoteProtocolError(f"{end - pos} bytes after the value of a message")
    return timestamp, key, value


def _part(view: memoryview, pos: int, length: int, end: int) -> tuple[memoryview, int]:
    stop = pos + length
    if not pos <= stop <= end:
        raise RemoteProtocolError(f"key or value of {length} bytes, {end - pos} are there")
    return view[pos:stop], stop


def _opened(wrapper: _Entry, room: Room) -> bytes:
    """The decompressed message set of a wrapper."""
    codec = wrapper.attributes & CODEC_MASK
    if codec > Codec.LZ4:
        raise RemoteProtocolError(f"message of magic {wrapper.magic} with codec {codec}")
    if wrapper.value is None:
        raise RemoteProtocolError("a compressed message without a value")
    is_old_lz4 = codec == Codec.LZ4 and wrapper.magic == 0
    plain = room.open(Codec(codec), as_standard(wrapper.value) if is_old_lz4 else wrapper.value)
    if not plain:
        raise RemoteProtocolError("a compressed message with no messages in it")
    return plain


def _inside(wrapper: _Entry, plain: memoryview) -> Iterator[Message]:
    base = _base_offset(wrapper, plain)
    late = wrapper.magic == 1 and bool(wrapper.attributes & LOG_APPEND_TIME)
    for offset, magic, attributes, timestamp, key, value in _entries(plain):
        if attributes & CODEC_MASK or magic != wrapper.magic:
            raise RemoteProtocolError(
                f"a message of magic {magic} and attributes {attributes:#x} inside of one of magic {wrapper.magic}"
            )
        yield Message(base + offset, wrapper.timestamp if late else timestamp, late, key, value)


def _base_offset(wrapper: _Entry, plain: memoryview) -> int:
    """The value to add to the offsets inside."""
    if wrapper.magic == 0 or wrapper.offset == 0:
        return 0
    pos = offset = 0
    while len(plain) - pos >= _OFFSET_AND_SIZE.size:
        offset, size = _OFFSET_AND_SIZE.unpack_from(plain, pos)
        if size < 0:
            raise RemoteProtocolError(f"message of {size} bytes")
        pos += LOG_OVERHEAD + size
    return wrapper.offset - offset
