"""The same Produce request once more: most of a producer's requests differ in a few numbers only, and those have their places.

A request of one batch that the walkers have read leaves a *form*: all bytes between its correlation id and the index of its partition
(client id, acks, topic). A further frame that lies whole in its chunk and has these bytes is read at once:

    size  api  correlation id  [form]  index  length  [header of the batch ... records]  [no tags]
    size  correlation id  [topic]  index  error  base offset  ...  [no errors]  throttle  [no tags]

Every byte that is not a number to be read, or of a record, is compared; whatever is different in anything (two batches, a codec that
says its size elsewhere, tags, an error with a text) is left to the walkers, which read it as ever. So this adds nothing that could
be understood in another way; it takes a fifth of the time. FORMS of a connection are kept, for a producer of some topics.

Rejected: to keep the first bytes of each frame and take them apart later. It moves the cost, and half of it stays: the copies.
"""

from struct import Struct
from typing import Final, NamedTuple

from shoal.protocol.api import ApiKey
from shoal.protocol.capture.columns import BATCH, HEADER_SIZE
from shoal.protocol.capture.pending import Request
from shoal.protocol.capture.record_sets import PartitionRows
from shoal.protocol.capture.sizes import UNKNOWN, zstd_size
from shoal.protocol.wire import Topic, write_uvarint

__all__ = ["FORMS", "Form", "Said", "Sent", "form_of"]

FORMS: Final = 4
_HEAD: Final = 12  # bytes: size, API and version, correlation id
_OLDEST, _NEWEST = 3, 13
_START_FROM, _ERRORS_FROM, _COMPACT_FROM, _BY_ID_FROM = 5, 8, 9, 13
_NO_TAGS: Final = bytes(3)  # behind the partition, the topic and the whole request
_BATCH_START: Final = Struct(">qi4xb4xh")  # base offset, length, magic, attributes
_BATCH_REST: Final = Struct("<qqib")  # of the row's part for a batch, behind the offset in the log
_LENGTH_END: Final = 12
_CODEC: Final = 7
_ZSTD: Final = 4
_READ_LATER: Final = (1, 2)  # gzip and snappy: their sizes are not at the beginning
_INT32: Final = Struct(">i")
_API: Final = Struct("<hhh")  # of a row
_PRODUCE: Final = int(ApiKey.PRODUCE)
_LEAST: Final = HEADER_SIZE + 4  # of bytes behind the index


class Sent(NamedTuple):
    """A request of this `form` that waits for its answer. `batch`: the row's last bytes, behind the offset in the log."""

    form: "Form"
    correlation_id: int
    number: int
    sent_ns: int
    size: int
    partition: int
    batch: bytes

    def as_request(self) -> Request:
        """For those who read its answer byte by byte."""
        form = self.form
        request = Request(_PRODUCE, form.version, self.correlation_id, self.size, self.number)
        request.client, request.acks, request.sent_ns = form.client, form.acks, self.sent_ns
        request.partitions = [PartitionRows(form.topic, self.partition, 0, [_NO_OFFSET + self.batch])]
        return request


class Said(NamedTuple):
    """What an answer says."""

    error: int
    base_offset: int
    throttle_ms: int


_NO_OFFSET: Final = bytes(8)  # put in when it is known


class Form:
    """`api`: API, version and acks as a row has them. `names`: the packed numbers of names, good while `names_of` is what it was: see `RowMaker.again`."""

    __slots__ = (
        "_answer",
        "_answer_end",
        "_answer_start",
        "_api",
        "_compact",
        "_middle",
        "_request",
        "_tail",
        "acks",
        "api",
        "client",
        "names",
        "names_of",
        "topic",
        "version",
    )

    def __init__(self, frame: memoryview, index_at: int, request: Request, topic: Topic) -> None:
        version = request.api_version
        self.version, self.client, self.acks = version, request.client, request.acks
        self.topic = topic
        self.api = _API.pack(_PRODUCE, version, request.acks)
        self._compact = version >= _COMPACT_FROM
        self._tail = _NO_TAGS if self._compact else b""
        self._api, self._middle = bytes(frame[4:8]), bytes(frame[_HEAD:index_at])
        self._request = Struct(f">i4si{index_at - _HEAD}si")
        self._answer_start, self._answer_end = _around(version, self.topic)
        self._answer = Struct(_answer_layout(version, len(self._answer_start), len(self._answer_end)))
        self.names_of: object = None
        self.names = b""

    def read(self, frame: memoryview, number: int, now_ns: int) -> Sent | None:
        """None: it is something else."""
        plain, end = self._request, len(frame) - len(self._tail)
        if end < plain.size + _LEAST:
            return None
        size, api, correlation_id, middle, index = plain.unpack_from(frame)
        if size + 4 != len(frame) or api != self._api or middle != self._middle:
            return None
        records, at = _length(frame, plain.size, self._compact)
        if records != end - at or records < HEADER_SIZE or frame[end:] != self._tail:
            return None
        _, length, magic, attributes = _BATCH_START.unpack_from(frame, at)
        codec = attributes & _CODEC
        if length + _LENGTH_END != records or magic != 2 or codec in _READ_LATER:
            return None
        raw = records - HEADER_SIZE
        if codec:
            raw = zstd_size(frame, at + HEADER_SIZE, end) if codec == _ZSTD else UNKNOWN
        batch = _BATCH_REST.pack(-1, -1, raw, -1) + frame[at : at + HEADER_SIZE]
        return Sent(self, correlation_id, number, now_ns, len(frame), index, batch)

    def answer(self, sent: Sent, frame: memoryview) -> Said | None:
        """None: it is something else."""
        if len(frame) != self._answer.size:
            return None
        size, correlation_id, start, index, error, base_offset, end, throttle_ms, tail = self._answer.unpack(frame)
        if size + 4 != len(frame) or correlation_id != sent.correlation_id or index != sent.partition:
            return None
        if start != self._answer_start or end != self._answer_end or tail != self._tail[:1]:
            return None
        return Said(error, base_offset, throttle_ms)


def form_of(frame: memoryview, request: Request, only: PartitionRows) -> Form | None:
    """Of a Produce request that is just this frame and has one batch. None: its like cannot be read so."""
    if not _OLDEST <= request.api_version <= _NEWEST or not request.acks:
        return None
    records = _INT32.unpack_from(only.tails[0], BATCH.size + 8)[0] + _LENGTH_END
    is_compact = request.api_version >= _COMPACT_FROM
    at = len(frame) - (len(_NO_TAGS) if is_compact else 0) - records
    at -= (len(write_uvarint(records + 1)) if is_compact else 4) + _INT32.size
    if at < _HEAD:
        return None
    form = Form(frame, at, request, only.topic)
    found = form.read(frame, 0, 0)
    return form if found is not None and found.partition == only.partition else None


def _length(frame: memoryview, pos: int, is_compact: bool) -> tuple[int, int]:
    """Of a record set, and where that begins. -1: of some MiB, and left to others."""
    if not is_compact:
        return _INT32.unpack_from(frame, pos)[0], pos + 4
    value, shift = frame[pos] & 0x7F, 7
    while frame[pos] > 0x7F:
        pos += 1
        if shift > 14:
            return -1, pos
        value, shift = value | (frame[pos] & 0x7F) << shift, shift + 7
    return value - 1, pos + 1


def _around(version: int, topic: Topic) -> tuple[bytes, bytes]:
    """What stands before and behind the numbers of the one partition in an answer. Behind: no record errors, no text, no tags."""
    name = topic if isinstance(topic, bytes) else topic.encode()
    if version >= _BY_ID_FROM:
        return b"\0\2" + name + b"\2", b"\1\0\0\0"
    if version >= _COMPACT_FROM:
        return b"\0\2" + write_uvarint(len(name) + 1) + name + b"\2", b"\1\0\0\0"
    one = _INT32.pack(1)
    return one + len(name).to_bytes(2, "big") + name + one, _INT32.pack(
        0
    ) + b"\xff\xff" if version >= _ERRORS_FROM else b""


def _answer_layout(version: int, start: int, end: int) -> str:
    """Log append time, and the log's first offset from v5 on, are passed over."""
    passed = 16 if version >= _START_FROM else 8
    return f">ii{start}sihq{passed}x{end}si{int(version >= _COMPACT_FROM)}s"
