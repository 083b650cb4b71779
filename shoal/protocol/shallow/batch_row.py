"""A row of batches to send: those of an envelope, or a part of them.

Envelopes of tiny batches contain hundreds, which usually go unchanged into one record set. So a row stores columns:
bytes, records and size of each batch. An object for one batch (`OutgoingBatch`) is made only when needed: to log which
batch was refused, or to cut it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from typing import NamedTuple, overload

from shoal.protocol.records.batch import CODEC_MASK, HEADER_SIZE, stamped_header
from shoal.protocol.records.producible import SmallBatches, sequences_of
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.crc import Buffer

__all__ = ["BatchSlice", "OutgoingBatch"]

_CODEC_AT = 22  # the low byte of a batch's attributes


class OutgoingBatch(NamedTuple):
    """One batch to send; its codec is known. `source` describes its origin, for the log."""

    buffers: tuple[Buffer, ...]
    records: int
    codec: Codec
    source: str

    @property
    def size(self) -> int:
        return sum(map(len, self.buffers))

    def __str__(self) -> str:
        return f"{self.source}, {self.records} records, {self.codec.name.lower()}, {self.size} bytes"


class _Columns(NamedTuple):
    """`parts`: either the buffers of each batch, with the 61 bytes of the header in the first one, or one buffer with
    all batches; or small ones, which become such a buffer when their stamps are known.

    `bounds`: the start of each batch (bytes) and the end of the last; offsets in that one buffer, if there is one.
    `records`: per batch. `sources`: the origin of each batch, as text or as its base offset in the source partition
    `origin`.
    """

    parts: Sequence[tuple[Buffer, ...]] | memoryview | SmallBatches
    bounds: Sequence[int]
    records: Sequence[int]
    sources: Sequence[int | str]
    origin: str

    def buffers(self, start: int, stop: int) -> Iterable[Buffer]:
        parts = self.parts.plain() if isinstance(self.parts, SmallBatches) else self.parts
        if isinstance(parts, memoryview):
            return (parts[self.bounds[start] : self.bounds[stop]],) if start < stop else ()
        return chain.from_iterable(parts[start:stop])


class BatchSlice(Sequence[OutgoingBatch]):
    """A window on shared columns: if batches are sent one by one, removing the first of hundreds must not copy the
    others.
    """

    __slots__ = ("_columns", "_start", "_stop")

    def __init__(self, columns: _Columns, start: int, stop: int) -> None:
        self._columns = columns
        self._start = start
        self._stop = stop

    @classmethod
    def of_envelope(
        cls,
        origin: str,
        parts: Sequence[tuple[Buffer, ...]] | SmallBatches,
        bounds: list[int],
        records: Sequence[int],
        offsets: Sequence[int],
    ) -> "BatchSlice":
        return cls(_Columns(parts, bounds, records, offsets, origin), 0, len(records))

    @classmethod
    def of(cls, batches: Sequence[OutgoingBatch]) -> "BatchSlice":
        columns = _Columns(
            [batch.buffers for batch in batches],
            list(accumulate([batch.size for batch in batches], initial=0)),
            [batch.records for batch in batches],
            [batch.source for batch in batches],
            "",
        )
        return cls(columns, 0, len(batches))

    def with_buffers(self, parts: Sequence[tuple[Buffer, ...]]) -> "BatchSlice":
        """The same batches in other buffers of the same sizes."""
        _, bounds, records, sources, origin = self._columns
        start, stop = self._start, self._stop
        columns = _Columns(parts, bounds[start : stop + 1], records[start:stop], sources[start:stop], origin)
        return BatchSlice(columns, 0, len(self))

    def __len__(self) -> int:
        return self._stop - self._start

    @overload
    def __getitem__(self, at: int) -> OutgoingBatch: ...

    @overload
    def __getitem__(self, at: slice) -> "BatchSlice": ...

    def __getitem__(self, at: int | slice) -> "OutgoingBatch | BatchSlice":
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            if step != 1:
                raise ValueError("a row has no gaps")
            return self.window(start, max(start, stop))
        _, _, records, sources, origin = self._columns
        place = self._place(at)
        source, count, buffers = sources[place], records[place], tuple(self._columns.buffers(place, place + 1))
        if isinstance(source, int):
            source = f"{origin} offsets {source}..{source + count - 1}"
        return OutgoingBatch(buffers, count, Codec(buffers[0][_CODEC_AT] & CODEC_MASK), source)

    def _place(self, at: int) -> int:
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        return (self._start if at >= 0 else self._stop) + at

    def window(self, start: int, stop: int) -> "BatchSlice":
        """The batches from `start` to `stop`, which must be inside the row."""
        return BatchSlice(self._columns, self._start + start, self._start + stop)

    def joined(self, other: "BatchSlice") -> "BatchSlice | None":
        """Both as one, if `other` follows in the same row."""
        if other._columns is not self._columns or other._start != self._stop:
            return None
        return BatchSlice(self._columns, self._start, other._stop)

    def records_of(self, at: int) -> int:
        return self._columns.records[self._start + at]

    def source_of(self, at: int) -> int | str:
        return self._columns.sources[self._start + at]

    @property
    def buffers(self) -> Iterable[Buffer]:
        """The bytes of the batches, in as few buffers as possible."""
        return self._columns.buffers(self._start, self._stop)

    @property
    def records(self) -> Sequence[int]:
        return self._columns.records[self._start : self._stop]

    @property
    def record_count(self) -> int:
        """Number of records in all batches."""
        start, stop, records = self._start, self._stop, self._columns.records
        return records[start] if stop - start == 1 else sum(records[start:stop])

    @property
    def size(self) -> int:
        return self._columns.bounds[self._stop] - self._columns.bounds[self._start]

    def stamped(self, producer_id: int, epoch: int, sequence: int, *, transactional: bool = False) -> "BatchSlice":
        """The same batches with a producer's stamps and consecutive sequences; `sequence` is the first one's."""
        parts, bounds, records, sources, origin = self._columns
        start, stop = self._start, self._stop
        records, sequences = records[start:stop], sequences_of(records[start:stop], sequence)
        if isinstance(parts, SmallBatches) and len(self) > 1:
            stamped = parts.stamped(start, stop, sequences, producer_id, epoch, transactional=transactional)
            first = bounds[start]
            bounds = [at - first for at in bounds[start : stop + 1]]
            return BatchSlice(_Columns(stamped, bounds, records, sources[start:stop], origin), 0, len(records))
        stamps = ((producer_id, epoch, base) for base in sequences)
        return self.with_buffers(
            [self._stamped(at, stamp, transactional=transactional) for at, stamp in enumerate(stamps, start)]
        )

    def stamped_buffers(self, stamp: tuple[int, int, int]) -> Iterable[Buffer]:
        """`buffers` of `stamped`."""
        return self._stamped(self._start, stamp) if len(self) == 1 else self.stamped(*stamp).buffers

    def _stamped(self, at: int, stamp: tuple[int, int, int], *, transactional: bool = False) -> tuple[Buffer, ...]:
        """One batch."""
        bounds = self._columns.bounds
        payload = bounds[at + 1] - bounds[at] - HEADER_SIZE
        head, *rest = self._columns.buffers(at, at + 1)
        if len(head) > HEADER_SIZE:
            view = memoryview(head)
            head, rest = view[:HEADER_SIZE], [view[HEADER_SIZE:], *rest]
        return stamped_header(head, payload, *stamp, transactional=transactional), *rest

    def fitting(self, room: int) -> int:
        """How many of the first batches fit into `room` bytes together."""
        bounds, start = self._columns.bounds, self._start
        return max(bisect_right(bounds, bounds[start] + room, start, self._stop + 1) - 1 - start, 0)
