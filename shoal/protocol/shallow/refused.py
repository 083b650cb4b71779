"""Source ranges that the target refuses permanently: from then on the mirror gets them as plain records.

The unwrapping side adds them, the wrapping side reads them. A batch that the target refuses (a timestamp too far in the
future, no key in a compacted topic, a record too large) is never wrapped again: after a restart of its task the mirror
fails at the same record as without Shoal. So ranges are stored by source partition, not by flow, which ends with the
mirror's connection.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from shoal.protocol.shallow.batch_row import BatchSlice
from shoal.protocol.shallow.envelope import EnvelopeKey

__all__ = ["MAX_PARTITIONS", "MAX_RANGES", "Offsets", "RefusedRanges", "SourceRange", "overlaps"]

MAX_RANGES = (
    64  # per partition: each batch of an answer is compared with all of them. Above it the nearest two become one.
)
# A forgotten range is wrapped and refused once more: it costs a mirror one more restart.
MAX_PARTITIONS = 1_000


class Offsets(NamedTuple):
    """Inclusive."""

    first: int
    last: int


class SourceRange(NamedTuple):
    """`cluster` is the source cluster's id, as in an envelope's key."""

    cluster: str
    topic: str
    partition: int
    offsets: Offsets

    @classmethod
    def of(cls, key: EnvelopeKey, batches: BatchSlice, at: int) -> "SourceRange":
        """Batch `at` of an envelope; the whole envelope if the batch's offsets are unknown."""
        base = batches.source_of(at)
        offsets = Offsets(key.first_offset, key.last_offset)
        if isinstance(base, int):
            offsets = Offsets(base, base + batches.records_of(at) - 1)
        return cls(key.cluster, key.topic, key.partition, offsets)


class RefusedRanges:
    """Above the limits, the gap between two ranges is raw, too, and the oldest partitions are forgotten.

    Rejected: forgetting the oldest range. One envelope may have more refused batches than the limit, and the first ones
    would be forgotten again after each restart of the mirror.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str, int], tuple[Offsets, ...]] = OrderedDict()

    def add(self, new: SourceRange) -> None:
        source_partition = new[:3]
        first, last = new.offsets
        others = list[Offsets]()
        for known in self._known.get(source_partition, ()):  # merge adjacent ranges
            if known.first <= last + 1 and first <= known.last + 1:
                first, last = min(first, known.first), max(last, known.last)
            else:
                others.append(known)
        self._known[source_partition] = _joined(sorted((*others, Offsets(first, last))))
        self._known.move_to_end(source_partition)
        if len(self._known) > MAX_PARTITIONS:
            self._known.popitem(last=False)

    def of(self, cluster: str, topic: str, partition: int) -> Sequence[Offsets]:
        return self._known.get((cluster, topic, partition), ())


def _joined(ranges: list[Offsets]) -> tuple[Offsets, ...]:
    """In order, at most the limit."""
    if len(ranges) > MAX_RANGES:
        at = min(range(1, len(ranges)), key=lambda at: ranges[at].first - ranges[at - 1].last)
        ranges[at - 1 : at + 1] = [Offsets(ranges[at - 1].first, ranges[at].last)]
    return tuple(ranges)


def overlaps(ranges: Sequence[Offsets], first: int, last: int) -> bool:
    return any(refused.first <= last and first <= refused.last for refused in ranges)
