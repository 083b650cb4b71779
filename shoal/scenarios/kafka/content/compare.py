"""Does the target equal the source?

`first_difference` is for copies that must be equal, record by record, per partition, in order. `reconcile` is for
copies made under faults, where a mirror may deliver records again: it walks through the target and classifies each
record as the source's next, an earlier one (duplicate), a later one (those in between are missing, or reordered if
they follow later), or not in the source (extra). Among records with equal contents it picks the one that explains the
target without a loss.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from .copies import Copy, PartitionCopy


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Records of one partition, or the sum of several."""

    source: int = 0
    target: int = 0
    equal: int = 0
    """Source records found on the target in order, at their first appearance."""
    missing: int = 0
    extra: int = 0
    duplicates: int = 0
    reordered: int = 0

    @property
    def faithful(self) -> bool:
        """Nothing lost, altered, invented or out of order; duplicates are for the caller to limit."""
        return self.missing == self.extra == self.reordered == 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in Counts.__slots__})


async def first_difference(source: Copy, target: Copy, *, offsets: bool = False) -> str | None:
    """None when every partition holds the same records in the same order (with `offsets`: at the same offsets).

    Otherwise the first difference in words. Raises TrafficFailed when the differing record cannot be read again.
    """
    if source.partitions.keys() != target.partitions.keys():
        return f"{source.topic} has {len(source.partitions)} partitions, {target.topic} {len(target.partitions)}"
    for number, ours in source.partitions.items():
        theirs = target.partitions[number]
        if ours.fingerprints != theirs.fingerprints:
            return await _describe_difference(source, target, number)
        if offsets and ours.offsets != theirs.offsets:
            index = _first_unequal(ours.offsets, theirs.offsets)
            return (
                f"partition {number}: record {index} is at {ours.offsets[index]}, its copy at {theirs.offsets[index]}"
            )
    return None


def _first_unequal(ours: Sequence[int], theirs: Sequence[int]) -> int:
    pairs = zip(ours, theirs, strict=False)
    return next((index for index, (ours, theirs) in enumerate(pairs) if ours != theirs), min(len(ours), len(theirs)))


async def _describe_difference(source: Copy, target: Copy, number: int) -> str:
    ours, theirs = source.partitions[number], target.partitions[number]
    index = _first_unequal(ours.fingerprints, theirs.fingerprints)
    lines = [
        f"{source.topic} and {target.topic} differ in partition {number} at record {index} ({len(ours.offsets)} "
        f"records, the copy has {len(theirs.offsets)})",
        f"  source {await _shown(source, number, index)}",
        f"  target {await _shown(target, number, index)}",
    ]
    return "\n".join(lines)


async def _shown(copy: Copy, number: int, index: int) -> str:
    offsets = copy.partitions[number].offsets
    if index >= len(offsets):
        return "has no more records"
    return f"offset {offsets[index]}: {await copy.contents(number, index)}"


def reconcile(source: Copy, target: Copy) -> Counts:
    """The sum of all partitions. A partition that one side lacks counts as empty."""
    numbers = sorted(source.partitions.keys() | target.partitions.keys())
    empty = PartitionCopy()
    pairs = ((source.partitions.get(number, empty), target.partitions.get(number, empty)) for number in numbers)
    return sum((reconcile_sequences(ours.fingerprints, theirs.fingerprints) for ours, theirs in pairs), start=Counts())


def reconcile_sequences(source: Sequence[int], target: Sequence[int]) -> Counts:
    """`reconcile` for the fingerprints of one partition."""
    walk = _Walk(source)
    for fingerprint in target:
        walk.step(fingerprint)
    return walk.counts(len(target))


class _Walk:
    """A position in the source while reading the target."""

    def __init__(self, source: Sequence[int]) -> None:
        self._source = source
        self._next = 0
        self._skipped: set[int] = set()
        self._positions: dict[int, list[int]] | None = None  # built only when the copy differs
        self._equal = self._extra = self._duplicates = self._reordered = 0

    def step(self, fingerprint: int) -> None:
        if self._next < len(self._source) and self._source[self._next] == fingerprint:
            self._equal += 1
            self._next += 1
        else:
            self._out_of_turn(self._index().get(fingerprint, []))

    def counts(self, target: int) -> Counts:
        return Counts(
            source=len(self._source),
            target=target,
            equal=self._equal,
            missing=len(self._skipped) + len(self._source) - self._next,
            extra=self._extra,
            duplicates=self._duplicates,
            reordered=self._reordered,
        )

    def _out_of_turn(self, positions: list[int]) -> None:
        ahead = bisect_left(positions, self._next)
        late = next((position for position in positions[:ahead] if position in self._skipped), None)
        if late is not None:
            self._skipped.remove(late)
            self._reordered += 1
        elif ahead > 0:
            self._duplicates += 1
        elif positions:
            self._skipped.update(range(self._next, positions[0]))
            self._next = positions[0] + 1
            self._equal += 1
        else:
            self._extra += 1

    def _index(self) -> dict[int, list[int]]:
        if self._positions is None:
            self._positions = {}
            for position, fingerprint in enumerate(self._source):
                self._positions.setdefault(fingerprint, []).append(position)
        return self._positions
