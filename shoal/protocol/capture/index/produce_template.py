"""Repeated Produce requests: most requests of a producer differ only in a few numbers at fixed positions.

After the walkers have read a request with one batch, its *template* is kept: all bytes between its correlation id and
the index of its partition (client id, acks, topic). What the answers and the rows of a partition have in common is
packed once, in a `PartitionTemplate`:

    size  api  correlation id  [template]  index  length  [header of the batch ... records]  [no tags]
    size  correlation id  [topic  index  no error]  base offset  ...  [no errors  no throttle  no tags]

Every byte except those numbers and the records is compared. A frame with any difference (two batches, a codec that
states its size elsewhere, tags, an error with a text) is left to the walkers.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

from shoal.protocol.capture.index.columns import BATCH, HEADER_SIZE, Direction, Kind
from shoal.protocol.capture.index.pending import NO_NOTE, Request
from shoal.protocol.capture.index.record_sets import PartitionRows
from shoal.protocol.capture.index.sizes import said_size
from shoal.protocol.capture.index.template import ALWAYS, API, NOT_LOOKED, Frame, RowTemplate, Sent, Treated, shared
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import REQUEST_PREFIX
from shoal.protocol.wire.types import Topic, write_uvarint

__all__ = ["MOST_PARTITIONS", "PartitionTemplate", "ProduceTemplate", "template_of"]

MOST_PARTITIONS: Final = 256
"""Maximum partitions per template; beyond it all are forgotten."""
_OLDEST, _NEWEST = 3, 13
_START_FROM, _ERRORS_FROM, _COMPACT_FROM, _BY_ID_FROM = 5, 8, 9, 13
_NO_TAGS: Final = bytes(3)  # after the partition, the topic and the whole request
_NO_TAGS_SIZE: Final = len(_NO_TAGS)
_BATCH_AT: Final = 8
_BATCH_START: Final = Struct(">i4xb4xh").unpack_from  # length, magic, attributes
_BATCH_REST: Final = Struct("<qqqib")  # of the row's part for a batch
_LENGTH_END: Final = 12
_CODEC: Final = 7
_INT32: Final = Struct(">i")
_PRODUCE: Final = int(ApiKey.PRODUCE)
_Layout = Callable[[Frame], tuple[int, bytes, int, bytes, int, bytes, bytes]]
_LEAST: Final = HEADER_SIZE + 4  # fewest bytes after the index
_ROOM_OF_1, _ROOM_OF_2 = 128, 1 << 14
"""Most bytes of a length of 1 or 2 bytes and the records after it."""
_NO_ERROR: Final = bytes(2)


class PartitionTemplate(RowTemplate):
    """A partition of a ProduceTemplate."""

    kind_and_direction = Kind.BATCH, Direction.PRODUCED
    __slots__ = ("_always", "_end", "_length", "_start", "_unpack", "produce")

    def __init__(self, produce: "ProduceTemplate", index: int, answer: Struct, around: tuple[bytes, bytes]) -> None:
        super().__init__(produce.client, produce.topic, index, 1)
        self.produce = produce
        self._unpack, self._length = answer.unpack, answer.size
        self._start, self._end = map(shared, around)
        self._always = shared(ALWAYS.pack(answer.size, produce.api, 0))

    def row(self, sent: Sent, frame: Frame, now_ns: int, treated: Treated | None) -> bytes | None:
        if len(frame) != self._length:
            return None
        size, answered, start, base_offset, end = self._unpack(frame)
        if answered != sent[1] or start != self._start or end != self._end or size + 4 != self._length:
            return None
        return self._row(sent, now_ns, self._always, base_offset, treated)

    def as_request(self, sent: Sent) -> Request:
        _, correlation_id, sent_ns, number, size, raw, header, note = sent
        produce = self.produce
        request = Request(_PRODUCE, produce.version, correlation_id, size, number)
        request.client, request.acks, request.sent_ns, request.note = produce.client, produce.acks, sent_ns, note
        tail = _BATCH_REST.pack(0, -1, -1, raw, NOT_LOOKED) + header
        request.partitions = [PartitionRows(produce.topic, self.index, 0, [tail])]
        return request


class ProduceTemplate:
    """`api`: API, version and acks as a row has them."""

    __slots__ = (
        "_answer_end",
        "_answer_start",
        "_api",
        "_around",
        "_encoded",
        "_layouts",
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
        self.api = API.pack(_PRODUCE, version, request.acks)
        is_compact = version >= _COMPACT_FROM
        self._tail = _NO_TAGS if is_compact else b""
        self._encoded = _compact_length if is_compact else _plain_length
        self._api, self._middle = bytes(frame[4:8]), shared(bytes(frame[REQUEST_PREFIX:index_at]))
        self._around = index_at + _INT32.size + len(self._tail)
        widths = (1, 2, 3) if is_compact else (_INT32.size,) * 3
        self._layouts = _layouts(len(self._middle), widths)
        self._records_at = REQUEST_PREFIX + len(self._middle) + _INT32.size + HEADER_SIZE  # and the width
        self._answer_start, self._answer_end = _around(version, self.topic)
        self._usual = _answer_layout(version, len(self._answer_start), len(self._answer_end))
        self._partitions: dict[int, PartitionTemplate] = {}

    def read(self, frame: Frame, now_ns: int, number: int) -> Sent | None:
        """None: another kind of request."""
        size = len(frame)
        room = size - self._around  # for the records and their length
        if room < _LEAST:
            return None
        unpack, width = self._layouts[0 if room <= _ROOM_OF_1 else 1 if room <= _ROOM_OF_2 else 2]
        length, api, correlation_id, middle, index, records_length, header = unpack(frame)
        if length + 4 != size or middle != self._middle or api != self._api:
            return None
        records = room - width
        batch_length, magic, attributes = _BATCH_START(header, _BATCH_AT)
        if batch_length + _LENGTH_END != records or magic != 2 or records_length != self._encoded(records):
            return None
        if self._tail and frame[-_NO_TAGS_SIZE:] != _NO_TAGS:
            return None
        raw, codec = records - HEADER_SIZE, attributes & _CODEC
        if codec:
            pos = self._records_at + width
            raw = said_size(codec, frame, pos, pos + raw, size)
        partition = self._partitions.get(index) or self._partition(index)
        return partition, correlation_id, now_ns, number, size, raw, header, NO_NOTE

    def _partition(self, index: int) -> PartitionTemplate:
        if len(self._partitions) >= MOST_PARTITIONS:
            self._partitions.clear()
        start = self._answer_start + _INT32.pack(index) + _NO_ERROR
        end = self._answer_end + bytes(_INT32.size) + self._tail[:1]
        partition = self._partitions[index] = PartitionTemplate(self, index, self._usual, (start, end))
        return partition


def template_of(frame: Frame, request: Request, only: PartitionRows) -> ProduceTemplate | None:
    """The template of a Produce request with one batch; `frame` is whole. None: not possible."""
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
    found = template.read(frame, 0, 0)
    return template if found is not None and found[0].index == only.partition else None


@lru_cache(maxsize=_ROOM_OF_2)
def _compact_length(records: int) -> bytes:
    return write_uvarint(records + 1)


def _plain_length(records: int) -> bytes:
    return _INT32.pack(records)


@lru_cache(maxsize=256)
def _layouts(middle: int, widths: tuple[int, ...]) -> Sequence[tuple[_Layout, int]]:
    return [(_layout(middle, width), width) for width in widths]


def _layout(middle: int, width: int) -> _Layout:
    """Size, API, correlation id, the template, index, length of the records, header of the batch."""
    return Struct(f">i4si{middle}si{width}s{HEADER_SIZE}s").unpack_from


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
