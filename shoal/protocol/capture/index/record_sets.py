"""The common structure of Produce requests and Fetch answers: topics, partitions, record sets.

    head ── topic ── partition ── batch, batch, ... ── end of partition ── partition | end of topic ── topic | the rest

Only the header of a batch is read, and the uncompressed size that its codec states: zstd and gzip have it at their
beginning and end, snappy at the beginning of each block (of 32 KiB), lz4 not at all. An incomplete batch at the end of
a set (a broker fills answers up to their limit) is ignored: it will be fetched again.

Messages of formats before 0.11 (magic 0 and 1) have no batch header. A sequence of them makes one row of the index,
with size and codec only.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from shoal.protocol.capture.index.columns import BATCH, HEADER_SIZE
from shoal.protocol.capture.index.sizes import LEAST_GZIP, XERIAL, XERIAL_HEADER, preamble, said_size, zstd_size
from shoal.protocol.capture.index.sizes import NOT_HERE as _NOT_HERE
from shoal.protocol.capture.index.sizes import UNKNOWN as _UNKNOWN
from shoal.protocol.capture.index.stream import Abandon, FrameWalker, More, read_length, read_name, read_tags
from shoal.protocol.records.key_sample import KeySampler, has_keys
from shoal.protocol.wire.types import Buffer, Topic

__all__ = [
    "MAX_BATCHES",
    "PartitionRows",
    "RecordSetReader",
    "RecordSetWalker",
    "RecordSets",
    "SingleBatch",
    "as_rows",
    "read_topic",
]

MAX_BATCHES: Final = 100_000
"""Maximum per frame; further ones are counted but not read."""

_BATCH_START: Final = Struct(">qi4xb4xh")  # base offset, length, magic, attributes
_LEGACY_START: Final = Struct(">qi4xbb")  # offset, size, magic, attributes
_LEGACY: Final = Struct(">qiibIhiqqqhii")
_BY_ID_FROM, _TOPIC_ID = 13, 16
_LENGTH_END: Final = 12
_LEAST_LENGTH: Final = HEADER_SIZE - _LENGTH_END
_LEAST: Final = {0: 14, 1: 22, 2: _LEAST_LENGTH}  # the least lengths, by magic (LegacyRecord, DefaultRecordBatch)
_MAGIC_END: Final = 17
_ATTRIBUTES_AT: Final = 21
_KEYS_AT: Final = BATCH.size - 1
_LEGACY_END: Final = 18  # of the attributes
_CODEC: Final = 7
_GZIP, _SNAPPY, _ZSTD = 1, 2, 4
_READ_LATER: Final = (_GZIP, _SNAPPY)
_ISIZE: Final = Struct("<I")
_INT32: Final = Struct(">i")


class PartitionRows(NamedTuple):
    """`tails`: each row without its context. `log_offset` in it is the base offset on the wire."""

    topic: Topic
    partition: int
    error: int
    tails: list[bytes]


SingleBatch = tuple[Topic, int, int, bytes]
"""A partition with one batch: topic, index, uncompressed size, the batch's header. Its rows are made when needed."""


RecordSets = Iterable[tuple[Topic, int, Sequence[Buffer]]]
"""Record sets in memory: topic, index, the bytes in pieces."""


def as_rows(one: PartitionRows | SingleBatch) -> PartitionRows:
    if isinstance(one, PartitionRows):
        return one
    topic, index, raw, header = one
    return PartitionRows(
        topic, index, 0, [BATCH.pack(int.from_bytes(header[:8], "big", signed=True), -1, -1, raw, -1) + header]
    )


class RecordSetWalker(FrameWalker):
    __slots__ = (
        "_batch",
        "_compact",
        "_error",
        "_index",
        "_keys",
        "_partitions",
        "_raw",
        "_raw_left",
        "_set_left",
        "_tails",
        "_topic",
        "_topics",
        "_version",
        "batches",
        "error",
        "overlooked",
        "partitions",
        "sampler",
    )

    def __init__(self, prefix: int) -> None:
        super().__init__(prefix)
        self.overlooked = 0
        self.partitions: list[PartitionRows | SingleBatch] = []
        self.batches = 0
        self.error = 0  # of the frame's first partition that has one
        self._compact, self._version = False, 0
        self._topics = self._partitions = self._index = self._error = 0
        self._topic: Topic = ""
        self._set_left = 0  # bytes of the record set
        self._tails: list[bytes] = []
        self._batch = b""  # header of a batch whose plain size is not known yet,
        self.sampler: KeySampler | None = None
        self._keys = 0  # whether it has keys,
        self._raw = 0  # the part of that size known so far,
        self._raw_left = 0  # and the remaining bytes of the batch

    def read_partition(self, view: memoryview, pos: int, stop: int) -> int:
        """A step: read up to the record set, which starts with `enter`."""
        raise NotImplementedError

    def begin_topics(self, version: int, *, flexible_from: int) -> None:
        self._compact, self._version = version >= flexible_from, version
        self.partitions, self.batches, self.error = [], 0, 0
        self._tails, self._set_left = [], 0

    def enter_topics(self, count: int, pos: int) -> int:
        self._topics = count
        self._step = self._read_topic if count else self._pass
        return pos

    def _read_topic(self, view: memoryview, pos: int, stop: int) -> int:
        topic, pos = read_topic(view, pos, self._version, compact=self._compact)
        count, pos = read_length(view, pos, compact=self._compact)
        self._topic, self._partitions = topic, count
        self._step = self.read_partition if count else self._end_topic
        return pos

    def enter(self, index: int, error: int, size: int, start: int, pos: int) -> int:
        """The record set of partition `index` has `size` bytes from `pos` on; the step began at `start`."""
        if pos - start + size > self._left:
            raise Abandon
        self._index, self._set_left, self._error = index, size, error
        self.error = self.error or error
        self._step = self._read_batches if size else self._end_partition
        return pos

    def _end_partition(self, view: memoryview, pos: int, stop: int) -> int:
        pos = read_tags(view, pos) if self._compact else pos
        self.finish()
        self._partitions -= 1
        self._step = self.read_partition if self._partitions else self._end_topic
        return pos

    def _end_topic(self, view: memoryview, pos: int, stop: int) -> int:
        pos = read_tags(view, pos) if self._compact else pos
        self._topics -= 1
        self._step = self._read_topic if self._topics else self._pass
        return pos

    def finish(self) -> None:
        """Called by `ended`: complete the partition that ends with the frame."""
        if self._tails:
            self.partitions.append(PartitionRows(self._topic, self._index, self._error, self._tails))
            self.batches += len(self._tails)
            self._tails = []

    # -- batches ---------------------------------------------------------------------------------------------------

    def _read_batches(self, view: memoryview, pos: int, stop: int) -> int:
        first, end = pos, pos + self._set_left
        last = min(stop, end) - HEADER_SIZE
        tails, start, pack = self._tails, _BATCH_START.unpack_from, BATCH.pack
        before = len(tails)
        if self.batches + len(tails) > MAX_BATCHES:
            return self._leave_set(end)
        while pos <= last:
            offset, length, magic, attributes = start(view, pos)
            following: int = pos + _LENGTH_END + length
            if magic != 2 or length < _LEAST_LENGTH or following > end:
                break
            codec = attributes & _CODEC
            raw = length - _LEAST_LENGTH
            if codec:
                if codec == _ZSTD:
                    raw = zstd_size(view, pos + HEADER_SIZE, following)
                    if raw == _NOT_HERE:
                        break
                elif codec in _READ_LATER:
                    self._set_left = end - following
                    self._sample(view, first, before)
                    return self._read_later(view, pos, following, codec)
                else:
                    raw = _UNKNOWN
            tails.append(pack(offset, -1, -1, raw, -1) + view[pos : pos + HEADER_SIZE])
            pos = following
        if pos > first:
            self._sample(view, first, before)
            self._set_left = end - pos
            if pos == end:
                self._step = self._end_partition
            return pos
        return self._read_other(view, pos, stop, end)

    def _sample(self, view: memoryview, pos: int, before: int) -> None:
        """Look for keys in some of the batches after `pos`, whose rows are those after `before`."""
        tails, at = self._tails, before
        for picked in self.sampler.picks(len(tails) - before) if self.sampler is not None else ():
            while at < before + picked:
                pos, at = pos + _batch_size(tails[at]), at + 1
            tail = tails[at]
            keys = _keys(view, pos, pos + _batch_size(tail))
            tails[at] = tail[:_KEYS_AT] + keys.to_bytes(1, "big", signed=True) + tail[_KEYS_AT + 1 :]

    def _leave_set(self, end: int) -> int:
        self.overlooked += 1
        self._step = self._end_partition
        return end

    def _read_other(self, view: memoryview, pos: int, stop: int, end: int) -> int:
        """Not a batch of magic 2 with a complete header."""
        if end - pos < _MAGIC_END:
            self._step = self._end_partition
            return end
        if stop - pos < _LEGACY_END and stop < end:
            raise More
        offset, length, magic, attributes = _LEGACY_START.unpack_from(view, pos)
        following: int = pos + _LENGTH_END + length
        if magic not in _LEAST or length < _LEAST[magic]:
            return self._leave_set(end)
        if following > end:  # cut off
            self._step = self._end_partition
            return end
        if magic == 2:
            raise More
        self._add_legacy(offset, length, magic, attributes & _CODEC)
        self._set_left = end - following
        return following

    def _add_legacy(self, offset: int, length: int, magic: int, codec: int) -> None:
        first, tails = offset, self._tails
        if tails:
            before = _LEGACY.unpack_from(tails[-1], BATCH.size)
            if before[3] == magic and before[5] == codec:
                first = before[0]
                length += before[1] + _LENGTH_END
                tails.pop()
        delta = max(min(offset - first, 0x7FFFFFFF), 0)
        header = _LEGACY.pack(first, min(length, 0x7FFFFFFF), -1, magic, 0, codec, delta, -1, -1, -1, -1, -1, 0)
        tails.append(BATCH.pack(first, -1, -1, _UNKNOWN, -1) + header)

    # -- sizes that are stated later in the batch --------------------------------------------------------------------

    def _read_later(self, view: memoryview, pos: int, following: int, codec: int) -> int:
        self._batch = bytes(view[pos : pos + HEADER_SIZE])
        is_due = self.sampler is not None and len(self.sampler.picks(1))
        self._keys = _keys(view, pos, following) if is_due else _UNKNOWN
        pos += HEADER_SIZE
        self._raw, self._raw_left = 0, following - pos
        if codec == _SNAPPY:
            self._step = self._read_snappy
            return pos
        if self._raw_left < LEAST_GZIP:
            return self._know(_UNKNOWN, pos)
        self._step = self._read_isize
        self._raw_left = _ISIZE.size
        return following - _ISIZE.size

    def _know(self, raw: int, pos: int) -> int:
        """The batch is complete, except for its remaining bytes."""
        raw = raw if raw <= 0x7FFFFFFF else _UNKNOWN
        offset = int.from_bytes(self._batch[:8], "big", signed=True)
        self._tails.append(BATCH.pack(offset, -1, -1, raw, self._keys) + self._batch)
        self._step = self._read_batches if self._set_left else self._end_partition
        return pos + self._raw_left

    def _read_isize(self, view: memoryview, pos: int, stop: int) -> int:
        return self._know(_ISIZE.unpack_from(view, pos)[0], pos)

    def _read_snappy(self, view: memoryview, pos: int, stop: int) -> int:
        """Xerial framing (Java client), or one raw block (librdkafka)."""
        if min(stop, len(view)) - pos < min(self._raw_left, XERIAL_HEADER):
            raise More
        if bytes(view[pos : pos + len(XERIAL)]) == XERIAL and self._raw_left > XERIAL_HEADER:
            return self._pass_header(pos)
        return self._know(preamble(view, pos, pos + self._raw_left), pos)

    def _pass_header(self, pos: int) -> int:
        self._raw_left -= XERIAL_HEADER
        self._step = self._read_block
        return pos + XERIAL_HEADER

    def _read_block(self, view: memoryview, pos: int, stop: int) -> int:
        left = self._raw_left
        if stop - pos < min(left, XERIAL_HEADER):
            raise More
        if bytes(view[pos : pos + len(XERIAL)]) == XERIAL and left > XERIAL_HEADER:
            return self._pass_header(pos)
        size = _INT32.unpack_from(view, pos)[0] if left > _INT32.size else 0
        block = pos + _INT32.size
        plain = preamble(view, block, block + size)
        if not 0 < size <= left - _INT32.size or plain == _UNKNOWN:
            return self._know(_UNKNOWN, pos)
        self._raw += plain
        self._raw_left = left - _INT32.size - size
        return block + size if self._raw_left else self._know(self._raw, block + size)


class RecordSetReader(RecordSetWalker):
    """Reads record sets in memory, each as if it were a frame."""

    def __init__(self) -> None:
        super().__init__(prefix=0)

    def read(self, record_sets: RecordSets) -> list[PartitionRows | SingleBatch]:
        self.begin_topics(0, flexible_from=1)
        for topic, index, buffers in record_sets:
            if self.sampler is not None:
                buffers = [b"".join(buffers)]  # keys are looked for in whole batches
            elif (single := _single_batch(topic, index, buffers)) is not None:
                self.partitions.append(single)
                self.batches += 1
                continue
            self._topic, self._index, self._set_left = topic, index, sum(map(len, buffers))
            for buffer in buffers:
                self.feed(memoryview(buffer))
        return self.partitions

    def begin(self, view: memoryview, pos: int) -> int:
        self._step = self._read_batches
        return self._set_left

    def ended(self) -> None:
        self.finish()


def _single_batch(topic: Topic, index: int, buffers: Sequence[Buffer]) -> SingleBatch | None:
    """None: not one batch, whose header is a piece of its own or starts the only one."""
    if len(buffers) == 2 and len(buffers[0]) == HEADER_SIZE:
        (header, records), start = buffers, 0
    elif len(buffers) == 1 and len(buffers[0]) >= HEADER_SIZE:
        header, records, start = buffers[0][:HEADER_SIZE], buffers[0], HEADER_SIZE
    else:
        return None
    end = len(records)
    _, length, magic, attributes = _BATCH_START.unpack_from(header)
    raw, codec = end - start, attributes & _CODEC
    if magic != 2 or length - _LEAST_LENGTH != raw:
        return None
    if codec:
        raw = said_size(codec, records, start, end, end)
    return topic, index, raw, bytes(header)


def read_topic(view: memoryview, pos: int, version: int, *, compact: bool) -> tuple[Topic, int]:
    if version >= _BY_ID_FROM:
        return bytes(view[pos : pos + _TOPIC_ID]), pos + _TOPIC_ID
    name, pos = read_name(view, pos, compact=compact)
    return str(name, "utf-8", "replace"), pos


def _batch_size(tail: bytes) -> int:
    size: int = _INT32.unpack_from(tail, BATCH.size + 8)[0]
    return _LENGTH_END + size


def _keys(view: memoryview, pos: int, end: int) -> int:
    """Size of the batch, if it has arrived completely."""
    if end > len(view):
        return _UNKNOWN
    attributes = int.from_bytes(view[pos + _ATTRIBUTES_AT : pos + _ATTRIBUTES_AT + 2], "big")
    found = has_keys(attributes, view[pos + HEADER_SIZE : end])
    return _UNKNOWN if found is None else int(found)
