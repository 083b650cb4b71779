"""Could this batch be a retry? Asked of every batch with a producer id before it is joined with others.

A producer numbers its records per partition (KIP-98), so a batch that begins right behind the last one seen was never
sent before. Anything else may have been: a sequence seen already, a gap (batches that went another way), a producer
that is not known here. Such a batch travels alone, over its client's own connection; the broker knows what to make of
it. The first batch of a producer (sequence 0) may be joined.

Bounded: the producers and partitions that were not seen for longest are forgotten, and their next batch travels alone.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, NamedTuple

from shoal.protocol.records.batch import BatchHeader

__all__ = ["SeenSequences"]

MAX_PRODUCERS: Final = 100_000
"""Pairs of producer and partition: some 300 bytes each."""

_SEQUENCES: Final = 1 << 31  # the sequence after 2^31 - 1 is 0 (`DefaultRecordBatch.incrementSequence`)


class _Last(NamedTuple):
    epoch: int
    next_sequence: int


class SeenSequences:
    def __init__(self, limit: int = MAX_PRODUCERS) -> None:
        self._limit = limit
        self._last: OrderedDict[tuple[int, Hashable], _Last] = OrderedDict()

    def __len__(self) -> int:
        return len(self._last)

    def is_new(self, target: Hashable, header: BatchHeader) -> bool:
        """Whether this batch was surely never sent before. Does not remember it: see `saw`."""
        if header.producer_id < 0:
            return True
        last = self._last.get((header.producer_id, target))
        if last is None or last.epoch != header.producer_epoch:
            return header.base_sequence == 0 and (last is None or header.producer_epoch > last.epoch)
        return header.base_sequence == last.next_sequence

    def saw(self, target: Hashable, header: BatchHeader) -> None:
        """It is sent, joined or alone. One that was seen before changes nothing."""
        if header.producer_id < 0:
            return
        key = header.producer_id, target
        last = self._last.get(key)
        after = _Last(header.producer_epoch, (header.base_sequence + header.record_count) % _SEQUENCES)
        if last is None or _is_further(after, last):
            self._last[key] = after
        self._last.move_to_end(key)
        if len(self._last) > self._limit:
            self._last.popitem(last=False)


def _is_further(one: _Last, other: _Last) -> bool:
    if one.epoch != other.epoch:
        return one.epoch > other.epoch
    return 0 < (one.next_sequence - other.next_sequence) % _SEQUENCES < _SEQUENCES // 2
