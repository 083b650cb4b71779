"""What goes to a partition in one request: one batch, or, where the broker was proven to take it, several.

Pieces (ahead.py) go out in the plan's order.
"""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from shoal.protocol.crc import Buffer
from shoal.protocol.records.batch import HEADER_SIZE, stamped_header
from shoal.protocol.records.rebatch import split_batch
from shoal.protocol.shallow.ahead import Piece
from shoal.protocol.shallow.batch_row import SubBatch
from shoal.protocol.shallow.sequence import Shape, Stamp

__all__ = ["Parcel", "halves"]

_JOINED_BELOW = (
    8 * 1024
)  # bytes of a buffer, on average: copying it costs less than handing it to the kernel on its own


class Parcel(NamedTuple):
    """The record set for one partition. Only the first batch is stamped (`sequence.py` says why)."""

    pieces: tuple[Piece, ...]
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
        first, others = self.pieces[0].row, [piece.row for piece in self.pieces[1:]]
        if self.stamp is not None:
            others.insert(0, first.window(1, len(first)))
            first = first.window(0, 1)
        buffers = [*_stamped(tuple(first.buffers), self.stamp), *chain.from_iterable(row.buffers for row in others)]
        are_small = self.size < _JOINED_BELOW * len(buffers)
        return [b"".join(buffers)] if are_small and len(buffers) > 1 else buffers

    def __str__(self) -> str:
        first, last, batches = self.pieces[0].row[0], self.pieces[-1].row[-1], self.batches
        return str(first) if batches == 1 else f"a set of {batches} batches, {first} to {last}"


def _stamped(buffers: Sequence[Buffer], stamp: Stamp | None) -> Sequence[Buffer]:
    if stamp is None:
        return buffers
    head = memoryview(buffers[0])
    payload = sum(map(len, buffers)) - HEADER_SIZE
    return [stamped_header(head[:HEADER_SIZE], payload, *stamp), head[HEADER_SIZE:], *buffers[1:]]


def halves(batch: SubBatch) -> list[SubBatch]:
    """Pieces of at most half the bytes, or the batch alone where it is one record. The same batch always gives the same ones:
    that is how a retry finds the place up to which it is appended. About 3 us per record. Damage: RemoteProtocolError."""
    if batch.records == 1:
        return [batch]
    whole = b"".join(batch.buffers)
    return [
        SubBatch((piece,), int.from_bytes(piece[57:61], "big"), batch.codec, f"a part of {batch.source}")
        for piece in split_batch(whole, 0, len(whole), limit=len(whole) // 2)
    ]
