"""An old consumer's handling of a message set, piece by piece (magic 0 and 1, `Fetcher` of Kafka 0.10).

Independent of Shoal's code, which it measures. A set is a sequence of entries (offset, size, message); an entry that is
larger than the rest of the set is the partial message at its end, which all clients discard. A message whose attributes
name a codec is a wrapper: its value is a message set, whose offsets are absolute in magic 0, and relative in magic 1,
so that the last one's is the wrapper's own. A consumer that requested an offset within a wrapper skips the earlier
messages.

Every error of a client is `Damaged`: a wrong CRC, nested wrappers, a gap or a step back in the offsets, and a set with
only a partial message, for which clients raise RecordTooLargeException.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

import cramjam
import lz4.frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Damaged", "Message", "SetReader", "skim"]

_ENTRY = Struct(">qi")  # offset, size
_HEADS = {0: Struct(">Ibb"), 1: Struct(">Ibbq")}  # crc, magic, attributes; timestamp
_LENGTH = Struct(">i")
_LEAST = 14  # bytes of a message of magic 0 without key and value
_CODEC, _LOG_APPEND_TIME = 0x07, 0x08
_MAX_PLAIN = 64 << 20
_XERIAL, _XERIAL_BYTES = b"\x82SNAPPY\0", 16
_NO_TIMESTAMP = -1

Bytes = bytes | bytearray | memoryview


class Damaged(RuntimeError):
    """No client could read this, or it is not the data written."""


class Message(NamedTuple):
    offset: int
    timestamp: int  # ms; -1: none
    key: bytes | None
    value: bytes | None


class _Stored(NamedTuple):
    """A message as stored in a set. `offset` as stored: perhaps relative."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def _gunzip(data: bytes) -> bytes:
    opened = zlib.decompressobj(wbits=31)
    plain = opened.decompress(data, _MAX_PLAIN)
    if not opened.eof or opened.unused_data:
        raise Damaged("gzip that does not end where its message ends")
    return plain


def _unsnappy(data: bytes) -> bytes:
    """snappy-java's framing, which all old clients write: blocks after their lengths."""
    if data[: len(_XERIAL)] != _XERIAL:
        raise Damaged("snappy without its framing")
    plain, pos = [], _XERIAL_BYTES
    while pos < len(data):
        size = int.from_bytes(data[pos : pos + 4], "big")
        pos += 4 + size
        plain.append(bytes(cramjam.snappy.decompress_raw(data[pos - size : pos])))
    return b"".join(plain)


_OPEN: dict[int, Callable[[bytes], bytes]] = {1: _gunzip, 2: _unsnappy, 3: lz4.frame.decompress}


class SetReader:
    """One record set of `size` bytes in an answer to a Fetch at `next_offset`. `check` raises for a wrong message."""

    def __init__(self, size: int, next_offset: int, check: Callable[[Message], None]) -> None:
        self.size = size
        self.next_offset = next_offset
        self.messages = 0
        self.largest = 0  # bytes of an entry
        self.padding = 0  # bytes of the partial message
        self._check = check
        self._fed = self._read = 0
        self._held = bytearray()

    def feed(self, data: Bytes) -> None:
        """Raises Damaged."""
        self._fed += len(data)
        if self.padding:
            return
        self._held += data
        taken = 0
        while (end := self._entry_end(taken)) is not None:
            self._take(bytes(self._held[taken:end]))
            taken = end
        self._read += taken
        del self._held[:taken]

    def end(self) -> None:
        """The whole set was fed. Raises Damaged."""
        if self._fed != self.size:
            raise Damaged(f"{self._fed} bytes of a set of {self.size}")
        self.padding = self.size - self._read
        if self.padding and not self.messages:
            raise Damaged(f"a set of {self.size} bytes without a whole message")

    def _entry_end(self, pos: int) -> int | None:
        """None: it has not arrived yet, or never will."""
        if len(self._held) - pos < _ENTRY.size:
            return None
        _, size = _ENTRY.unpack_from(self._held, pos)
        end: int = pos + _ENTRY.size + size
        if size < _LEAST:
            raise Damaged(f"a message of {size} bytes after offset {self.next_offset}")
        if self._read + end > self.size:
            self.padding = self.size - self._read - pos
            return None
        return end if end <= len(self._held) else None

    def _take(self, entry: bytes) -> None:
        self.largest = max(self.largest, len(entry))
        for message in _messages(entry):
            if message.offset < self.next_offset and not self.messages:
                continue  # of the first wrapper, before the requested offset
            if message.offset != self.next_offset:
                raise Damaged(f"offset {message.offset} where {self.next_offset} was due")
            self._check(message)
            self.messages += 1
            self.next_offset += 1


def skim(data: Bytes) -> int | None:
    """The offset of the last whole entry of a set, without checks; None: there is no such entry."""
    pos, last = 0, None
    while len(data) - pos >= _ENTRY.size:
        offset, size = _ENTRY.unpack_from(data, pos)
        pos += _ENTRY.size + max(size, 0)
        if pos > len(data):
            break
        last = offset
    return last


def _messages(entry: bytes) -> Iterator[Message]:
    (outer,) = _stored(entry)
    codec = outer.attributes & _CODEC
    if not codec:
        yield Message(outer.offset, outer.timestamp, outer.key, outer.value)
        return
    if codec not in _OPEN or outer.value is None:
        raise Damaged(f"a wrapper of codec {codec} at offset {outer.offset}")
    inner = list(_stored(_OPEN[codec](outer.value)))
    if not inner or any(message.magic != outer.magic or message.attributes & _CODEC for message in inner):
        raise Damaged(f"the wrapper at offset {outer.offset} holds nothing, another wrapper, or another magic")
    base = outer.offset - inner[-1].offset
    if outer.magic == 0 and base:
        raise Damaged(f"the wrapper at offset {outer.offset} ends with offset {inner[-1].offset}")
    appended = outer.timestamp if outer.attributes & _LOG_APPEND_TIME else None
    for message in inner:
        yield Message(
            base + message.offset, message.timestamp if appended is None else appended, message.key, message.value
        )


def _stored(data: Bytes) -> Iterator[_Stored]:
    """The messages of a whole set."""
    view, pos = memoryview(data), 0
    while pos < len(view):
        if len(view) - pos < _ENTRY.size + _LEAST:
            raise Damaged(f"{len(view) - pos} bytes behind the last message of a wrapper")
        offset, size = _ENTRY.unpack_from(view, pos)
        pos += _ENTRY.size
        if not _LEAST <= size <= len(view) - pos:
            raise Damaged(f"a message of {size} bytes at offset {offset}")
        yield _message(offset, view[pos : pos + size])
        pos += size


def _message(offset: int, data: memoryview) -> _Stored:
    magic = data[4]
    if magic not in _HEADS:
        raise Damaged(f"magic {magic} at offset {offset}")
    crc, _, attributes, *stamp = _HEADS[magic].unpack_from(data)
    if zlib.crc32(data[4:]) != crc:
        raise Damaged(f"wrong CRC at offset {offset}")
    key, pos = _nullable(data, _HEADS[magic].size, offset)
    value, pos = _nullable(data, pos, offset)
    if pos != len(data):
        raise Damaged(f"{len(data) - pos} bytes behind the value at offset {offset}")
    return _Stored(offset, magic, attributes, stamp[0] if stamp else _NO_TIMESTAMP, key, value)


def _nullable(data: memoryview, pos: int, offset: int) -> tuple[bytes | None, int]:
    if len(data) - pos < _LENGTH.size:
        raise Damaged(f"no room for a length at offset {offset}")
    (length,) = _LENGTH.unpack_from(data, pos)
    pos += _LENGTH.size
    if length < 0:
        return None, pos
    if length > len(data) - pos:
        raise Damaged(f"a field of {length} bytes at offset {offset}")
    return bytes(data[pos : pos + length]), pos + length
