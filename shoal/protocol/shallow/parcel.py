"""What goes to a partition in one request: one batch, or, where the broker was proven to take it, several.

A piece is a batch of the plan, or a part of one that was too large. Pieces go out in the plan's order.
"""

from collections.abc import Sequence
from typing import NamedTuple

from shoal.protocol.crc import Buffer
from shoal.protocol.records.batch import HEADER_SIZE, stamped_header
from shoal.protocol.records.rebatch import split_batch
from shoal.protocol.shallow.sequence import Shape, Stamp
from shoal.protocol.shallow.unwrap import SubBatch

__all__ = ["Parcel", "Piece", "halves"]

_JOINED_BELOW = (
    16 * 1024
)  # bytes of a piece, on average: copying it costs less than handing it to the kernel on its own


class Piece(NamedTuple):
    """`first` is the place, in records, inside the batch `batch` of the item `item`."""

    item: int
    batch: int
    first: int
    sub: SubBatch


class Parcel(NamedTuple):
    """The record set for one partition. Only the first batch is stamped (`sequence.py` says why)."""

    pieces: tuple[Piece, ...]
    stamp: Stamp | None

    @property
    def size(self) -> int:
        return sum(piece.sub.size for piece in self.pieces)

    @property
    def records(self) -> int:
        return sum(piece.sub.records for piece in self.pieces)

    def shape(self) -> Shape:
        first = self.pieces[0]
        assert self.stamp is not None
        return Shape(
            first.item, first.batch, first.first, tuple(piece.sub.records for piece in self.pieces), self.stamp
        )

    def buffers(self) -> Sequence[Buffer]:
        """The bytes of the record set."""
        pieces = self.pieces
        buffers = [*_stamped(pieces[0].sub.buffers, self.stamp)]
        for piece in pieces[1:]:
            buffers += piece.sub.buffers
        return [b"".join(buffers)] if self.size < _JOINED_BELOW * len(pieces) else buffers

    def __str__(self) -> str:
        first, last = self.pieces[0].sub, self.pieces[-1].sub
        return str(first) if len(self.pieces) == 1 else f"a set of {len(self.pieces)} batches, {first} to {last}"


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
