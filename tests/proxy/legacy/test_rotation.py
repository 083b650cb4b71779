"""The state of its partitions that a legacy connection keeps."""

from __future__ import annotations

from shoal.protocol.legacy.fetch.fetch import Wanted
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.legacy import rotation as legacy_rotation
from shoal.proxy.legacy.rotation import PartitionRotation

A, B, C = (Wanted(topic, 0, 10, 1000) for topic in "abc")


def order(turns: PartitionRotation, *wanted: Wanted) -> str:
    return "".join(one.topic for one in turns.in_turn(wanted))


def test_what_was_given_last_comes_last_and_what_was_never_given_keeps_the_clients_order() -> None:
    turns = PartitionRotation()
    assert order(turns, B, A, C) == "bac"
    turns.gave(B.topic_partition)
    assert order(turns, B, A, C) == "acb"
    turns.gave(A.topic_partition)
    assert order(turns, B, A, C) == "cba"
    turns.gave(B.topic_partition)
    assert order(turns, A, B) == "ab"


def test_a_place_named_twice_has_one_turn() -> None:
    assert order(PartitionRotation(), A, B, A) == "ab"


def test_a_question_behind_which_there_is_nothing_is_asked_where_it_goes_on() -> None:
    turns = PartitionRotation()
    assert turns.nothing_between(A.topic_partition, 10, 15)
    assert not turns.nothing_between(A.topic_partition, 10, 15)
    assert not turns.nothing_between(A.topic_partition, 10, 12)
    assert turns.nothing_between(A.topic_partition, 10, 20)
    assert turns.in_turn([A]) == (A._replace(offset=20),)
    assert turns.in_turn([A._replace(offset=11)]) == (A._replace(offset=11),)
    turns.gave(A.topic_partition)
    assert turns.in_turn([A]) == (A,)


def test_an_error_makes_it_forget_where_to_go_on_and_says_whether_it_knew() -> None:
    turns = PartitionRotation()
    assert not turns.refused(A.topic_partition)
    turns.nothing_between(A.topic_partition, 10, 15)
    assert turns.refused(A.topic_partition)
    assert turns.in_turn([A]) == (A,)


def test_it_remembers_a_bounded_number_of_partitions() -> None:
    turns = PartitionRotation()
    for number in range(legacy_rotation._LIMIT + 50):
        partition = TopicPartition("t", number)
        turns.gave(partition)
        turns.nothing_between(partition, 1, 2)
        turns.learn_watermark(partition, 7)
    for known in (turns._given, turns._skips, turns._watermarks):
        assert len(known) == legacy_rotation._LIMIT
    assert (turns.watermark(TopicPartition("t", 0)), turns.watermark(TopicPartition("t", 60))) == (-1, 7)
