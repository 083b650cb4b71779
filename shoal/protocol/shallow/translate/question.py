"""Answers about one source partition and one target partition, from the ranges that Shoal appended.

A consumer that continues at a translated offset must miss no record, and should read none twice. So

    to the target   the offset of the record's last known copy. Every later source record has a copy behind it, or gets
                    one, since a mirror copies a partition in order, also when it has gone back and copies again
    to the source   the offset of the record that has this target offset

What Shoal did not append itself (raw records) has no known offset, and nothing is interpolated: it has bounds. To
continue at `low` misses nothing, and reads some records twice at worst. To the target, a copy of the record is between
`low` and `high`; to the source there is no `high`, because a mirror may have gone back among raw records.

A source offset in a hole has no record. If its neighbours are neighbours at the target, too, then the place between
them is exact.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

from shoal.protocol.shallow.translate.offset_map import AppendedRange

__all__ = ["Answer", "Known", "UnknownStretch", "Why"]


class Why(StrEnum):
    """Why an answer is exact, or is not."""

    APPENDED = "appended"  # Shoal appended this record
    HOLE = "hole"  # no record is there, and nothing was copied between its neighbours
    READ = "read"  # found among the records themselves (align.py)
    RAW = "raw"  # between ranges: copied raw, or a hole
    OLDER = "older"  # before everything that is known
    NEWER = "newer"  # behind everything that Shoal has appended
    AGAIN = "again"  # the mirror has gone back, and has not copied all of it again
    DOUBT = "doubt"  # whether the group has got what is before its offset could not be read

    @property
    def is_exact(self) -> bool:
        return self in (Why.APPENDED, Why.HOLE, Why.READ)


class Answer(NamedTuple):
    """`low` and `high` are equal if it is exact. `high` None: unknown."""

    why: Why
    low: int
    high: int | None

    @property
    def offset(self) -> int | None:
        """None: it is not exact."""
        return self.low if self.why.is_exact else None

    def in_doubt(self) -> "Answer":
        return self._replace(why=Why.DOUBT, high=None)

    @classmethod
    def exact(cls, why: Why, offset: int) -> "Answer":
        return cls(why, offset, offset)


class UnknownStretch(NamedTuple):
    """Source and target offsets between two ranges: their records are copies of each other, in order. Ends are
    exclusive; None: open.
    """

    source_first: int
    source_end: int | None
    target_first: int
    target_end: int | None


class _Piece(NamedTuple):
    """`first` up to `end` on the side of the question have the offsets from `other` on at the other side."""

    first: int
    end: int
    other: int

    @property
    def other_end(self) -> int:
        return self.other + self.end - self.first


class _Around(NamedTuple):
    """The piece that has an offset or is the last one before it, and the next one. `number`: of the next one."""

    before: _Piece | None
    behind: _Piece | None
    number: int

    def appended(self, offset: int) -> int | None:
        if self.before is not None and offset < self.before.end:
            return self.before.other + offset - self.before.first
        return None

    @property
    def low(self) -> int:
        return self.before.other_end if self.before is not None else 0

    @property
    def high(self) -> int | None:
        return self.behind.other if self.behind is not None else None

    @property
    def why(self) -> Why:
        if self.before is None:
            return Why.OLDER
        return Why.NEWER if self.behind is None else Why.RAW


class Known:
    """`ranges`: of one source partition in one target partition, ascending by target offset."""

    def __init__(self, ranges: Sequence[AppendedRange]) -> None:
        self._by_target = [_Piece(known.target_first, known.target_end, known.source_first) for known in ranges]
        turned = (_Piece(piece.other, piece.other_end, piece.first) for piece in self._by_target)
        self._by_source = _last_copies(turned)
        # Per piece: the first target offset of all pieces from it on.
        self._least = list(accumulate(reversed([piece.other for piece in self._by_source]), min))[::-1]

    def to_target(self, offset: int) -> Answer:
        """The target offset of a source offset."""
        around = _around(self._by_source, offset)
        appended = around.appended(offset)
        if appended is not None:
            answer = Answer.exact(Why.APPENDED, appended)
        elif around.before is not None and around.low == around.high:
            answer = Answer.exact(Why.HOLE, around.low)
        else:
            answer = Answer(around.why, around.low, around.high)
        later = self._least[around.number] if around.number < len(self._least) else None
        if later is not None and later < answer.low:
            return Answer(Why.AGAIN, later, None)
        return answer

    def to_source(self, offset: int) -> Answer:
        """The source offset of a target offset."""
        around = _around(self._by_target, offset)
        appended = around.appended(offset)
        if appended is not None:
            return Answer.exact(Why.APPENDED, appended)
        if around.high is not None and around.high < around.low:
            return Answer(Why.AGAIN, around.high, None)
        return Answer(around.why, around.low, None)

    def target_gap(self, offset: int) -> UnknownStretch:
        """Around a source offset that is in no range."""
        before, behind, _ = around = _around(self._by_source, offset)
        return UnknownStretch(before.end if before else 0, behind.first if behind else None, around.low, around.high)

    def source_gap(self, offset: int) -> UnknownStretch:
        """Around a target offset that is in no range."""
        before, behind, _ = around = _around(self._by_target, offset)
        return UnknownStretch(around.low, around.high, before.end if before else 0, behind.first if behind else None)


_LAST = 1 << 63


def _around(pieces: Sequence[_Piece], offset: int) -> _Around:
    at = bisect_right(pieces, (offset, _LAST, _LAST))
    return _Around(pieces[at - 1] if at else None, pieces[at] if at < len(pieces) else None, at)


def _last_copies(pieces: Iterable[_Piece]) -> list[_Piece]:
    """By source offset, of pieces in the order in which they were appended: the later one counts where they overlap."""
    known = list[_Piece]()
    for new in pieces:
        if not known or new.first >= known[-1].end:
            known.append(new)
            continue
        at = max(bisect_right(known, (new.first,)) - 1, 0)
        at += known[at].end <= new.first
        stop = at
        while stop < len(known) and known[stop].first < new.end:
            stop += 1
        kept = [old._replace(end=new.first) for old in known[at:stop] if old.first < new.first]
        kept.append(new)
        for old in known[at:stop]:
            if old.end > new.end:
                cut = max(new.end - old.first, 0)
                kept.append(_Piece(old.first + cut, old.end, old.other + cut))
        known[at:stop] = kept
    return known
