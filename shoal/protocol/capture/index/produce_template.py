"""Repeated Produce requests: most requests of a producer differ only in a few numbers at fixed positions.

After the walkers have read a request with one batch, its *template* is kept: all bytes between its correlation id and
the index of its partition (client id, acks, topic). A later frame with these bytes is read in one step, and so is its
answer. What the answers and the rows of a partition have in common is packed once, in a `PartitionTemplate`:

    size  api  correlation id  [template]  index  length  [header of the batch ... records]  [no tags]
    size  correlation id  [topic  index  no error]  base offset  ...  [no errors  no throttle  no tags]

Every byte except those numbers and the records is compared. A frame with any difference (two batches, a codec that
states its size elsewhere, tags, an error with a text) is left to the walkers. So the result is the same, in a twentieth
of the time. Each connection keeps MOST_TEMPLATES, enough for a producer to a few topics.

Only the part of a long frame before its records is kept for later, if the lengths show that it has one batch.

It is fast (`bench/index.py`) because of one `unpack` per frame and one `pack` per row, with constants in one piece;
plain tuples instead of objects; and lengths that are compared with the expected value instead of decoded.
"""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Final

from shoal.protocol.capture.index.columns import BATCH, CONTEXT, HEADER_SIZE, ROW_SIZE, Direction, Handling, Kind
from shoal.protocol.capture.index.pending import Request
from shoal.protocol.capture.index.record_sets import PartitionRows
from shoal.protocol.capture.index.sizes import UNKNOWN, gzip_size, snappy_size, zstd_size
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import REQUEST_PREFIX
from shoal.protocol.wire.types import Topic, write_uvarint

__all__ = [
    "MOST_PARTITIONS",
    "MOST_TEMPLATES",
    "Frame",
    "PartitionTemplate",
    "ProduceTemplate",
    "Sent",
    "as_request",
    "template_of",
]

Frame = bytes | bytearray | memoryview

MOST_TEMPLATES: Final = 4
MOST_PARTITIONS: Final = 256
"""Maximum partitions per template; beyond it all are forgotten."""
_OLDEST, _NEWEST = 3, 13
_START_FROM, _ERRORS_FROM, _COMPACT_FROM, _BY_ID_FROM = 5, 8, 9, 13
_NO_TAGS: Final = bytes(3)  # after the partition, the topic and the whole request
_NO_TAGS_SIZE: Final = len(_NO_TAGS)
_TAGS: Final = Struct(f"{_NO_TAGS_SIZE}s").unpack_from
_BATCH_AT: Final = 8
_BATCH_START: Final = Struct(">i4xb4xh").unpack_from  # length, magic, attributes
_BATCH_REST: Final = Struct("<qqqib")  # of the row's part for a batch
_LENGTH_END: Final = 12
_CODEC: Final = 7
_SAID: Final = {1: gzip_size, 2: snappy_size, 4: zstd_size}
_INT32: Final = Struct(">i")
_API: Final = Struct("<hhh")  # of a row
_PRODUCE: Final = int(ApiKey.PRODUCE)
_LEAST: Final = HEADER_SIZE + 4  # fewest bytes after the index
_ROOM_OF_1, _ROOM_OF_2 = 128, 1 << 14
"""Most bytes of a length of 1 or 2 bytes and the records after it."""
_MORE: Final = 18  # most bytes of a zstd frame that state its size
_NONE, _LZ4 = 0, 3
_Long = tuple[Callable[[Frame], tuple[int, int, int]], int, Callable[[Frame], tuple[bytes]]]
"""Reader of the frame's size, the batch's length and attributes; bytes around that length; copier of the non-record
part."""
_ROW: Final = Struct("<qqII44si16sq16sib61s").pack
"""CONTEXT, BATCH and the header; constant fields are one piece."""
_NO_SOURCE: Final = Struct("<qq").pack(-1, -1)
_NO_ERROR: Final = bytes(2)
_NOT_LOOKED: Final = -1  # keys not inspected
_ALWAYS: Final = Struct("<i6sh4s")  # answer's size; API, version, acks; no error; what
_WHAT: Final = bytes((Kind.BATCH, Direction.PRODUCED, Handling.PASSED, 0))
assert Struct("<qqII44si16sq16sib61s").size == ROW_SIZE
assert Struct("<qqII44si16s").size == CONTEXT.size

Sent = tuple["PartitionTemplate", int, int, int, int, int, bytes]
"""A request that waits for its answer: template, correlation id, time (ns), number, frame size, uncompressed size of
the records, batch header. Not a NamedTuple: creating one takes three times as long."""


def as_request(sent: Sent) -> Request:
    """The request as an object, for the walkers of its answer."""
    partition, correlation_id, sent_ns, number, size, raw, header = sent
    produce = partition.produce
    request = Request(_PRODUCE, produce.version, correlation_id, size, number)
    request.client, request.acks, request.sent_ns = produce.client, produce.acks, sent_ns
    tail = _BATCH_REST.pack(0, -1, -1, raw, _NOT_LOOKED) + header
    request.partitions = [PartitionRows(produce.topic, partition.index, 0, [tail])]
    return request


class PartitionTemplate:
    """A partition of a ProduceTemplate. `RowMaker.name` sets `names` and `connection`, valid in the sink's `epoch`."""

    __slots__ = ("_always", "_end", "_length", "_start", "_unpack", "connection", "epoch", "index", "names", "produce")

    def __init__(self, produce: "ProduceTemplate", index: int, answer: Struct, around: tuple[bytes, bytes]) -> None:
        self.produce, self.index = produce, index
        self._unpack, self._length = answer.unpack, answer.size
        self._start, self._end = around
        self._always = _ALWAYS.pack(answer.size, produce.api, 0, _WHAT)
        self.epoch, self.connection, self.names = -1, 0, b""

    def row(self, sent: Sent, frame: Frame, now_ns: int) -> bytes | None:
        """None: not the answer to this request, or an unusual one (`answers.read_whole`)."""
        if len(frame) != self._length:
            return None
        size, answered, start, base_offset, end = self._unpack(frame)
        _, correlation_id, sent_ns, number, request_size, raw, header = sent
        if answered != correlation_id or start != self._start or end != self._end or size + 4 != self._length:
            return None
        return _ROW(
            sent_ns,
            now_ns - sent_ns if now_ns > sent_ns else 0,
            self.connection,
            number,
            self.names,
            request_size,
            self._always,
            base_offset,
            _NO_SOURCE,
            raw,
            _NOT_LOOKED,
            header,
        )


class ProduceTemplate:
    """`api`: API, version and acks as a row has them."""

    __slots__ = (
        "_answer_end",
        "_answer_start",
        "_api",
        "_around",
        "_encoded",
        "_layouts",
        "_long",
        "_long_from",
        "_longer",
        "_longer_from",
        "_middle",
        "_partitions",
        "_records_at",
        "_tail",
        "_usual",
        "acks",
        "api",
        "client",
        "topic",
        "version",
    )

    def __init__(self, frame: Frame, index_at: int, request: Request, topic: Topic) -> None:
        version = request.api_version
        self.version, self.client, self.acks = version, request.client, request.acks
        self.topic = topic
        self.api = _API.pack(_PRODUCE, version, request.acks)
        is_compact = version >= _COMPACT_FROM
        self._tail = _NO_TAGS if is_compact else b""
        self._encoded = _compact_length if is_compact else _plain_length
        self._api, self._middle = bytes(frame[4:8]), bytes(frame[REQUEST_PREFIX:index_at])
        self._around = index_at + _INT32.size + len(self._tail)
        widths = (1, 2, 3) if is_compact else (_INT32.size,) * 3
        self._layouts = [(_layout(len(self._middle), width), width) for width in widths]
        self._long, self._longer = (_long_layout(len(self._middle), width, len(self._tail)) for width in widths[1:])
        self._long_from, self._longer_from = self._around + _ROOM_OF_1 + _MORE, self._around + _ROOM_OF_2
        self._records_at = REQUEST_PREFIX + len(self._middle) + _INT32.size + HEADER_SIZE  # and the width
        self._answer_start, self._answer_end = _around(version, self.topic)
        self._usual = _answer_layout(version, len(self._answer_start), len(self._answer_end))
        self._partitions: dict[int, PartitionTemplate] = {}

    def keep(self, frame: Frame, size: int) -> tuple[bytes] | None:
        """The part of a long frame of `size` bytes that `read` needs. None: all of it may be needed.

        If the batch ends with the frame, the rest is only records.
        """
        if size > self._longer_from:
            peek, around, copy = self._longer
        elif size > self._long_from:
            peek, around, copy = self._long
        else:
            return None
        length, batch_length, attributes = peek(frame)
        if length + 4 != size or batch_length + around != size or _NONE < attributes & _CODEC < _LZ4:
            return None
        return copy(frame)

    def read(self, frame: Frame, size: int, now_ns: int, number: int) -> Sent | None:
        """`frame`: all of its `size` bytes, or the kept part. None: another kind of request."""
        room = size - self._around  # for the records and their length
        if room < _LEAST:
            return None
        unpack, width = self._layouts[0 if room <= _ROOM_OF_1 else 1 if room <= _ROOM_OF_2 else 2]
        if len(frame) < self._records_at + width:  # kept by another template
            return None
        length, api, correlation_id, middle, index, records_length, header = unpack(frame)
        if length + 4 != size or middle != self._middle or api != self._api:
            return None
        records = room - width
        batch_length, magic, attributes = _BATCH_START(header, _BATCH_AT)
        if batch_length + _LENGTH_END != records or magic != 2 or records_length != self._encoded(records):
            return None
        if self._tail and len(frame) == size and _TAGS(frame, size - _NO_TAGS_SIZE)[0] != _NO_TAGS:
            return None
        raw, codec = records - HEADER_SIZE, attributes & _CODEC
        if codec:
            pos, said = self._records_at + width, _SAID.get(codec)
            raw = said(frame, pos, pos + raw) if said else UNKNOWN
        partition = self._partitions.get(index) or self._partition(index)
        return partition, correlation_id, now_ns, number, size, raw, header

    def _partition(self, index: int) -> PartitionTemplate:
        if len(self._partitions) >= MOST_PARTITIONS:
            self._partitions.clear()
        start = self._answer_start + _INT32.pack(index) + _NO_ERROR
        end = self._answer_end + bytes(_INT32.size) + self._tail[:1]
        partition = self._partitions[index] = PartitionTemplate(self, index, self._usual, (start, end))
        return partition


def template_of(frame: Frame, request: Request, only: PartitionRows) -> ProduceTemplate | None:
    """The template of a Produce request with one batch; `frame` is whole or the kept part. None: not possible."""
    [tail] = only.tails
    if not _OLDEST <= request.api_version <= _NEWEST or not request.acks:
        return None
    records = _INT32.unpack_from(tail, BATCH.size + _BATCH_AT)[0] + _LENGTH_END
    is_compact = request.api_version >= _COMPACT_FROM
    at = request.size - (len(_NO_TAGS) if is_compact else 0) - records
    at -= (len(write_uvarint(records + 1)) if is_compact else 4) + _INT32.size
    if at < REQUEST_PREFIX:
        return None
    template = ProduceTemplate(frame, at, request, only.topic)
    found = template.read(frame, request.size, 0, 0)
    return template if found is not None and found[0].index == only.partition else None


@lru_cache(maxsize=_ROOM_OF_2)
def _compact_length(records: int) -> bytes:
    return write_uvarint(records + 1)


def _plain_length(records: int) -> bytes:
    return _INT32.pack(records)


def _layout(middle: int, width: int) -> Callable[[Frame], tuple[int, bytes, int, bytes, int, bytes, bytes]]:
    """Size, API, correlation id, the template, index, length of the records, header of the batch."""
    return Struct(f">i4si{middle}si{width}s{HEADER_SIZE}s").unpack_from


def _long_layout(middle: int, width: int, tail: int) -> _Long:
    head = Struct(f">i4si{middle}si{width}s{HEADER_SIZE}s").size
    batch = head - HEADER_SIZE
    peek = Struct(f">i{batch + _BATCH_AT - _INT32.size}xi9xh")
    return peek.unpack_from, batch + _LENGTH_END + tail, Struct(f"{head + _MORE}s").unpack_from


def _around(version: int, topic: Topic) -> tuple[bytes, bytes]:
    """The bytes before and after the numbers of the partition in an answer. After: no record errors, text or tags."""
    name = topic if isinstance(topic, bytes) else topic.encode()
    if version >= _BY_ID_FROM:
        return b"\0\2" + name + b"\2", b"\1\0\0\0"
    if version >= _COMPACT_FROM:
        return b"\0\2" + write_uvarint(len(name) + 1) + name + b"\2", b"\1\0\0\0"
    one = _INT32.pack(1)
    return one + len(name).to_bytes(2, "big") + name + one, _INT32.pack(
        0
    ) + b"\xff\xff" if version >= _ERRORS_FROM else b""


def _answer_layout(version: int, start: int, end: int) -> Struct:
    """Index, error, throttle time and tags are in the bytes around the base offset.

    Log append time and, from v5 on, the log start offset are skipped.
    """
    passed, tags = 16 if version >= _START_FROM else 8, int(version >= _COMPACT_FROM)
    return Struct(f">ii{start + 6}sq{passed}x{end + 4 + tags}s")
