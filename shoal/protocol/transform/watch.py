"""Inspects a Fetch response that is too large to hold, while it is streamed: which partition got which offsets.

A held response is decoded (messages/fetch.py); this one is forwarded as it arrives. `FetchWatcher` is a `FetchSkimmer`
(so it hides addresses, too) that also notes the error code and session id (KIP-227), and for every partition with
records the consumer's next offset. That is in the batch headers, of which some 20 bytes are read; the bytes between are
skipped. So the state is one generator and a short list, for any size.

    v4-v11  fixed lengths    v5  log start offset    v7  error and session    v11  preferred replica
    v12     flexible         v13 topics by id        v16 NodeEndpoints
"""

from typing import Final, NamedTuple

from shoal.protocol.records.recordset import LOG_OVERHEAD, MIN_LENGTHS
from shoal.protocol.transform.skim import FetchSkimmer, Walk
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import Topic

__all__ = ["MAX_WATCHED", "FetchWatcher", "WatchedPartition"]

MAX_WATCHED: Final = 10_000
"""Partitions with records per response; a response with more is refused."""
_TOPIC_BYTES: Final = 249  # Topic.MAX_NAME_LENGTH
_MAGIC_END: Final = 17
_DELTA_END: Final = 27  # of lastOffsetDelta, the last field that is read


class WatchedPartition(NamedTuple):
    """`next_offset`: the consumer's next offset; 0 = unchanged (no whole batch), -1 = unreadable record set."""

    topic: Topic
    partition: int
    error_code: int
    high_watermark: int
    batches: int
    next_offset: int


class FetchWatcher(FetchSkimmer):
    """Response versions v4-v18. The attributes are complete when `left` is 0."""

    versions = range(4, 19)

    def __init__(self, version: int, frame_size: int, *, most: int = MAX_WATCHED) -> None:
        self.error_code = 0
        self.session_id = 0
        self.partitions: list[WatchedPartition] = []
        self._most = most
        self._flexible = version >= 12
        super().__init__(version, frame_size)

    def _int(self, size: int, skip: int = 0) -> Walk:
        """A signed integer of `size` bytes after `skip` bytes."""
        first = yield skip
        value = first - 256 if first > 127 else first
        for _ in range(size - 1):
            value = value << 8 | (yield 0)
        return value

    def _length(self, size: int, skip: int = 0) -> Walk:
        """The length of an array, string or record set; it has `size` bytes unless it is compact."""
        if self._flexible:
            return (yield from self._count(skip))
        count = yield from self._int(size, skip)
        if count > self._left:
            raise RemoteProtocolError(f"{count} elements or bytes of a fetch response in {self._left} bytes")
        return max(count, 0)

    def _end(self, skip: int) -> Walk:
        """The tagged fields of an element."""
        return (yield from self._tags(skip)) if self._flexible else skip

    def _response(self) -> Walk:
        skip = (yield from self._end(4 + 4)) + 4
        if self._version >= 7:
            self.error_code = yield from self._int(2, skip)
            self.session_id = yield from self._int(4)
            skip = 0
        topics = yield from self._length(4, skip)
        skip = 0
        for _ in range(topics):
            topic = bytearray()
            yield from self._topic(skip, topic)
            partitions = yield from self._length(4)
            skip = 0
            for _ in range(partitions):
                skip = yield from self._watched(skip, self._named(topic))
            skip = yield from self._end(skip)
        return (yield from self._top_tags(skip)) if self._flexible else skip

    def _topic(self, skip: int, topic: bytearray) -> Walk:
        """Fill `topic` with the bytes of the name or id."""
        size = 16
        if self._version < 13:
            size = yield from self._length(2, skip)
            skip = 0
        if size > _TOPIC_BYTES:
            raise RemoteProtocolError(f"a topic's name of {size} bytes in a fetch response")
        for _ in range(size):
            topic.append((yield skip))
            skip = 0
        return 0

    def _named(self, topic: bytearray) -> Topic:
        if self._version >= 13:
            return bytes(topic)
        try:
            return topic.decode()
        except UnicodeDecodeError as error:
            raise RemoteProtocolError(f"a topic's name in a fetch response is not UTF-8: {error}") from error

    def _watched(self, skip: int, topic: Topic) -> Walk:
        index = yield from self._int(4, skip)
        error_code = yield from self._int(2)
        high_watermark = yield from self._int(8)
        aborted = yield from self._length(4, 8 + (8 if self._version >= 5 else 0))
        skip = 0
        for _ in range(aborted):
            skip = yield from self._end(skip + 8 + 8)
        size = yield from self._length(4, skip + (4 if self._version >= 11 else 0))
        if size == 0:
            return (yield from self._end(0))
        found = [0, 0]
        skip = yield from self._batches(size, found)
        if len(self.partitions) >= self._most:
            raise RemoteProtocolError(f"a fetch response has records of more than {self._most} partitions")
        self.partitions.append(WatchedPartition(topic, index, error_code, high_watermark, *found))
        return (yield from self._end(skip))

    def _batches(self, size: int, found: list[int]) -> Walk:
        """A record set of `size` bytes: sets `found` to its number of whole batches and the offset after the last."""
        skip = 0
        while size >= _MAGIC_END:
            offset = yield from self._int(8, skip)
            length = yield from self._int(4)
            magic = yield from self._int(1, 4)
            if length < MIN_LENGTHS.get(magic, 1 << 31):
                found[1] = -1
                return size - _MAGIC_END
            if LOG_OVERHEAD + length > size:
                return size - _MAGIC_END  # the tail, truncated at the byte limit
            delta, skip = 0, LOG_OVERHEAD + length - _MAGIC_END
            if magic == 2:
                delta = yield from self._int(4, 6)
                skip = LOG_OVERHEAD + length - _DELTA_END
            found[:] = found[0] + 1, offset + delta + 1
            size -= LOG_OVERHEAD + length
        return skip + size
