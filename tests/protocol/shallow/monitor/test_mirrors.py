from __future__ import annotations

from shoal.protocol.shallow.monitor.in_transit import Span
from shoal.protocol.shallow.monitor.mirrors import FORGET_SECONDS, Mirrors
from shoal.protocol.wire.types import TopicPartition

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)
DAY = FORGET_SECONDS + 1


def fetches(mirrors: Mirrors, name: str, partition: TopicPartition, now: float) -> None:
    mirrors.ask(name, 1, partition, 0, now)
    mirrors.requested(name, read_committed=True, is_proven=True)
    mirrors.watched(name, [partition], now)


def test_a_client_takes_no_memory_beyond_its_partitions() -> None:
    """Clients choose their ids."""
    mirrors = Mirrors(most=1)
    fetches(mirrors, "first", ORDERS, 0.0)
    for number in range(100):
        fetches(mirrors, f"other {number}", ORDERS, 0.0)
    assert mirrors.reads_committed("first")
    assert mirrors.is_running("first", 0.0)
    assert not any(mirrors.is_running(f"other {number}", 0.0) for number in range(100))
    assert not any(mirrors.reads_committed(f"other {number}") for number in range(100))


def test_what_a_running_mirror_no_longer_reads_is_forgotten_after_a_day() -> None:
    mirrors = Mirrors()
    for name in ("running", "stopped"):
        fetches(mirrors, name, ORDERS, 0.0)
    fetches(mirrors, "running", PAYMENTS, DAY)
    assert mirrors.forget(DAY) == {("running", ORDERS)}
    assert {(name, partition) for name, partition, _ in mirrors} == {("running", PAYMENTS), ("stopped", ORDERS)}
    assert len(mirrors) == 2


def test_a_topic_is_forgotten_with_its_last_partition() -> None:
    """When a mirror reads a new topic of the name, nothing is known that was made anew."""
    mirrors = Mirrors()
    fetches(mirrors, "running", ORDERS, 0.0)
    assert mirrors.identify("orders", b"1") == []
    fetches(mirrors, "running", PAYMENTS, DAY)
    assert mirrors.forget(DAY) == {("running", ORDERS)}
    fetches(mirrors, "running", ORDERS, DAY)
    copy = mirrors.get("running", ORDERS)
    assert copy is not None
    copy.give([Span(10, None)], 500, DAY)
    assert mirrors.identify("orders", b"2") == []
