"""What of a plan is still to be sent, in order. Whole batches of one item that follow each other are one piece.

All that is said here in numbers of batches counts the batches ahead from 0, across pieces. Most questions are about the first ones.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from shoal.protocol.shallow.batch_row import BatchSlice, OutgoingBatch

__all__ = ["BatchRange", "Remaining"]


class BatchRange(NamedTuple):
    """Adjacent batches of the item `item`, from its batch `batch` on; or a part of that one batch, which begins at `first` (records)."""

    item: int
    batch: int
    first: int
    row: BatchSlice

    @property
    def size(self) -> int:
        return self.row.size

    @property
    def records(self) -> int:
        return sum(self.row.records)

    def until(self, at: int) -> "BatchRange":
        """The first `at` batches of several."""
        return BatchRange(self.item, self.batch, self.first, self.row.window(0, at))

    def since(self, at: int) -> "BatchRange":
        """The others."""
        return BatchRange(self.item, self.batch + at, self.first, self.row.window(at, len(self.row)))


class Remaining:
    def __init__(self, pieces: Iterable[BatchRange]) -> None:
        self._pieces = deque(pieces)

    def __bool__(self) -> bool:
        return bool(self._pieces)

    @property
    def first(self) -> BatchRange:
        """The piece with the first batch: there must be one."""
        return self._pieces[0]

    def single(self) -> Iterator[tuple[BatchRange, int]]:
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

    def peek(self, count: int) -> tuple[BatchRange, ...]:
        """The first `count` batches."""
        pieces = list[BatchRange]()
        for piece in self._pieces:
            if count <= 0:
                break
            pieces.append(piece if count >= len(piece.row) else piece.until(count))
            count -= len(piece.row)
        return tuple(pieces)

    def drop(self, count: int) -> None:
        """The first `count` batches are no longer ahead."""
        while count:
            piece = self._pieces[0]
            if count < len(piece.row):
                self._pieces[0] = piece.since(count)
                return
            self._pieces.popleft()
            count -= len(piece.row)

    def put_back(self, pieces: Sequence[BatchRange]) -> None:
        """These were the first, and are so again."""
        self._pieces.extendleft(reversed(pieces))

    def batch(self, number: int) -> OutgoingBatch:
        piece, at = self._place(number)
        return self._pieces[piece].row[at]

    def replace(self, number: int, parts: Sequence[OutgoingBatch]) -> None:
        """Put parts of a batch in its place."""
        index, at = self._place(number)
        whole = self._pieces[index]
        pieces, first = [whole.until(at)] if at else [], whole.first
        for part in parts:
            pieces.append(BatchRange(whole.item, whole.batch + at, first, BatchSlice.of((part,))))
            first += part.records
        if at + 1 < len(whole.row):
            pieces.append(whole.since(at + 1))
        del self._pieces[index]
        for piece in reversed(pieces):
            self._pieces.insert(index, piece)

    def _place(self, number: int) -> tuple[int, int]:
        for index, piece in enumerate(self._pieces):
            if number < len(piece.row):
                return index, number
            number -= len(piece.row)
        raise IndexError(number)
