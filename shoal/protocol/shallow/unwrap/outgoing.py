"""The record set of a partition in one request: one batch, or a set of several if the broker is proven to accept it.

Batch ranges (remaining.py) are sent in the plan's order.
"""

from collections.abc import Sequence
from itertools import chain
from typing import final

from shoal.protocol.records.rebatch import split_batch
from shoal.protocol.shallow.batch_row import OutgoingBatch
from shoal.protocol.shallow.unwrap.remaining import BatchRange
from shoal.protocol.shallow.unwrap.sequences.own import Shape, Stamp
from shoal.protocol.wire.crc import Buffer

__all__ = ["OutgoingRecordSet", "halves"]

# Average bytes of a buffer: below, copying costs less than passing each buffer to the kernel.
_JOINED_BELOW = 8 * 1024


@final
class OutgoingRecordSet:
    """The record set for one partition. `stamp` is the first batch's; the others have the following sequences."""

    __slots__ = ("batches", "ranges", "records", "size", "stamp")

    def __init__(self, ranges: tuple[BatchRange, ...], stamp: Stamp | None) -> None:
        self.ranges = ranges
        self.stamp = stamp
        self.batches = self.size = self.records = 0
        for _, _, _, batches in ranges:
            self.batches += len(batches)
            self.size += batches.size
            self.records += batches.record_count

    def joined(self, other: "OutgoingRecordSet") -> "OutgoingRecordSet | None":
        """What was appended of both, if `other` is the following batches of the same envelope."""
        (*ranges, last), (first, *others) = self.ranges, other.ranges
        both = last.joined(first)
        return None if both is None else OutgoingRecordSet((*ranges, both, *others), self.stamp)

    def shape(self) -> Shape:
        first = self.ranges[0]
        assert self.stamp is not None
        records = tuple(chain.from_iterable(batch_range.batches.records for batch_range in self.ranges))
        return Shape(first.item, first.batch, first.first, records, self.stamp)

    def buffers(self) -> Sequence[Buffer]:
        """The bytes of the record set."""
        buffers, stamp = list[Buffer](), self.stamp
        for _, _, _, batches in self.ranges:
            if stamp is None:
                buffers += batches.buffers
            else:
                buffers += batches.stamped_buffers(stamp)
                stamp = stamp.behind(batches.record_count)
        are_small = self.size < _JOINED_BELOW * len(buffers)
        return [b"".join(buffers)] if are_small and len(buffers) > 1 else buffers

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
