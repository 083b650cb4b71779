"""What a source, or a client with a mirror's name, may do to the wrap side, and what must not come of it."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import trio

from shoal.proxy.shallow.monitor.monitor import MirrorMonitor
from tests.proxy.shallow.test_reload import change
from tests.support.shallow.brokers import ORDERS, SourceBroker
from tests.support.shallow.mirror import Mirror, log
from tests.support.shallow.rig import shallow_rig
from tests.support.shallow.world import poll, some_batch

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_names_that_a_client_makes_up_are_not_kept(clock: MockClock) -> None:
    async with shallow_rig(min_batch_bytes=0) as r:
        r.source.sets = [{(ORDERS, 0): log(number)} for number in range(10)]
        mirror = await Mirror.of(r)
        await mirror.prove()
        known = [len(flow.topics) for flow in r.wrap.interlock.rules.flows()]
        await mirror.consumer.send(mirror.consumer.request({(f"made-up-{number}", 0): 0 for number in range(100)}))
        await mirror.consumer.frame()
        assert [len(flow.topics) for flow in r.wrap.interlock.rules.flows()] == known


async def test_an_answer_with_a_cut_batch_only_is_not_the_first_one() -> None:
    """MirrorMaker 2 needs the first batch after a start as it is, for its offset syncs."""
    whole = some_batch(0, 10)
    source = SourceBroker(sets=[{(ORDERS, 0): whole[:40]}, {(ORDERS, 0): whole}])
    async with shallow_rig(paired=False, min_batch_bytes=0, source=source) as r:
        consumer = await r.consumer()
        await consumer.fetch(0)
        assert len(poll(await consumer.fetch(0))) == 10


async def test_monitors_of_listeners_that_a_reload_has_ended_are_freed(clock: MockClock) -> None:
    async with shallow_rig(min_batch_bytes=0) as r:
        counts = list[int]()
        for number in range(3):
            await change(r, evidence_seconds=30.0 + number)
            await trio.sleep(30)
            gc.collect()
            counts.append(sum(isinstance(one, MirrorMonitor) for one in gc.get_objects()))
        assert counts[0] == counts[-1]
