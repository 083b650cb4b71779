"""Take the broker addresses out of a Fetch response that is too large to hold, while it streams past.

From v16 a Fetch response may end with NodeEndpoints, tagged field 0: the real addresses of new leaders (KIP-951). Holding a
response of 50 MB to edit its last hundred bytes would cost 50 MB per connection, and a frame's size is sent before its
end is seen, so the field can neither be replaced nor removed. But its tag number is one byte, and a client ignores tags it
does not know: `FetchSkimmer` overwrites that byte with `HIDDEN_TAG` and the client finds the leader with a Metadata request,
as it does with every older version. All other bytes pass as they are, at once: nothing is ever held, the state is
one generator. Record sets are passed by length, unseen; what is parsed is some 45 bytes per partition.

    FetchResponse v16-v18:  size, correlation id, tags | throttle int32, error int16, session int32, topics, tags
    topic:                  id 16, partitions, tags
    partition:              index 4, error 2, high watermark 8, last stable 8, log start 8, aborted (16, tags)*,
                            preferred replica 4, records, tags

Kafka 4.3 knows no second tagged field there. Should one follow NodeEndpoints, renaming would break the ascending order of
tags (KIP-482); such a response is refused. Hosts are hidden from clients that follow the protocol, not from a sniffer.
"""

from collections.abc import Generator
from typing import Final, TypeAlias

from shoal.protocol.errors import RemoteProtocolError, UnsupportedVersion

__all__ = ["HIDDEN_TAG", "VERSIONS", "FetchSkimmer"]

VERSIONS: Final = range(16, 19)
HIDDEN_TAG: Final = 127
"""The highest tag number of one byte: the last that Kafka will come to use."""

_PARTITION_BYTES: Final = 4 + 2 + 8 + 8 + 8
_Walk: TypeAlias = Generator[int, int, int]
"""Yields how many bytes to pass before the next one, which is sent in; -1 = overwrite the last one. Returns how many
bytes to pass up to the end."""
_OVERWRITE: Final = -1


class FetchSkimmer:
    """Feed it one whole response frame in pieces, from its size on, each piece before it is forwarded.

    `frame_size` counts the four bytes of the size. Raises UnsupportedVersion outside v16-v18.
    """

    def __init__(self, version: int, frame_size: int) -> None:
        if version not in VERSIONS:
            raise UnsupportedVersion(f"FetchResponse version {version}: only 16-18 carry addresses in a known place")
        self._left = frame_size
        self._walk: _Walk = self._response()
        self._skip = next(self._walk)
        self._done = False

    @property
    def left(self) -> int:
        """Bytes of the frame still to come; 0 = the frame is complete and was well-formed."""
        return self._left

    def feed(self, chunk: bytearray | memoryview) -> None:
        """The next bytes of the frame, of which at most one is overwritten. Raises RemoteProtocolError."""
        pos, end = 0, len(chunk)
        if end > self._left:
            raise RemoteProtocolError(f"{end} bytes are fed of a frame that has {self._left} left")
        before = self._left
        while pos + self._skip < end:
            pos += self._skip
            self._left = before - pos - 1
            self._step(chunk, pos)
            pos += 1
        self._skip -= end - pos
        self._left = before - end
        if not self._left and not self._done:
            raise RemoteProtocolError("a fetch response ends before its last field")

    def _step(self, chunk: bytearray | memoryview, pos: int) -> None:
        if self._done:
            raise RemoteProtocolError("a fetch response goes on after its last field")
        try:
            skip = self._walk.send(chunk[pos])
            if skip == _OVERWRITE:
                chunk[pos] = HIDDEN_TAG
                skip = next(self._walk)
        except StopIteration as end:
            self._done = True
            skip = end.value
        self._skip = skip
        if skip > self._left:
            raise RemoteProtocolError(f"{skip} bytes of a fetch response run past its end, {self._left} bytes away")

    def _uvarint(self, skip: int = 0) -> _Walk:
        """The unsigned varint after `skip` bytes."""
        value = 0
        for shift in range(0, 35, 7):
            byte = yield skip
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            skip = 0
        raise RemoteProtocolError("a varint of a fetch response does not end within five bytes")

    def _count(self, skip: int = 0) -> _Walk:
        """The length of a compact array or record set, null = 0, after `skip` bytes."""
        count = (yield from self._uvarint(skip)) - 1
        if count > self._left:
            raise RemoteProtocolError(f"{count} elements or bytes of a fetch response in {self._left} bytes")
        return max(count, 0)

    # Each of the following takes the bytes to pass before its first byte, and returns those to pass after its last.

    def _response(self) -> _Walk:
        skip = (yield from self._tags(4 + 4)) + 4 + 2 + 4
        topics = yield from self._count(skip)
        skip = 0
        for _ in range(topics):
            partitions = yield from self._count(skip + 16)
            skip = 0
            for _ in range(partitions):
                skip = yield from self._partition(skip)
            skip = yield from self._tags(skip)
        return (yield from self._top_tags(skip))

    def _partition(self, skip: int) -> _Walk:
        aborted = yield from self._count(skip + _PARTITION_BYTES)
        skip = 0
        for _ in range(aborted):
            skip = yield from self._tags(skip + 8 + 8)
        record_set = yield from self._count(skip + 4)
        return (yield from self._tags(record_set))

    def _tags(self, skip: int) -> _Walk:
        count = yield from self._uvarint(skip)
        skip = 0
        for _ in range(count):
            yield from self._uvarint(skip)
            skip = yield from self._uvarint()
        return skip

    def _top_tags(self, skip: int) -> _Walk:
        count = yield from self._uvarint(skip)
        skip = 0
        for _ in range(count):
            tag = yield from self._uvarint(skip)
            if tag == 0:
                if count > 1:
                    raise RemoteProtocolError("a large fetch response has tagged fields besides its NodeEndpoints")
                yield _OVERWRITE
            skip = yield from self._uvarint()
        return skip
