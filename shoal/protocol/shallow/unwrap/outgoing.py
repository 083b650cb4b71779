"""The record set of a partition in one request: one batch, or a set of several if the broker is proven to accept it.

Batch ranges (remaining.py) are sent in the plan's order.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from shoal.protocol.records.rebatch import split_batch
from shoal.protocol.shallow.batch_row import BatchSlice, OutgoingBatch
from shoal.protocol.shallow.unwrap.remaining import BatchRange
from shoal.protocol.shallow.unwrap.sequence import Shape, Stamp
from shoal.protocol.wire.crc import Buffer

__all__ = ["OutgoingRecordSet", "halves"]

# Average bytes of a buffer: below, copying costs less than passing each buffer to the kernel.
_JOINED_BELOW = 8 * 1024


class OutgoingRecordSet(NamedTuple):
    """The record set for one partition. `stamp` is the first batch's; the others have the following sequences."""

    ranges: tuple[BatchRange, ...]
    stamp: Stamp | None

    @property
    def batches(self) -> int:
        return sum(len(batch_range.batches) for batch_range in self.ranges)

    @property
    def size(self) -> int:
        return sum(batch_range.size for batch_range in self.ranges)

    @property
    def records(self) -> int:
        return sum(batch_range.records for batch_range in self.ranges)

    def shape(self) -> Shape:
        first = self.ranges[0]
        assert self.stamp is not None
        records = tuple(chain.from_iterable(batch_range.batches.records for batch_range in self.ranges))
        return Shape(first.item, first.batch, first.first, records, self.stamp)

    def buffers(self) -> Sequence[Buffer]:
        """The bytes of the record set."""
        buffers = list(chain.from_iterable(batches.buffers for batches in self._slices()))
        are_small = self.size < _JOINED_BELOW * len(buffers)
        return [b"".join(buffers)] if are_small and len(buffers) > 1 else buffers

    def _slices(self) -> Iterable[BatchSlice]:
        unstamped = (batch_range.batches for batch_range in self.ranges)
        return unstamped if self.stamp is None else self._stamped(self.stamp)

    def _stamped(self, stamp: Stamp) -> Iterator[BatchSlice]:
        for batch_range in self.ranges:
            yield batch_range.batches.stamped(*stamp)
            stamp = stamp.behind(batch_range.records)

    def __str__(self) -> str:
        first, last, batches = self.ranges[0].batches[0], self.ranges[-1].batches[-1], self.batches
        return str(first) if batches == 1 else f"a set of {batches} batches, {first} to {last}"


def halves(batch: OutgoingBatch) -> list[OutgoingBatch]:
    """Parts of at most half the bytes; a batch of one record is returned alone. About 3 us per record.

    The same batch always gives the same parts, so a retry finds the position up to which it is appended. Raises
    RemoteProtocolError for a damaged batch.
    """
    if batch.records == 1:
        return [batch]
    whole = b"".join(batch.buffers)
    return [
        OutgoingBatch((part,), int.from_bytes(part[57:61], "big"), batch.codec, f"a part of {batch.source}")
        for part in split_batch(whole, 0, len(whole), limit=len(whole) // 2)
    ]
