from __future__ import annotations

from shoal.protocol.shallow.translate.offset_map import AppendedRange, OffsetMap, SourcePartition
from shoal.protocol.wire.types import TopicPartition

SOURCE = SourcePartition("cluster", "orders", 0)
TARGET = TopicPartition("A.orders", 0)


def test_ranges_that_continue_each_other_are_one() -> None:
    known = OffsetMap()
    for number in range(1_000):
        known.add(TARGET, SOURCE, 500 + 10 * number, 10 * number, 10)
    assert known.ranges(TARGET) == [AppendedRange(0, 500, 10_000, SOURCE)]


def test_above_the_limit_of_a_partition_the_oldest_fall_off() -> None:
    known = OffsetMap(most_of_partition=16)
    for number in range(40):
        known.add(TARGET, SOURCE, 12 * number, 10 * number, 10)
    assert 14 <= len(known) <= 16
    assert known.begins(TARGET) == known.ranges(TARGET)[0].target_first > 0
    assert known.ranges(TARGET)[-1] == AppendedRange(390, 468, 10, SOURCE)


def test_a_log_that_is_cut_off_below_what_has_fallen_off_begins_anew() -> None:
    """What was behind it has other records now."""
    known = OffsetMap(most_of_partition=16)
    for number in range(40):
        known.add(TARGET, SOURCE, 12 * number, 10 * number, 10)
    known.add(TARGET, SOURCE, 1000, 55, 10)
    known.add(TARGET, SOURCE, 1010, 65, 10)
    assert known.ranges(TARGET) == [AppendedRange(55, 1000, 20, SOURCE)]
    assert (known.begins(TARGET), len(known)) == (55, 1)


def test_above_the_limit_of_all_the_longest_partition_gives() -> None:
    known, other = OffsetMap(most=20), TARGET._replace(partition=1)
    known.add(other, SOURCE._replace(partition=1), 0, 0, 1)
    for number in range(40):
        known.add(TARGET, SOURCE, 2 * number, number, 1)
    assert len(known) <= 20
    assert len(known.ranges(other)) == 1


def test_partitions_above_the_limit_are_left_out() -> None:
    known = OffsetMap(most_partitions=2)
    for number in range(3):
        known.add(TARGET._replace(partition=number), SOURCE, 0, 0, 1)
    assert [target.partition for target in known.targets()] == [0, 1]


def test_topics_are_forgotten() -> None:
    known, other = OffsetMap(), SOURCE._replace(topic="other")
    known.add(TARGET, SOURCE, 0, 0, 5)
    known.add(TARGET, other, 0, 5, 5)
    assert known.forget_source("cluster", "orders")
    assert not known.forget_source("cluster", "orders")
    assert list(known.pairs()) == [(TARGET, other)]
    assert known.forget_target("A.orders")
    assert not known.forget_target("A.orders")
    assert len(known) == 0
