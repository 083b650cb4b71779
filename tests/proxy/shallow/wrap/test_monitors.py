"""Two listeners of one source: the envelopes of one's mirror say nothing about the other's."""

from __future__ import annotations

from shoal.protocol.shallow.envelope import EnvelopeKey
from shoal.protocol.shallow.monitor.in_transit import Span
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.shallow.monitor.monitor import MirrorMonitor, MirrorMonitors
from tests.support.rig import rig

ORDERS = TopicPartition("orders", 0)


def fetches(monitor: MirrorMonitor, mirror: str, life: int) -> None:
    """The mirror gets an envelope of 10 records."""
    monitor.mirrors.connected(mirror, life)
    monitor.mirrors.ask(mirror, life, ORDERS, 0, 0.0)
    copy = monitor.mirrors.asked(mirror, life, ORDERS, 0)
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
