"""Whether a batch may be a retry; checked for every batch with a producer id before it is joined.

A producer numbers its records per partition (KIP-98), so a batch that directly follows the last one seen is new. Any
other may be a retry: a known sequence, a gap (some batches took another way), an unknown producer. It is sent alone,
over its client's own connection, and the broker decides. The first batch of a producer (sequence 0) may be joined.

Memory is limited: the least recently seen pairs of producer and partition are forgotten; their next batch is sent
alone.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, NamedTuple

from shoal.protocol.records.batch import BatchHeader

__all__ = ["SeenSequences"]

MAX_PRODUCERS: Final = 100_000
"""Pairs of producer and partition, about 300 bytes each."""

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
        """True if this batch was certainly never sent before. Does not record it: see `saw`."""
        if header.producer_id < 0:
            return True
        last = self._last.get((header.producer_id, target))
        if last is None or last.epoch != header.producer_epoch:
            return header.base_sequence == 0 and (last is None or header.producer_epoch > last.epoch)
        return header.base_sequence == last.next_sequence

    def saw(self, target: Hashable, header: BatchHeader) -> None:
        """The batch is sent, joined or alone. A known one changes nothing."""
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
