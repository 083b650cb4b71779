"""Source, target and ledger in, findings out: each mode is checked against its guarantee.

A copy is read partition by partition. The next record of the target is the next one of the source; or an earlier one
(doubled); or a later one (those between are lost, or reordered if they follow); or not the source's (strange). The
ledger knows its original bytes and timestamp.

A topic's guarantee is its `Terms`. For a recreated topic, only existing records must be correct. For a compacted topic,
or one with retention, the target must have what the source still has, and may have what the source had.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tests.torture.clients.ledger import Ending, Fate, Ledger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Seen(NamedTuple):
    """A record that was read."""

    identity: bytes | int
    """Identity of a record without one: its content."""
    content: int
    timestamp: int
    key: int
    """Hash of the key, for compacted topics; 0 where there is none."""
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    committed: bool = False
    """The mirror copies committed records only."""
    keeps_time: bool = True
    required: bool = True
    """What the source holds must be on the target. False for a topic that was recreated."""
    latest_only: bool = False
    """Only the last record of each key is required: the topic is compacted on both sides."""
    same_offsets: bool = False
    """Each record has its source's offset."""
    partial: bool = False
    """The source has lost old records: one that was written and never acknowledged may be known only to the
    target."""


@dataclass(slots=True)
class Findings:
    """Findings of one partition, or of several."""

    source: int = 0
    target: int = 0
    lost: list[str] = field(default_factory=list)
    tail: int = 0
    """Lost records after the target's last record: they may be in transit, or their mirror hangs."""
    altered: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    doubled: list[tuple[int, int]] = field(default_factory=list)
    """(partition, offset on the target)."""

    @property
    def faithful(self) -> bool:
        """True regardless of duplicates, which are attributed elsewhere."""
        return not (self.lost or self.altered or self.reordered)

    def add(self, other: Findings) -> None:
        self.source += other.source
        self.target += other.target
        self.tail += other.tail
        self.lost += other.lost
        self.altered += other.altered
        self.reordered += other.reordered
        self.doubled += other.doubled


def judge_partition(
    partition: int,
    source: Sequence[Seen],
    target: Sequence[Seen],
    ledger: Ledger,
    terms: Terms,
    *,
    required: Iterable[Seen] | None = None,
) -> Findings:
    """`source`: all records that the partition ever had, as far as known; `required`: those that must have arrived
    (None: all)."""
    walk = _Walk(partition, source)
    altered: list[str] = []
    for seen in target:
        placed = walk.step(seen)
        altered += _changed(partition, seen, placed, ledger, terms)
    needed = source if required is None else list(required)
    if terms.latest_only:
        needed = list({seen.key: seen for seen in needed}.values())
    there = {seen.identity for seen in target}
    if required is None and not terms.latest_only:
        lost, tail = walk.missing()
    else:
        lost, tail = [seen for seen in needed if seen.identity not in there], 0
    return Findings(
        source=len(source),
        target=len(target),
        lost=[_named(partition, seen) for seen in lost] if terms.required else [],
        tail=tail if terms.required else 0,
        altered=altered,
        reordered=walk.reordered if terms.required else [],
        doubled=walk.doubled,
    )


def _named(partition: int, seen: Seen) -> str:
    name = seen.identity.decode() if isinstance(seen.identity, bytes) else f"#{seen.identity}"
    return f"{partition}/{seen.offset}:{name}"


def _changed(partition: int, seen: Seen, placed: Seen | None, ledger: Ledger, terms: Terms) -> list[str]:
    entry = ledger.entries.get(seen.identity) if isinstance(seen.identity, bytes) else None
    where = _named(partition, seen)
    if entry is None:
        return [] if placed is not None else [f"{where} was never written"]
    if entry.content != seen.content:
        return [f"{where} has other bytes than were written"]
    wanted = entry.timestamp if placed is None else placed.timestamp
    if terms.keeps_time and wanted is not None and seen.timestamp != wanted:
        return [f"{where} has the time {seen.timestamp}, not {wanted}"]
    if terms.same_offsets and placed is not None and placed.offset != seen.offset:
        return [f"{where} is at the offset {seen.offset}, not {placed.offset}"]
    if terms.committed and ledger.ending(entry) is Ending.ABORTED:
        return [f"{where} is of an aborted transaction"]
    unknown = terms.partial and entry.fate is Fate.UNKNOWN
    if placed is None and terms.required and not unknown:
        return [f"{where} is not in this partition of the source"]
    return []


class _Walk:
    """A position in the source while reading the target."""

    def __init__(self, partition: int, source: Sequence[Seen]) -> None:
        self._partition = partition
        self._source = source
        self._next = 0
        self._skipped: set[int] = set()
        self._positions: dict[bytes | int, list[int]] = {}
        self.reordered: list[str] = []
        self.doubled: list[tuple[int, int]] = []
        for position, seen in enumerate(source):
            self._positions.setdefault(seen.identity, []).append(position)

    def step(self, seen: Seen) -> Seen | None:
        """The source's record that this one copies."""
        positions = self._positions.get(seen.identity, [])
        if not positions:
            return None
        ahead = bisect_left(positions, self._next)
        late = next((position for position in positions[:ahead] if position in self._skipped), None)
        if ahead < len(positions) and positions[ahead] == self._next:
            self._next += 1
            return self._source[self._next - 1]
        if late is not None:
            self._skipped.remove(late)
            self.reordered.append(_named(self._partition, seen))
            return self._source[late]
        if ahead > 0:
            self.doubled.append((self._partition, seen.offset))
            return self._source[positions[ahead - 1]]
        self._skipped.update(range(self._next, positions[0]))
        self._next = positions[0] + 1
        return self._source[positions[0]]

    def missing(self) -> tuple[list[Seen], int]:
        """Records that are missing, and how many of those are at the end."""
        tail = self._source[self._next :]
        return [*(self._source[position] for position in sorted(self._skipped)), *tail], len(tail)


def judge_source(
    cluster: str, topic: str, held: Mapping[int, Sequence[Seen]], ledger: Ledger, *, complete: bool
) -> Findings:
    """Expected committed records of the source by the ledger: an idempotent producer's once and in order, none of an
    aborted transaction.

    Kafka guarantees this, and so does Shoal for producers that connect through it.
    """
    findings = Findings()
    there: set[bytes] = set()
    for partition, records in held.items():
        last: dict[int, int] = {}
        for seen in records:
            if not isinstance(seen.identity, bytes) or (entry := ledger.entries.get(seen.identity)) is None:
                findings.altered.append(f"{_named(partition, seen)} was never written")
                continue
            if entry.content != seen.content:
                findings.altered.append(f"{_named(partition, seen)} has other bytes than were written")
            if ledger.ending(entry) is Ending.ABORTED:
                findings.altered.append(f"{_named(partition, seen)} is of an aborted transaction")
            producer, number = map(int, seen.identity.split(b"."))
            if seen.identity in there and entry.kind != "plain":
                findings.doubled.append((partition, seen.offset))
            elif entry.kind != "plain" and number < last.get(producer, 0):
                findings.reordered.append(_named(partition, seen))
            last[producer] = max(number, last.get(producer, 0))
            there.add(seen.identity)
        findings.source += len(records)
    if complete:
        findings.lost = [
            f"{entry.partition}/{entry.offset}:{identity.decode()}"
            for identity, entry in ledger.acked(cluster, topic).items()
            if identity not in there
        ]
    return findings
