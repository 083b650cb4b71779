"""Finds a copy by the records themselves: those of a gap at the source, and those of the same gap at the target.

A record is recognised by its timestamp, key, value and headers. It is found if it is the only one of its kind at the
source; the target may have it twice, and then the last one counts, unless a later record has no copy behind it: the
mirror has gone back, and was stopped before it had copied everything again. If equal records cannot be distinguished,
both sides must be equal, record by record. Otherwise nothing is found: nothing is guessed.

What the source no longer has (compaction and retention removed it) may have been equal to a record that it has. The
copy of one is then taken for that of the other. To the target that is harmless, since the last copies count. To the
source, the only one of its kind counts behind such a hole if each record before it has a copy before the one that is
asked for. A mirror that has gone back to before the gap may have copied an equal record again, too. So if a record
before it has no such copy, it counts only if it was copied next to one before it, and none before it was copied later.

What was aborted at the target is no copy: a consumer of committed records does not get it, and the mirror copies it
again.

Records that only the source has (compaction removed them at the target, a transaction was aborted, the mirror is not
there yet) have no copy, so the next one is looked for, and at last the end of the gap.

The target must be read before the source: then what the source does not have was not copied either.
"""

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import inf
from typing import NamedTuple

from shoal.protocol.records.record import Record
from shoal.protocol.shallow.fingerprint import fingerprint
from shoal.protocol.shallow.translate.question import UnknownStretch

__all__ = ["Aligned", "Seen", "mark"]


class Seen(NamedTuple):
    """A record that was read. `mark` is equal for a record and its copies; empty for the marker of a transaction.
    `is_aborted`: no consumer of committed records gets it.
    """

    offset: int
    mark: bytes
    is_aborted: bool = False


def mark(timestamp: int, record: Record) -> bytes:
    return fingerprint(b"", 0, timestamp, record)


class Aligned:
    """`source` and `target` are all records of the gap, ascending; `target_end` is the end of the gap at the target."""

    def __init__(self, gap: UnknownStretch, source: Sequence[Seen], target: Sequence[Seen], target_end: int) -> None:
        self._gap = gap
        self._hole = _first_hole(gap.source_first, source)
        self._aborted_until = max((seen.offset for seen in target if seen.is_aborted), default=-1)
        source = [seen for seen in source if seen.mark]
        target = [seen for seen in target if seen.mark and not seen.is_aborted]
        self._source, self._target = source, target
        self._target_end = target_end
        self._kinds = Counter(seen.mark for seen in source)
        self._originals = {seen.mark: seen.offset for seen in source}
        self._copies = {seen.mark: seen.offset for seen in target}  # the last of each
        # Per source record: the last target offset that no copy of it, or of a later record, is below, if one of each
        # is there.
        self._misses_nothing = _lowest_last_copies(source, target, self._kinds)
        self._are_equal = [seen.mark for seen in source] == [seen.mark for seen in target]
        # Per source record: the lowest target offset that a copy of it, and of each before it, is at or below.
        self._copied_at = list(accumulate(_first_copies(source, target), max))
        # Per source record: the last copy of it and of those before it.
        self._copied_until = list(accumulate((self._copies.get(seen.mark, -1) for seen in source), max))

    def copy_of(self, offset: int) -> int | None:
        """Where a consumer at source offset `offset` continues at the target; None: that is not certain."""
        for number in range(bisect_left(self._source, (offset,)), len(self._source)):
            kind = self._source[number].mark
            if kind not in self._copies:
                continue
            if self._kinds[kind] == 1:
                return self._misses_nothing[number]
            return self._target[number].offset if self._are_equal else None
        return self._target_end

    def source_of(self, offset: int) -> int | None:
        """Where a consumer at target offset `offset` continues at the source; None: that is not certain."""
        number = bisect_left(self._target, (offset,))
        if number < len(self._target):
            return self._original(number)
        if self._gap.source_end is not None:
            return self._gap.source_end if offset > self._aborted_until else None
        if not self._target:
            return self._gap.source_first
        last = self._original(number - 1, is_over=True)
        return None if last is None else last + 1

    def _original(self, number: int, *, is_over: bool = False) -> int | None:
        """`is_over`: a consumer continues behind it."""
        at, kind, _ = self._target[number]
        if self._kinds[kind] != 1:
            original = self._source[number].offset if self._are_equal else None
            return original if original is None or original < self._hole else None
        original = self._originals[kind]
        before = bisect_left(self._source, (original,))
        if self._copied_at[before - 1] < at if before else not is_over:
            return original
        if not before:
            return original if original < self._hole else None
        is_next = number > 0 and self._originals.get(self._target[number - 1].mark, original) < original
        return original if is_next and self._copied_until[before - 1] < at and original < self._hole else None


def _first_hole(first: int, source: Sequence[Seen]) -> int:
    """From `first` on, the first offset that has neither a record nor a marker."""
    for seen in source:
        if seen.offset != first:
            break
        first += 1
    return first


def _first_copies(source: Sequence[Seen], target: Sequence[Seen]) -> Iterator[float]:
    """The first copy of each; the second one is that of the second of equal records."""
    places: defaultdict[bytes, deque[int]] = defaultdict(deque)
    for seen in target:
        places[seen.mark].append(seen.offset)
    for seen in source:
        copies = places.get(seen.mark)
        yield copies.popleft() if copies else inf


def _lowest_last_copies(source: Sequence[Seen], target: Sequence[Seen], kinds: Counter[bytes]) -> list[int]:
    """For each source record: the lowest of the last copies of it and all later ones. The copies of equal records are
    taken from the last on; the first one is that of those that have none of their own.
    """
    places: defaultdict[bytes, list[int]] = defaultdict(list)
    for seen in target:
        if kinds[seen.mark]:
            places[seen.mark].append(seen.offset)
    lowest, found = target[-1].offset + 1 if target else 0, list[int]()
    for seen in reversed(source):
        copies = places.get(seen.mark)
        if copies:
            lowest = min(lowest, copies.pop() if len(copies) > 1 else copies[0])
        found.append(lowest)
    return found[::-1]
