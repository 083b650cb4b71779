"""What of a plan is still to be sent, in order. Whole batches of one item that follow each other are one piece.

All that is said here in numbers of batches counts the batches ahead from 0, across pieces. Most questions are about the first ones.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from shoal.protocol.shallow.batch_row import BatchRow, SubBatch

__all__ = ["Ahead", "Piece"]


class Piece(NamedTuple):
    """Adjacent batches of the item `item`, from its batch `batch` on; or a part of that one batch, which begins at `first` (records)."""

    item: int
    batch: int
    first: int
    row: BatchRow

    @property
    def size(self) -> int:
        return self.row.size

    @property
    def records(self) -> int:
        return sum(self.row.records)

    def split(self, at: int) -> "tuple[Piece, Piece]":
        """The first `at` batches, and the others (one at least each)."""
        return self._replace(row=self.row[:at]), self._replace(batch=self.batch + at, row=self.row[at:])


class Ahead:
    def __init__(self, pieces: Iterable[Piece]) -> None:
        self._pieces = deque(pieces)

    def __bool__(self) -> bool:
        return bool(self._pieces)

    @property
    def first(self) -> Piece:
        """The piece with the first batch: there must be one."""
        return self._pieces[0]

    def single(self) -> Iterator[tuple[Piece, int]]:
        """Each batch: the piece it is in, and its place in that."""
        return ((piece, at) for piece in self._pieces for at in range(len(piece.row)))

    def fitting(self, room: int, most: int) -> int:
        """How many of the first batches may go together: one at least, no more than `most`, no more than `room` bytes."""
        count = 0
        for piece in self._pieces:
            taken = min(piece.row.fitting(room), most - count)
            count, room = count + taken, room - piece.size
            if taken < len(piece.row):
                break
        return max(count, 1)

    def peek(self, count: int) -> tuple[Piece, ...]:
        """The first `count` batches."""
        pieces = list[Piece]()
        for piece in self._pieces:
            if count <= 0:
                break
            pieces.append(piece if count >= len(piece.row) else piece.split(count)[0])
            count -= len(piece.row)
        return tuple(pieces)

    def drop(self, count: int) -> None:
        """The first `count` batches are no longer ahead."""
        while count:
            piece = self._pieces.popleft()
            if count < len(piece.row):
                self._pieces.appendleft(piece.split(count)[1])
                return
            count -= len(piece.row)

    def put_back(self, pieces: Sequence[Piece]) -> None:
        """These were the first, and are so again."""
        self._pieces.extendleft(reversed(pieces))

    def batch(self, number: int) -> SubBatch:
        piece, at = self._place(number)
        return self._pieces[piece].row[at]

    def replace(self, number: int, parts: Sequence[SubBatch]) -> None:
        """Put parts of a batch in its place."""
        index, at = self._place(number)
        whole = self._pieces[index]
        before, rest = whole.split(at) if at else (None, whole)
        cut, after = rest.split(1) if len(rest.row) > 1 else (rest, None)
        pieces, first = [before] if before else [], cut.first
        for part in parts:
            pieces.append(cut._replace(first=first, row=BatchRow.of((part,))))
            first += part.records
        del self._pieces[index]
        for piece in reversed([*pieces, after] if after else pieces):
            self._pieces.insert(index, piece)

    def _place(self, number: int) -> tuple[int, int]:
        for index, piece in enumerate(self._pieces):
            if number < len(piece.row):
                return index, number
            number -= len(piece.row)
        raise IndexError(number)
