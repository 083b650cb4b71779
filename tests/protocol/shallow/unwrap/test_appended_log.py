from shoal.protocol.shallow.unwrap.appended_log import Appended, AppendedLog
from shoal.protocol.wire.types import TopicPartition

TARGET = TopicPartition("t", 0)


def test_what_is_not_known_is_nothing() -> None:
    assert AppendedLog().recall(TARGET, "x") == Appended(batches=0, records=0, first=-1, last=-1)


def test_an_item_is_known_in_its_partition_only() -> None:
    deliveries = AppendedLog()
    deliveries.record(TARGET, "x", Appended(batches=2, first=5, last=9))
    assert deliveries.recall(TARGET, "x").batches == 2
    assert deliveries.recall(TopicPartition("t", 1), "x").batches == 0


def test_the_least_recently_recorded_is_forgotten() -> None:
    deliveries = AppendedLog(limit=2)
    for name in ("a", "b", "a", "c"):
        deliveries.record(TARGET, name, Appended(batches=1))
    assert [deliveries.recall(TARGET, name).batches for name in "abc"] == [1, 0, 1]
