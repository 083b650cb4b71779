"""What goes to a partition in one request: one batch, or, where the broker was proven to take it, several.

Pieces (ahead.py) go out in the plan's order.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from shoal.protocol.records.rebatch import split_batch
from shoal.protocol.shallow.batch_row import BatchSlice, OutgoingBatch
from shoal.protocol.shallow.unwrap.ahead import BatchRange
from shoal.protocol.shallow.unwrap.sequence import Shape, Stamp
from shoal.protocol.wire.crc import Buffer

__all__ = ["OutgoingRecordSet", "halves"]

_JOINED_BELOW = (
    8 * 1024
)  # bytes of a buffer, on average: copying it costs less than handing it to the kernel on its own


class OutgoingRecordSet(NamedTuple):
    """The record set for one partition. `stamp`: the first batch's; each of the others has the sequence that follows (`sequence.py`)."""

    pieces: tuple[BatchRange, ...]
    stamp: Stamp | None

    @property
    def batches(self) -> int:
        return sum(len(piece.row) for piece in self.pieces)

    @property
    def size(self) -> int:
        return sum(piece.size for piece in self.pieces)

    @property
    def records(self) -> int:
        return sum(piece.records for piece in self.pieces)

    def shape(self) -> Shape:
        first = self.pieces[0]
        assert self.stamp is not None
        records = tuple(chain.from_iterable(piece.row.records for piece in self.pieces))
        return Shape(first.item, first.batch, first.first, records, self.stamp)

    def buffers(self) -> Sequence[Buffer]:
        """The bytes of the record set."""
        buffers = list(chain.from_iterable(row.buffers for row in self._rows()))
        are_small = self.size < _JOINED_BELOW * len(buffers)
        return [b"".join(buffers)] if are_small and len(buffers) > 1 else buffers

    def _rows(self) -> Iterable[BatchSlice]:
        return (piece.row for piece in self.pieces) if self.stamp is None else self._stamped(self.stamp)

    def _stamped(self, stamp: Stamp) -> Iterator[BatchSlice]:
        for piece in self.pieces:
            yield piece.row.stamped(*stamp)
            stamp = stamp.behind(piece.records)

    def __str__(self) -> str:
        first, last, batches = self.pieces[0].row[0], self.pieces[-1].row[-1], self.batches
        return str(first) if batches == 1 else f"a set of {batches} batches, {first} to {last}"


def halves(batch: OutgoingBatch) -> list[OutgoingBatch]:
    """Pieces of at most half the bytes, or the batch alone where it is one record. The same batch always gives the same ones:
    that is how a retry finds the place up to which it is appended. About 3 us per record. Damage: RemoteProtocolError."""
    if batch.records == 1:
        return [batch]
    whole = b"".join(batch.buffers)
    return [
        OutgoingBatch((piece,), int.from_bytes(piece[57:61], "big"), batch.codec, f"a part of {batch.source}")
        for piece in split_batch(whole, 0, len(whole), limit=len(whole) // 2)
    ]
