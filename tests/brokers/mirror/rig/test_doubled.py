"""Where a copy goes back in its source."""

from __future__ import annotations

from array import array

import pytest

from shoal.scenarios.kafka.content.copies import PartitionCopy

from .doubled import Again, copied_again


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("abcdef", []),
        ("abcbcdef", [Again(7, 20, 2)]),
        ("abcdefef", [Again(7, 50, 2)]),
        ("abcabcabcdef", [Again(7, 10, 3), Again(7, 10, 3)]),
        ("abcdbcdcdef", [Again(7, 20, 3), Again(7, 30, 2)]),
    ],
)
def test_each_return_has_its_place_and_its_length(target: str, found: list[Again]) -> None:
    source = PartitionCopy(fingerprints=array("q", list(b"abcdef")), offsets=array("q", [10, 20, 30, 40, 50, 60]))
    copy = PartitionCopy(fingerprints=array("q", list(target.encode())), offsets=array("q", range(len(target))))
    assert copied_again(7, source, copy) == found


def test_the_nearest_of_equal_records_counts() -> None:
    source = PartitionCopy(fingerprints=array("q", list(b"aabc")), offsets=array("q", [10, 20, 30, 40]))
    copy = PartitionCopy(fingerprints=array("q", list(b"aababc")), offsets=array("q", range(6)))
    assert copied_again(7, source, copy) == [Again(7, 20, 2)]
