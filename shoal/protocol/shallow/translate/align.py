"""Finds a copy by the records themselves: those of a gap at the source, and those of the same gap at the target.

A record is recognised by its timestamp, key, value and headers. It is found if it is the only one of its kind at the
source; the target may have it twice, and then the last one counts. If equal records cannot be distinguished, both
sides must be equal, record by record. Otherwise nothing is found: nothing is guessed.

Records that only the source has (compaction removed them at the target, a transaction was aborted, the mirror is not
there yet) have no copy, so the next one is looked for, and at last the end of the gap.

The target must be read before the source: then what the source does not have was not copied either.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from shoal.protocol.records.record import Record
from shoal.protocol.shallow.fingerprint import fingerprint
from shoal.protocol.shallow.translate.question import Gap

__all__ = ["Seen", "copy_of", "mark", "source_of"]


class Seen(NamedTuple):
    """A record that was read. `mark` is equal for a record and its copies."""

    offset: int
    mark: bytes


def mark(timestamp: int, record: Record) -> bytes:
    return fingerprint(b"", 0, timestamp, record)


def copy_of(offset: int, source: Sequence[Seen], target: Sequence[Seen], target_end: int) -> int | None:
    """Where a consumer at source offset `offset` continues at the target; None: that is not certain.

    `source` and `target` are all records of the gap, `target_end` the end of the gap at the target.
    """
    kinds = Counter(seen.mark for seen in source)
    copies = {seen.mark: seen.offset for seen in target}
    for number, seen in enumerate(source):
        if seen.offset < offset or seen.mark not in copies:
            continue
        if kinds[seen.mark] == 1:
            return copies[seen.mark]
        return target[number].offset if _are_equal(source, target) else None
    return target_end


def source_of(offset: int, source: Sequence[Seen], target: Sequence[Seen], gap: Gap) -> int | None:
    """Where a consumer at target offset `offset` continues at the source; None: that is not certain."""
    number = next((number for number, seen in enumerate(target) if seen.offset >= offset), len(target))
    if number < len(target):
        return _original(number, source, target)
    if gap.source_end is not None:
        return gap.source_end
    if not target:
        return gap.source_first
    last = _original(number - 1, source, target)
    return None if last is None else last + 1


def _original(number: int, source: Sequence[Seen], target: Sequence[Seen]) -> int | None:
    same = [seen.offset for seen in source if seen.mark == target[number].mark]
    if len(same) == 1:
        return same[0]
    return source[number].offset if same and _are_equal(source, target) else None


def _are_equal(source: Sequence[Seen], target: Sequence[Seen]) -> bool:
    return [seen.mark for seen in source] == [seen.mark for seen in target]
