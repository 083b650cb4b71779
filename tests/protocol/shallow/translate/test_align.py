from __future__ import annotations

import pytest

from shoal.protocol.shallow.translate.align import Aligned, Seen
from shoal.protocol.shallow.translate.question import UnknownStretch

GAP = UnknownStretch(10, 20, 100, 110)
OPEN = UnknownStretch(10, None, 100, None)


def seen(first: int, marks: str) -> list[Seen]:
    """A record for each letter, a capital for an aborted one; "!" is a marker, "." an offset without anything."""
    return [
        Seen(first + at, letter.strip("!").lower().encode(), letter.isupper())
        for at, letter in enumerate(marks)
        if letter != "."
    ]


@pytest.mark.parametrize(
    ("source", "target", "offset", "found"),
    [
        ("abcd", "abcd", 12, 102),
        ("ab.d", "abd", 12, 102),  # a hole at the source
        ("abcd", "abd", 12, 102),  # the target's topic was compacted
        ("abcd", "abcabcd", 11, 104),  # copied twice
        ("abcd", "ab", 12, 110),  # not there yet
        ("abcd", "abcd", 14, 110),  # behind the last one
        ("abcb", "abcb", 11, 101),  # equal records, and both sides are equal
        ("abcb", "xabcb", 11, None),  # equal records
        ("", "", 15, 110),
        ("abcd", "abcda", 10, 101),  # the mirror has gone back, and was stopped before it had copied the rest again
        ("abcd", "abcdab", 11, 102),
        ("abcd", "abcdab", 12, 102),
        ("abcc", "abcca", 10, 101),
        ("cab", "cab!C!", 10, 100),  # another one that is equal was aborted
        ("abccd", "abccdabc", 10, 103),  # the second of the equal ones was not copied again
    ],
)
def test_the_copy_of_a_record(source: str, target: str, offset: int, found: int | None) -> None:
    assert Aligned(GAP, seen(10, source), seen(100, target), 110).copy_of(offset) == found


@pytest.mark.parametrize(
    ("source", "target", "offset", "gap", "found"),
    [
        ("abcd", "abcd", 102, GAP, 12),
        ("abcd", "ab.cd", 102, GAP, 12),  # a marker of a transaction
        ("abcd", "abcabcd", 104, GAP, 11),
        ("abcd", "abxd", 102, GAP, None),  # another producer's
        ("abcb", "abcb", 103, GAP, 13),
        ("abcb", "abcbb", 103, GAP, None),
        ("abcd", "ab", 105, GAP, 20),
        ("abcd", "ab", 105, OPEN, 12),
        ("", "", 100, OPEN, 10),
        (".abcx", "xabcx", 100, OPEN, None),  # its original is gone, and an equal record was written since
        (".abcx", "xabc", 100, OPEN, None),  # and is yet to be copied
        (".abcx", "x", 101, OPEN, None),
        (".abcx", "xabcx", 104, OPEN, 14),
        (".abcx", "xabcx", 101, OPEN, 11),
        (".abab", "abab", 102, OPEN, None),
        (".a", "a", 100, OPEN, 11),
        (".a", "a", 101, OPEN, None),  # it may be the copy of the one that is gone
        ("abcd", "abd", 102, OPEN, 13),  # the target's topic was compacted
        ("ab!c", "ac!", 101, OPEN, 13),  # b was aborted
        ("bca", "abca", 100, GAP, None),  # the mirror had gone back to an equal one before the gap
        ("bca", "ba.bca", 101, GAP, None),
        ("bca", "a", 100, OPEN, None),
        (".bba", "ba", 101, OPEN, None),  # the second of two equal ones is yet to be copied
        ("aba", "abaB!", 103, GAP, None),  # another one that is equal was aborted
    ],
)
def test_the_original_of_a_copy(source: str, target: str, offset: int, gap: UnknownStretch, found: int | None) -> None:
    assert Aligned(gap, seen(10, source), seen(100, target), 110).source_of(offset) == found
