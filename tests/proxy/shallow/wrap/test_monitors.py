"""Two listeners of one source: the envelopes of one's mirror say nothing about the other's. And what the unwrapping
listener learns of the source."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from shoal.protocol.shallow.envelope import EnvelopeKey
from shoal.protocol.shallow.monitor.in_transit import Span
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.shallow.monitor.monitor import MirrorMonitor, MirrorMonitors
from tests.support.group_brokers import GroupBrokers
from tests.support.rig import rig, until

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

ORDERS = TopicPartition("orders", 0)


def fetches(monitor: MirrorMonitor, mirror: str, life: int, partition: TopicPartition = ORDERS) -> None:
    """The mirror gets an envelope of 10 records."""
    monitor.mirrors.connected(mirror, life)
    monitor.mirrors.ask(mirror, life, partition, 0, 0.0)
    copy = monitor.mirrors.asked(mirror, life, partition, 0)
    assert copy is not None
    copy.answer(0, 10, 0.0)
    copy.give([Span(10, None)], 100, 0.0)


def of_life(life: int, cluster: str) -> EnvelopeKey:
    return EnvelopeKey(
        cluster=cluster,
        topic=ORDERS.topic,
        partition=ORDERS.partition,
        first_offset=0,
        last_offset=9,
        batches=1,
        records=10,
        payload=100,
        payload_crc=0,
        flow=life,
        serial=1,
    )


def mirrored(monitor: MirrorMonitor, mirror: str) -> int:
    copy = monitor.mirrors.get(mirror, ORDERS)
    assert copy is not None
    return copy.mirrored


async def test_an_envelope_counts_for_the_listener_that_made_it() -> None:
    async with rig() as r:
        first, second, both = MirrorMonitor(r.listener), MirrorMonitor(r.listener), MirrorMonitors()
        both.join(first)
        both.join(second)
        fetches(first, "first", 1)
        fetches(second, "second", 2)
        both.appended(of_life(2, r.listener.cluster.name), "A.orders")
        assert (mirrored(first, "first"), mirrored(second, "second")) == (0, 10)
        first.end()
        second.end()


async def test_what_may_be_read_elsewhere_is_behind_for_a_minute() -> None:
    """Not for a day, and whether another consumer of the mirror runs here or not."""
    async with rig() as r:
        monitor = MirrorMonitor(r.listener)
        fetches(monitor, "mirror", 1)
        for now, elsewhere, is_kept in ((61.0, False, True), (59.0, True, True), (61.0, True, False)):
            monitor.mirrors.forget(now, elsewhere=elsewhere)
            assert (monitor.mirrors.get("mirror", ORDERS) is not None) is is_kept
        assert len(monitor.mirrors) == 0
        monitor.end()


async def test_a_source_that_has_lost_records_is_reported_to_the_unwrapping_listener() -> None:
    """Other records get these offsets: nothing that is known of them is right any more. All partitions at once: a
    broker may have led thousands of them.
    """
    others = TopicPartition("orders", 1)
    brokers = GroupBrokers({ORDERS: 1, others: 1, ("other", 0): 1})
    lost: list[tuple[str, AbstractSet[TopicPartition]]] = []
    async with rig() as r, brokers.running():
        r.listener.cluster.bootstrap = (brokers.bootstrap,)
        monitor, both = MirrorMonitor(r.listener), MirrorMonitors()
        both.when_truncated.append(lambda *found: lost.append(found))
        both.join(monitor)
        fetches(monitor, "mirror", 1)
        fetches(monitor, "mirror", 1, others)
        brokers.watermarks[ORDERS] = brokers.watermarks[others] = 4
        clock = count(10.0, 10.0)

        def is_reported() -> bool:
            monitor.tick(next(clock))
            return bool(lost)

        await until(is_reported)
        assert lost == [("c", {ORDERS, others})]
        monitor.end()
