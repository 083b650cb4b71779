"""The unsent part of a plan, in order. Adjacent whole batches of one item are one `BatchRange`.

Batch numbers count the remaining batches from 0, across ranges. Most calls are about the first ones.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from shoal.protocol.shallow.batch_row import BatchSlice, OutgoingBatch

__all__ = ["BatchRange", "Remaining"]


class BatchRange(NamedTuple):
    """Adjacent batches of an item, from its batch `batch` on; or a part of that batch, from its record `first` on."""

    item: int
    batch: int
    first: int
    batches: BatchSlice

    @property
    def size(self) -> int:
        return self.batches.size

    @property
    def records(self) -> int:
        return self.batches.record_count

    def until(self, at: int) -> "BatchRange":
        """The first `at` batches."""
        item, batch, first, batches = self
        return BatchRange(item, batch, first, batches.window(0, at))

    def since(self, at: int) -> "BatchRange":
        """The batches from `at` on."""
        item, batch, first, batches = self
        return BatchRange(item, batch + at, first, batches.window(at, len(batches)))

    def joined(self, other: "BatchRange") -> "BatchRange | None":
        """Both as one, if `other` follows."""
        both = self.batches.joined(other.batches)
        return None if both is None else self._replace(batches=both)


class Remaining:
    def __init__(self, ranges: Iterable[BatchRange]) -> None:
        self._ranges = deque(ranges)

    def __bool__(self) -> bool:
        return bool(self._ranges)

    @property
    def first(self) -> BatchRange:
        """The range with the first batch, which must exist."""
        return self._ranges[0]

    def single(self) -> Iterator[tuple[BatchRange, int]]:
        """Per batch: its range, and its index in it."""
        return ((batch_range, at) for batch_range in self._ranges for at in range(len(batch_range.batches)))

    def fitting(self, room: int, most: int) -> int:
        """How many of the first batches may be sent together: at least one, at most `most`, at most `room` bytes."""
        count = 0
        for batch_range in self._ranges:
            taken = min(batch_range.batches.fitting(room), most - count)
            count, room = count + taken, room - batch_range.size
            if taken < len(batch_range.batches):
                break
        return max(count, 1)

    def peek(self, count: int) -> tuple[BatchRange, ...]:
        """The first `count` batches."""
        if 0 < count < len(self._ranges[0].batches):
            return (self._ranges[0].until(count),)
        ranges = list[BatchRange]()
        for batch_range in self._ranges:
            if count <= 0:
                break
            ranges.append(batch_range if count >= len(batch_range.batches) else batch_range.until(count))
            count -= len(batch_range.batches)
        return tuple(ranges)

    def drop(self, count: int) -> None:
        """Remove the first `count` batches."""
        while count:
            batch_range = self._ranges[0]
            if count < len(batch_range.batches):
                self._ranges[0] = batch_range.since(count)
                return
            self._ranges.popleft()
            count -= len(batch_range.batches)

    def put_back(self, ranges: Sequence[BatchRange]) -> None:
        """Put these in front again."""
        self._ranges.extendleft(reversed(ranges))

    def batch(self, number: int) -> OutgoingBatch:
        index, at = self._find(number)
        return self._ranges[index].batches[at]

    def replace(self, number: int, parts: Sequence[OutgoingBatch]) -> None:
        """Replace a batch by its parts."""
        index, at = self._find(number)
        whole = self._ranges[index]
        ranges, first = [whole.until(at)] if at else [], whole.first
        for part in parts:
            ranges.append(BatchRange(whole.item, whole.batch + at, first, BatchSlice.of((part,))))
            first += part.records
        if at + 1 < len(whole.batches):
            ranges.append(whole.since(at + 1))
        del self._ranges[index]
        for batch_range in reversed(ranges):
            self._ranges.insert(index, batch_range)

    def _find(self, number: int) -> tuple[int, int]:
        for index, batch_range in enumerate(self._ranges):
            if number < len(batch_range.batches):
                return index, number
            number -= len(batch_range.batches)
        raise IndexError(number)
