"""Batches as they are sent, in a row: those of an envelope, or part of them.

Envelopes of tiny batches hold hundreds, and usually all of them go out in one record set as they came. So a row keeps columns: the
bytes of each batch, its records, its size. An object for one batch (`SubBatch`) is made when somebody asks for that batch: to say in
the log which one was refused, or to cut it.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple, overload

from shoal.protocol.compression import Codec
from shoal.protocol.crc import Buffer

__all__ = ["BatchRow", "SubBatch"]

_CODEC_AT, _CODEC_MASK = 22, 0x07  # the low byte of a batch's attributes


class SubBatch(NamedTuple):
    """One batch as it is sent. `source` says which data it is, for the log."""

    buffers: tuple[Buffer, ...]
    records: int
    codec: Codec
    source: str

    @property
    def size(self) -> int:
        return sum(map(len, self.buffers))

    def __str__(self) -> str:
        return f"{self.source}, {self.records} records, {self.codec.name.lower()}, {self.size} bytes"


class BatchRow(Sequence[SubBatch]):
    """`parts`: the buffers of each batch, its 61 bytes at least in the first; `records` and `sizes` (bytes): of each.

    `sources` says of each which data it is: in words, or by its base offset in the source partition `origin`.
    """

    __slots__ = ("origin", "parts", "records", "sizes", "sources")

    def __init__(
        self,
        parts: list[tuple[Buffer, ...]],
        records: list[int],
        sizes: list[int],
        sources: Sequence[int | str],
        origin: str = "",
    ) -> None:
        self.parts = parts
        self.records = records
        self.sizes = sizes
        self.sources = sources
        self.origin = origin

    @classmethod
    def of(cls, batches: Sequence[SubBatch]) -> "BatchRow":
        return cls(
            [batch.buffers for batch in batches],
            [batch.records for batch in batches],
            [batch.size for batch in batches],
            [batch.source for batch in batches],
        )

    def __len__(self) -> int:
        return len(self.parts)

    @overload
    def __getitem__(self, at: int) -> SubBatch: ...

    @overload
    def __getitem__(self, at: slice) -> "BatchRow": ...

    def __getitem__(self, at: int | slice) -> "SubBatch | BatchRow":
        if isinstance(at, slice):
            return BatchRow(self.parts[at], self.records[at], self.sizes[at], self.sources[at], self.origin)
        buffers, records, source = self.parts[at], self.records[at], self.sources[at]
        if isinstance(source, int):
            source = f"{self.origin} offsets {source}..{source + records - 1}"
        return SubBatch(buffers, records, Codec(buffers[0][_CODEC_AT] & _CODEC_MASK), source)

    @property
    def size(self) -> int:
        return sum(self.sizes)

    def fitting(self, room: int) -> int:
        """How many of the first batches are no more than `room` bytes together."""
        return bisect_right(list(accumulate(self.sizes)), room)
