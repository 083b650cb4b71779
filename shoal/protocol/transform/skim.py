"""Hide the broker addresses in a Fetch response that is too large to hold, while it is streamed.

From v16 a Fetch response may end with NodeEndpoints, tagged field 0: the real addresses of new leaders (KIP-951).
Holding a response of 50 MB to edit its last hundred bytes would cost 50 MB per connection, and a frame's size is sent
before its end is seen, so the field can be neither replaced nor removed. But its tag number is one byte, and a client
ignores unknown tags: `FetchSkimmer` overwrites that byte with `HIDDEN_TAG`, and the client finds the leader with a
Metadata request, as in older versions. All other bytes are forwarded unchanged at once: nothing is held, and the state
is one generator. Record sets are skipped by length; some 45 bytes per partition are parsed.

    FetchResponse v16-v18:  size, correlation id, tags | throttle int32, error int16, session int32, topics, tags
    topic:                  id 16, partitions, tags
    partition:              index 4, error 2, high watermark 8, last stable 8, log start 8, aborted (16, tags)*,
                            preferred replica 4, records, tags

Kafka 4.3 has no second tagged field there. If others followed NodeEndpoints, renaming alone would break the ascending
order of tags (KIP-482). Only then is the rest of the frame, from that tag number on, held and reordered: its length
is the same, since every tag number keeps its size. Addresses are hidden from clients that follow the protocol, not from
a sniffer.
"""

from collections.abc import Generator
from typing import Final, NamedTuple, TypeAlias

from shoal.protocol.wire.errors import RemoteProtocolError, UnsupportedVersion
from shoal.protocol.wire.types import read_uvarint

__all__ = ["HIDDEN_TAG", "HOLD", "VERSIONS", "FetchSkimmer", "Walk"]

VERSIONS: Final = range(16, 19)
HIDDEN_TAG: Final = 127
"""The highest one-byte tag number: the last that Kafka will come to use. (If it is taken, the highest free one.)"""

_PARTITION_BYTES: Final = 4 + 2 + 8 + 8 + 8
Walk: TypeAlias = Generator[int, int, int]
"""Yields the number of bytes to pass before the next byte, which is sent in; -1 = overwrite the last byte, -2 = hold it
and all following bytes. Returns the number of bytes to pass up to the end."""
_OVERWRITE: Final = -1
HOLD: Final = -2


class _Field(NamedTuple):
    """A whole tagged field: number, size and content."""

    tag: int
    data: bytes


class FetchSkimmer:
    """Feed it a whole response frame in pieces, from its size on, each piece before it is forwarded.

    `frame_size` includes the four bytes of the size. Raises UnsupportedVersion outside `versions`.
    """

    versions = VERSIONS

    def __init__(self, version: int, frame_size: int) -> None:
        if version not in self.versions:
            first, last = self.versions[0], self.versions[-1]
            raise UnsupportedVersion(f"FetchResponse version {version}: only {first}-{last} are known here")
        self._version = version
        self._left = frame_size
        self._walk: Walk = self._response()
        self._skip = next(self._walk)
        self._done = False
        self._fields = 0

    @property
    def left(self) -> int:
        """Bytes of the frame not fed yet; 0 = the frame is complete and was well-formed."""
        return self._left

    @property
    def unread(self) -> int:
        """So many of the next bytes may be forwarded without being fed: `passed` says how many were."""
        return min(self._skip, self._left - 1)

    def passed(self, size: int) -> None:
        """`size`: at most `unread`."""
        self._skip -= size
        self._left -= size

    def feed(self, chunk: bytearray | memoryview) -> int:
        """Takes the next bytes of the frame, overwrites at most one, and returns how many of them to forward.

        If fewer than all: hold the rest of the frame, `left` bytes, until it is complete; `finish` returns the bytes to
        send instead. Raises RemoteProtocolError.
        """
        pos, end = 0, len(chunk)
        if end > self._left:
            raise RemoteProtocolError(f"{end} bytes are fed of a frame that has {self._left} left")
        before = self._left
        while pos + self._skip < end:
            pos += self._skip
            self._left = before - pos - 1
            if self._step(chunk, pos):
                self._left += 1
                return pos
            pos += 1
        self._skip -= end - pos
        self._left = before - end
        if not self._left and not self._done:
            raise RemoteProtocolError("a fetch response ends before its last field")
        return end

    def finish(self, rest: bytes | bytearray) -> bytes:
        """The bytes to send instead of the held rest; same length. Raises RemoteProtocolError."""
        if len(rest) != self._left:
            raise RemoteProtocolError(f"{len(rest)} bytes end a frame that has {self._left} left")
        hidden = self._hide(rest)
        self._left = 0
        return hidden

    def _hide(self, rest: bytes | bytearray) -> bytes:
        fields = _fields(rest)
        if len(fields) != self._fields:
            raise RemoteProtocolError(f"a fetch response with {self._fields} tagged fields has {len(fields)}")
        return b"".join(field.data for field in sorted(_hidden(fields)))

    def _step(self, chunk: bytearray | memoryview, pos: int) -> bool:
        """True if this byte is the first to be held."""
        if self._done:
            raise RemoteProtocolError("a fetch response goes on after its last field")
        try:
            skip = self._walk.send(chunk[pos])
            if skip == HOLD:
                return True
            if skip == _OVERWRITE:
                chunk[pos] = HIDDEN_TAG
                skip = next(self._walk)
        except StopIteration as end:
            self._done = True
            skip = end.value
        self._skip = skip
        if skip > self._left:
            raise RemoteProtocolError(f"{skip} bytes of a fetch response run past its end, {self._left} bytes away")
        return False

    def _uvarint(self, skip: int = 0) -> Walk:
        """The unsigned varint after `skip` bytes."""
        value = 0
        for shift in range(0, 35, 7):
            byte = yield skip
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            skip = 0
        raise RemoteProtocolError("a varint of a fetch response does not end within five bytes")

    def _count(self, skip: int = 0) -> Walk:
        """The length of a compact array or record set, null = 0, after `skip` bytes."""
        count = (yield from self._uvarint(skip)) - 1
        if count > self._left:
            raise RemoteProtocolError(f"{count} elements or bytes of a fetch response in {self._left} bytes")
        return max(count, 0)

    # Each of these takes the number of bytes to skip before its first byte, and returns that after its last.

    def _response(self) -> Walk:
        skip = (yield from self._tags(4 + 4)) + 4 + 2 + 4
        skip = yield from self._topics(skip)
        return (yield from self._top_tags(skip))

    def _topics(self, skip: int) -> Walk:
        topics = yield from self._count(skip)
        skip = 0
        for _ in range(topics):
            partitions = yield from self._count(skip + 16)
            skip = 0
            for _ in range(partitions):
                skip = yield from self._partition(skip)
            skip = yield from self._tags(skip)
        return skip

    def _partition(self, skip: int) -> Walk:
        aborted = yield from self._count(skip + _PARTITION_BYTES)
        skip = 0
        for _ in range(aborted):
            skip = yield from self._tags(skip + 8 + 8)
        record_set = yield from self._count(skip + 4)
        return (yield from self._tags(record_set))

    def _tags(self, skip: int) -> Walk:
        count = yield from self._uvarint(skip)
        skip = 0
        for _ in range(count):
            yield from self._uvarint(skip)
            skip = yield from self._uvarint()
        return skip

    def _top_tags(self, skip: int) -> Walk:
        count = yield from self._uvarint(skip)
        skip = 0
        before = -1
        for _ in range(count):
            expected = self._left - skip - 1
            tag = yield from self._uvarint(skip)
            if tag <= before or (tag == 0 and self._left != expected):
                raise RemoteProtocolError(f"tag {tag} of a fetch response comes after tag {before}, or is padded")
            before = tag
            if tag == 0:
                self._fields = count
                yield _OVERWRITE if count == 1 else HOLD
            skip = yield from self._uvarint()
        return skip


def _fields(rest: bytes | bytearray) -> list[_Field]:
    """The tagged fields up to the end; the first has number 0."""
    fields: list[_Field] = []
    pos, end = 0, len(rest)
    while pos < end:
        tag, start = read_uvarint(rest, pos, end)
        size, start = read_uvarint(rest, start, end)
        if start + size > end or tag <= (fields[-1].tag if fields else -1):
            raise RemoteProtocolError(f"tag {tag} of a fetch response runs past its end or comes too late")
        fields.append(_Field(tag, bytes(rest[pos : start + size])))
        pos = start + size
    return fields


def _hidden(fields: list[_Field]) -> list[_Field]:
    """The same fields in order, the first under the number that hides it."""
    taken = {field.tag for field in fields}
    hidden = next((tag for tag in range(HIDDEN_TAG, 0, -1) if tag not in taken), None)
    if hidden is None:
        raise RemoteProtocolError("a large fetch response leaves no tag under which its NodeEndpoints could be hidden")
    return [_Field(hidden, bytes([hidden]) + fields[0].data[1:]), *fields[1:]]
