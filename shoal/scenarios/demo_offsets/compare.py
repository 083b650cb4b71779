"""What a copy with the source's offsets may not have: other contents, lost or repeated records. Counts only.

Records are known by their fingerprints (`kafka/content/copies`). The two sides of a topic are compared by offset; what
a group has read is compared by contents, wherever it has read it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.scenarios.kafka.content.copies import Copy, PartitionCopy

__all__ = ["Counts", "GroupCounts", "Identity", "compare", "compare_copies", "compare_group", "identities"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    records: int = 0
    """Committed records of the source."""
    same_offset: int = 0
    """Equal in everything, at the same offset."""
    different: int = 0
    """Another record at the same offset."""
    lost: int = 0
    """No record at the same offset."""
    doubled: int = 0
    """Records of the target where the source has none."""
    compacted_at_source: int = 0
    """The same in a compacted topic, in a hole of the source, with contents that the source does not have."""

    @property
    def equal(self) -> bool:
        return self.records == self.same_offset and not (self.different or self.lost or self.doubled)

    def __add__(self, other: Counts) -> Counts:
        names = [field.name for field in fields(self)]
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in names})


class Identity(NamedTuple):
    """One record, by the source's name of its topic; two equal ones in a partition have the same identity."""

    topic: str
    partition: int
    fingerprint: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCounts:
    """What a group has read in both clusters together, against the source."""

    at_source: int
    at_target: int
    twice: int
    """Records too many: read again, or not of the source."""
    missed: int
    complaints: int = 0
    """Errors that the client has reported and overcome."""


def compare_copies(source: Copy, target: Copy, *, compacted: bool) -> Counts:
    pairs = ((partition, target.partitions[number]) for number, partition in source.partitions.items())
    return sum((compare(ours, theirs, compacted=compacted) for ours, theirs in pairs), start=Counts())


def compare(source: PartitionCopy, target: PartitionCopy, *, compacted: bool) -> Counts:
    """One partition; `compacted`: the cleaner may have removed records at the source since they were mirrored."""
    ours = dict(zip(source.offsets, source.fingerprints, strict=True))
    contents, end = set(source.fingerprints), max(ours, default=0)
    found: Counter[str] = Counter()
    seen: set[int] = set()
    for offset, fingerprint in zip(target.offsets, target.fingerprints, strict=True):
        if offset in seen:
            found["doubled"] += 1
        elif offset in ours:
            found["same_offset" if ours[offset] == fingerprint else "different"] += 1
        elif compacted and offset < end and fingerprint not in contents:
            found["compacted_at_source"] += 1
        else:
            found["doubled"] += 1
        seen.add(offset)
    return Counts(records=len(ours), lost=len(ours.keys() - seen), **found)


def identities(copies: Iterable[Copy]) -> Counter[Identity]:
    return Counter(
        Identity(copy.topic, number, fingerprint)
        for copy in copies
        for number, partition in copy.partitions.items()
        for fingerprint in partition.fingerprints
    )


def compare_group(
    source: Counter[Identity], read_at_source: Counter[Identity], read_at_target: Counter[Identity], complaints: int = 0
) -> GroupCounts:
    read = read_at_source + read_at_target
    return GroupCounts(
        at_source=read_at_source.total(),
        at_target=read_at_target.total(),
        twice=(read - source).total(),
        missed=(source - read).total(),
        complaints=complaints,
    )
