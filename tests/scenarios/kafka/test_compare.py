"""The comparison must detect every damage that a mirror could do. No broker: sequences of fingerprints."""

from array import array
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.scenarios.kafka.content.compare import Counts, first_difference, reconcile, reconcile_sequences
from shoal.scenarios.kafka.content.copies import Copy, PartitionCopy

SOURCE = [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ([1, 2, 3, 4, 5], {"equal": 5}),
        ([], {"missing": 5}),
        ([1, 2, 3, 4], {"equal": 4, "missing": 1}),
        ([1, 2, 4, 5], {"equal": 4, "missing": 1}),
        ([2, 3, 4, 5], {"equal": 4, "missing": 1}),
        ([1, 2, 9, 3, 4, 5], {"equal": 5, "extra": 1}),
        ([1, 2, 9, 4, 5], {"equal": 4, "extra": 1, "missing": 1}),
        ([1, 2, 3, 2, 3, 4, 5], {"equal": 5, "duplicates": 2}),
        ([1, 2, 3, 4, 5, 1, 2, 3, 4, 5], {"equal": 5, "duplicates": 5}),
        ([1, 2, 4, 3, 5], {"equal": 4, "reordered": 1}),
        ([5, 4, 3, 2, 1], {"equal": 1, "reordered": 4}),
        ([1, 2, 4, 3, 3, 5], {"equal": 4, "reordered": 1, "duplicates": 1}),
    ],
)
def test_each_kind_of_damage_is_counted_as_what_it_is(target: list[int], expected: dict[str, int]) -> None:
    assert reconcile_sequences(SOURCE, target) == Counts(source=5, target=len(target), **expected)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ([7, 7, 7], [7, 7, 7], {"equal": 3}),
        ([7, 7, 7], [7, 7], {"equal": 2, "missing": 1}),
        ([7, 7, 7], [7, 7, 7, 7], {"equal": 3, "duplicates": 1}),
        ([1, 7, 2, 7, 3], [1, 7, 2, 7, 2, 7, 3], {"equal": 5, "duplicates": 2}),
    ],
)
def test_records_of_equal_contents_are_not_taken_for_losses(
    source: list[int], target: list[int], expected: dict[str, int]
) -> None:
    assert reconcile_sequences(source, target) == Counts(source=len(source), target=len(target), **expected)


@given(st.lists(st.integers(0, 8), max_size=12), st.lists(st.integers(0, 8), max_size=12))
def test_the_counts_add_up_and_faithful_means_that_every_record_is_there(source: list[int], target: list[int]) -> None:
    counts = reconcile_sequences(source, target)

    assert counts.equal + counts.reordered + counts.missing == len(source)
    assert counts.equal + counts.reordered + counts.duplicates + counts.extra == len(target)
    if counts.faithful:
        assert not Counter(source) - Counter(target)
        assert set(source) == set(target)
        assert _is_subsequence(source, target)


@given(st.lists(st.integers(), unique=True, max_size=30), st.data())
def test_a_mirror_that_starts_again_from_earlier_positions_is_faithful(source: list[int], data: st.DataObject) -> None:
    target: list[int] = []
    reached = 0
    while reached < len(source):
        begin = data.draw(st.integers(0, reached))
        reached = data.draw(st.integers(reached + 1, len(source)))
        target += source[begin:reached]

    counts = reconcile_sequences(source, target)

    assert counts.faithful
    assert counts.equal == len(source)
    assert counts.duplicates == len(target) - len(source)


def _is_subsequence(short: list[int], long: list[int]) -> bool:
    rest = iter(long)
    return all(item in rest for item in short)


def _copy(*partitions: list[int], offsets: list[int] | None = None) -> Copy:
    return Copy(
        bootstrap="nowhere",
        topic="t",
        timestamp_types=False,
        partitions={
            number: PartitionCopy(
                fingerprints=array("q", fingerprints), offsets=array("q", offsets or range(len(fingerprints)))
            )
            for number, fingerprints in enumerate(partitions)
        },
    )


async def test_equal_copies_have_no_difference() -> None:
    assert await first_difference(_copy([1, 2], [3]), _copy([1, 2], [3]), offsets=True) is None


async def test_other_offsets_are_a_difference_only_when_asked_for() -> None:
    source, target = _copy([1, 2, 3]), _copy([1, 2, 3], offsets=[0, 5, 6])

    assert await first_difference(source, target) is None
    assert await first_difference(source, target, offsets=True) == "partition 0: record 1 is at 1, its copy at 5"


async def test_another_number_of_partitions_is_a_difference() -> None:
    assert await first_difference(_copy([1]), _copy([1], [])) == "t has 1 partitions, t 2"


def test_a_partition_that_the_target_lacks_is_missing_whole() -> None:
    assert reconcile(_copy([1, 2], [3, 4]), _copy([1, 2])) == Counts(source=4, target=2, equal=2, missing=2)
