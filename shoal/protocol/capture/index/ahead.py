"""Reads Produce requests of many partitions, or in several chunks, as they are sent, before earlier deferred requests.

The walkers read everything in order, so before each request that is too long to copy, all deferred requests would have
to be read. This reader does not depend on earlier requests. It knows the start of a producer's requests, copies each
batch's header, and returns a request when its last byte has passed:

    size  api  correlation id  [known]  topics  topic  partitions  index  length  [header ... records]  no tag  index
    ...  no tags

A chunk may end within records. If it ends elsewhere, or anything is unusual (two batches in a set, tags, another client
id or acks, an incomplete gzip or snappy batch), this reader ignores the chunk, and the walker continues at its start
(`Begun`). So the result is the same. `bench/index.py` measures what it saves.
"""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from shoal.protocol.capture.index.columns import HEADER_SIZE
from shoal.protocol.capture.index.pending import Request
from shoal.protocol.capture.index.record_sets import SingleBatch
from shoal.protocol.capture.index.sizes import NOT_HERE, said_size
from shoal.protocol.capture.index.stream import Abandon, More, read_length, read_name, read_tags
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import REQUEST_PREFIX
from shoal.protocol.wire.types import Topic

__all__ = ["MOST_KNOWN", "NOTHING", "AheadReader", "Begun", "Known", "Read", "as_request", "known_of"]

MOST_PARTITIONS: Final = 4096
"""Maximum per request, because its read part is kept."""
_PRODUCE: Final = int(ApiKey.PRODUCE)
_OLDEST, _COMPACT_FROM, _BY_ID_FROM, _NEWEST = 3, 9, 13, 13
_TOPIC_ID: Final = 16
MOST_KNOWN: Final = 1200
"""Bytes: two names of at most 512, and some numbers."""
_ACKS: Final = Struct(">hi")  # and timeout
_BATCH_START: Final = Struct(">i4xb4xh").unpack_from  # length, magic, attributes
_BATCH_AT: Final = 8
_LENGTH_END: Final = 12
_LEAST_LENGTH: Final = HEADER_SIZE - _LENGTH_END
_INDEX_AND_LENGTH_END: Final = 4 + _LENGTH_END
_CODEC: Final = 7

_PLAIN: Final = 4
_Set = tuple[int, int, int, bytes]
"""Index, the first bytes of the length, its last byte if there are three, header of the batch."""
_SETS: Final[dict[int, Callable[[memoryview, int], _Set]]] = {
    1: Struct(f">iB0s{HEADER_SIZE}s").unpack_from,
    2: Struct(f">iH0s{HEADER_SIZE}s").unpack_from,
    3: Struct(f">iHB{HEADER_SIZE}s").unpack_from,
    _PLAIN: Struct(f">ii0s{HEADER_SIZE}s").unpack_from,
}
"""By the number of bytes of the record set's length."""
_SAYS: Final = (0, 1 << 7, 1 << 14, 1 << 21, 1 << 31)
"""Upper bound of the length, by its number of bytes."""


_Beginning = Callable[[memoryview, int], tuple[int, bytes, int, bytes]]
"""Size, API, correlation id, and this many bytes after it."""


@lru_cache(maxsize=256)
def _beginning(size: int) -> _Beginning:
    return Struct(f">i4si{size}s").unpack_from


class Known(NamedTuple):
    """`middle`: the bytes between the correlation id and the number of topics."""

    api: bytes
    middle: bytes
    unpack: _Beginning
    version: int
    client: bytes
    acks: int
    tag: int  # size of an empty tagged-field section
    size: int  # of the known bytes and those before them

    def begins(self, frame: memoryview) -> bool:
        return frame[4:8] == self.api and frame[REQUEST_PREFIX : self.size] == self.middle


NOTHING: Final = Known(b"", b"", _beginning(0), 0, b"", 0, 0, 0)


class Begun(NamedTuple):
    """A request that has partly passed, up to a position within records."""

    known: Known
    correlation_id: int
    size: int
    left: int  # remaining bytes
    gap: int  # of these, up to the end of the records
    topics: int  # remaining, including the current one
    partitions: int  # remaining in that topic, without the current one
    topic: Topic
    usual: list[SingleBatch]


Read = tuple[Known, int, int, list[SingleBatch]]
"""Correlation id, size of the frame, its partitions."""


def as_request(read: Read, number: int, sent_ns: int) -> Request:
    known, correlation_id, size, usual = read
    request = Request(_PRODUCE, known.version, correlation_id, size, number)
    request.client, request.acks, request.sent_ns = known.client, known.acks, sent_ns
    request.partitions = [*usual]
    return request


class _Otherwise(Exception):
    """The request differs from the expected form."""


_OTHERWISE: Final = (_Otherwise, More, Abandon, IndexError, struct_error)


class AheadReader:
    """Reader of one connection. `begun`: the request that the next chunk continues. `batches`: in the last `read`."""

    __slots__ = (
        "_correlation_id",
        "_cut",
        "_first",
        "_known",
        "_partitions",
        "_said",
        "_size",
        "_stop",
        "_topic",
        "_topics",
        "_unpack",
        "_usual",
        "_width",
        "batches",
        "begun",
        "known",
    )

    def __init__(self) -> None:
        self.known = NOTHING
        self.begun: Begun | None = None
        self._cut: Begun | None = None
        # The start of the last request: the known bytes, number of topics, first topic, number of its partitions.
        self._first = b""
        self._said: tuple[int, Topic, int] | None = None  # the last three, decoded
        self._unpack = _beginning(0)  # reads as many bytes of the next request
        self._width = 3  # bytes of the last compact length
        self.batches = 0

    def learn(self, known: Known | None) -> None:
        if known is not None:
            self.known, self._said = known, None

    def read(self, chunk: memoryview) -> list[Read] | None:
        """The requests that end in this chunk, which is borrowed. None: the chunk was not read."""
        end, begun = len(chunk), self.begun
        self._cut, self.batches = None, 0
        try:
            if begun is None:
                pos = self._begin(chunk, 0)
            elif begun.gap >= end and begun.left > end:
                self.begun = begun._replace(left=begun.left - end, gap=begun.gap - end)
                return []
            else:
                pos = self._go_on(chunk, begun)
            found = self._walk(chunk, pos, end)
        except _OTHERWISE:
            return None
        self.begun = self._cut
        return found

    def _walk(self, chunk: memoryview, pos: int, end: int) -> list[Read]:
        """Read to the end of the chunk, which may be within records (`_cut`)."""
        found: list[Read] = []
        while True:
            pos = self._read_sets(chunk, pos, end)
            if self._cut is not None:
                return found
            tag = self._known.tag
            if tag and chunk[pos]:
                raise _Otherwise
            pos += tag
            self._topics -= 1
            if self._topics:
                pos = self._read_topic(chunk, pos)
                continue
            if tag and chunk[pos]:
                raise _Otherwise
            pos += tag
            if pos != self._stop:
                raise _Otherwise
            found.append((self._known, self._correlation_id, self._size, self._usual))
            self.batches += len(self._usual)
            if pos == end:
                return found
            pos = self._begin(chunk, pos)

    def _begin(self, chunk: memoryview, pos: int) -> int:
        """-> the start of the first partition."""
        known = self._known = self.known
        self._usual: list[SingleBatch] = []
        if self._said is not None:
            length, api, self._correlation_id, first = self._unpack(chunk, pos)
            if api == known.api and first == self._first:
                self._topics, self._topic, self._partitions = self._said
                self._size, self._stop = length + 4, pos + length + 4
                return pos + REQUEST_PREFIX + len(first)
        length, api, self._correlation_id, middle = known.unpack(chunk, pos)
        if api != known.api or middle != known.middle:
            raise _Otherwise
        self._size, self._stop = length + 4, pos + length + 4
        self._topics, behind = self._count(chunk, pos + known.size)
        behind = self._read_topic(chunk, behind)
        self._first = bytes(chunk[pos + REQUEST_PREFIX : behind])
        self._said = self._topics, self._topic, self._partitions
        self._unpack = _beginning(len(self._first))
        return behind

    def _go_on(self, chunk: memoryview, begun: Begun) -> int:
        self._known, self._correlation_id, self._size, self._stop, pos = begun[:5]
        _, _, _, _, _, self._topics, self._partitions, self._topic, usual = begun
        self._usual = [*usual]
        tag = begun.known.tag
        if tag and chunk[pos]:
            raise _Otherwise
        return pos + tag

    def _count(self, chunk: memoryview, pos: int) -> tuple[int, int]:
        """The size of an array, and its start."""
        count, pos = read_length(chunk, pos, compact=bool(self._known.tag))
        if not 0 < count <= MOST_PARTITIONS:
            raise _Otherwise
        return count, pos

    def _read_topic(self, chunk: memoryview, pos: int) -> int:
        known = self._known
        if known.version >= _BY_ID_FROM:
            self._topic = bytes(chunk[pos : pos + _TOPIC_ID])
            pos += _TOPIC_ID
        else:
            name, pos = read_name(chunk, pos, compact=bool(known.tag))
            self._topic = str(name, "utf-8", "replace")
        self._partitions, pos = self._count(chunk, pos)
        if len(self._usual) + self._partitions > MOST_PARTITIONS:
            raise _Otherwise
        return pos

    def _read_sets(self, chunk: memoryview, pos: int, end: int) -> int:
        """Read all remaining partitions of a topic."""
        tag, topic, add, left = self._known.tag, self._topic, self._usual.append, self._partitions
        width = self._width if tag else _PLAIN
        read_set = _SETS[width]
        while left:
            index, first, last, header = read_set(chunk, pos)
            length, magic, attributes = _BATCH_START(header, _BATCH_AT)
            size = length + _LENGTH_END + tag  # by the record set's length
            if width == 3:
                is_said = last == size >> 14 < 0x80 and first == (size & 0x7F) << 8 | size >> 7 & 0x7F | 0x8080
            else:
                is_said = (
                    first == ((size & 0x7F) << 8 | size >> 7 | 0x8000 if width == 2 else size) and size < _SAYS[width]
                )
            if not is_said or magic != 2 or length < _LEAST_LENGTH:
                if not tag or width == (width := _width(chunk, pos)):
                    raise _Otherwise
                self._width = width
                read_set = _SETS[width]
                continue
            raw, pos = length - _LEAST_LENGTH, pos + width + length + _INDEX_AND_LENGTH_END
            if attributes & _CODEC:
                raw = said_size(attributes & _CODEC, chunk, pos - raw, pos, end)
                if raw == NOT_HERE:
                    raise _Otherwise
            add((topic, index, raw, header))
            left -= 1
            if pos >= end and (pos > end or pos < self._stop):
                if pos > self._stop:
                    raise _Otherwise
                self._cut = self._begun(pos - end, self._stop - end, left)
                break
            if tag:
                if chunk[pos]:
                    raise _Otherwise
                pos += 1
        return pos

    def _begun(self, gap: int, left: int, partitions: int) -> Begun:
        frame = self._known, self._correlation_id, self._size, left, gap
        return Begun(*frame, self._topics, partitions, self._topic, self._usual)


def _width(chunk: memoryview, pos: int) -> int:
    """Bytes of the compact length after the index at `pos`."""
    return 1 if chunk[pos + 4] < 0x80 else 2 if chunk[pos + 5] < 0x80 else 3


def known_of(frame: memoryview, request: Request) -> Known | None:
    """The common start of requests like this one; `frame` has at least MOST_KNOWN bytes. None: not possible."""
    version = request.api_version
    if not _OLDEST <= version <= _NEWEST:
        return None
    compact = version >= _COMPACT_FROM
    try:
        _, pos = read_name(frame, REQUEST_PREFIX, compact=False)
        pos = read_tags(frame, pos) if compact else pos
        _, pos = read_name(frame, pos, compact=compact)
        acks, _ = _ACKS.unpack_from(frame, pos)
    except (More, Abandon, IndexError, struct_error):
        return None
    if not acks:
        return None
    size = pos + _ACKS.size
    middle = bytes(frame[REQUEST_PREFIX:size])
    return Known(bytes(frame[4:8]), middle, _beginning(len(middle)), version, request.client, acks, int(compact), size)
