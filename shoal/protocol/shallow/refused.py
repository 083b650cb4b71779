"""What the target refuses permanently, as the source names it: from then on the mirror gets it as plain records.

The unwrapping side adds, the wrapping side asks. A batch that the target does not take (a timestamp too far ahead, no
key where the topic is compacted, a record too large) is never wrapped again: a mirror whose task is restarted then
finds the very record, as it does without Shoal. So it is kept by partition of the source, not by flow, which ends with
the mirror's connection.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from shoal.protocol.shallow.batch_row import BatchSlice
from shoal.protocol.shallow.envelope import EnvelopeKey

__all__ = ["MAX_PARTITIONS", "MAX_RANGES", "Offsets", "RefusedRanges", "SourceRange", "overlaps"]

MAX_RANGES = (
    64  # of one partition: each batch of an answer is compared with all of them. Above it the nearest two become one.
)
# What is forgotten is wrapped again, refused again, and known again: it costs a mirror one restart more.
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
        """The batch numbered `at` of an envelope; all of the envelope where it is not known which offsets that has."""
        base = batches.source_of(at)
        offsets = Offsets(key.first_offset, key.last_offset)
        if isinstance(base, int):
            offsets = Offsets(base, base + batches.records_of(at) - 1)
        return cls(key.cluster, key.topic, key.partition, offsets)


class RefusedRanges:
    """Above the limits, what is between two ranges goes raw, too; and the oldest partitions are forgotten.

    Rejected: to forget the oldest range. One envelope may be refused in more places than that, and its first ones would
    be forgotten again in each life of the mirror.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str, int], tuple[Offsets, ...]] = OrderedDict()

    def add(self, new: SourceRange) -> None:
        source_partition = new[:3]
        first, last = new.offsets
        others = list[Offsets]()
        for known in self._known.get(source_partition, ()):  # a range that meets the new one is joined to it
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
    """In order, and no more than there may be."""
    if len(ranges) > MAX_RANGES:
        at = min(range(1, len(ranges)), key=lambda at: ranges[at].first - ranges[at - 1].last)
        ranges[at - 1 : at + 1] = [Offsets(ranges[at - 1].first, ranges[at].last)]
    return tuple(ranges)


def overlaps(ranges: Sequence[Offsets], first: int, last: int) -> bool:
    return any(refused.first <= last and first <= refused.last for refused in ranges)
