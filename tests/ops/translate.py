"""A thousand random offsets, translated and compared with what is at them.

topic       the mirror is started again, Shoal is killed and stopped, connections to the target's brokers break off in
            requests and before answers
compacted   the source was compacted before the mirror copied it, and again after that
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from shoal.scenarios.kafka.broker import ClusterSpec, running_cluster
from shoal.scenarios.kafka.content.scan import Scanner
from shoal.scenarios.kafka.content.topics import Topics
from tests.brokers.mirror.rig.flow import Wiring, flowing
from tests.brokers.mirror.rig.steady import PARTITIONS, put, steady, warm_up, wrapped_more
from tests.brokers.mirror.rig.translated import check_offsets
from tests.brokers.mirror.test_copies import EAGER_CLEANER, NO_CONFIGS, compact
from tests.brokers.mirror.test_faults import cut
from tests.conftest import Aliases
from tests.support.kafka.clusters import Pair
from tests.support.kafka.relay import RELAY_HOST, relay

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.brokers.mirror.rig.flow import Flow
    from tests.ops.stage import Stage

__all__ = ["run"]

_OFFSETS = {"orders": 700, "compacted": 300}


@asynccontextmanager
async def _pair(stage: Stage) -> AsyncIterator[Pair]:
    spec = ClusterSpec(version=stage.kafka, proxied_as=RELAY_HOST)
    async with (
        running_cluster(stage.work / "source", spec) as source,
        running_cluster(stage.work / "target", spec) as target,
    ):
        yield Pair(source=source, target=target, scanners=(Scanner(source.bootstrap), Scanner(target.bootstrap)))


async def run(stage: Stage) -> dict[str, object]:
    async with _pair(stage) as pair:
        topics = Topics(pair.source.bootstrap)
        await topics.create("orders", PARTITIONS)
        await topics.create("compacted", 1, config=EAGER_CLEANER)
        await compact(pair, "compacted")
        port = pair.target.nodes[1].settings.ports.proxied
        extra = {**NO_CONFIGS, "B.offset.flush.interval.ms": "500"}
        wiring = Wiring(topics="orders|compacted", target=f"{RELAY_HOST}:{port}", extra=extra)
        async with relay(port) as to_target, flowing(pair, Aliases("A", "B"), stage.work, wiring) as flow:
            await warm_up(pair, "orders", flow)
            stage.progress.say("connections break off ...")
            async with steady(pair, "orders"):
                await cut(flow, to_target, "cut_requests", 2)
                await cut(flow, to_target, "swallow_answers", 3)
            stage.progress.say("the mirror and Shoal are killed ...")
            await _restarts(pair, flow)
            await put(pair, "orders", 4_000, seed=3)
            stage.progress.say("compaction ...")
            await compact(pair, "compacted")
            await flow.check_gap("orders")
            await flow.check_gap("compacted")
            return await _compared(stage, flow)


async def _restarts(pair: Pair, flow: Flow) -> None:
    async with steady(pair, "orders"):
        await wrapped_more(flow)
        flow.running.kill()
        flow.running.restart()
        await wrapped_more(flow)
        flow.shoal.kill()
        await flow.shoal.start()
        await wrapped_more(flow)
        await flow.shoal.stop()
        await flow.shoal.start()
        await wrapped_more(flow)


async def _compared(stage: Stage, flow: Flow) -> dict[str, object]:
    checked = wrong = exact = alone = 0
    for topic, count in _OFFSETS.items():
        found = await check_offsets(flow, topic, count, seed=1)
        files = await check_offsets(flow, topic, count, seed=1, online=False)
        back = await check_offsets(flow, topic, count, seed=2, to_source=True)
        for name, one in (("with brokers", found), ("files only", files), ("to the source", back)):
            stage.progress.say(
                f"{topic}, {name}: {one.exact} of {one.checked} exact, {one.wrong} wrong, {dict(one.why)}"
            )
            assert not one.faults, one.faults
        checked, exact = checked + found.checked, exact + found.exact
        wrong, alone = wrong + found.wrong + files.wrong + back.wrong, alone + files.exact
    return {"checked": checked, "exact": exact, "wrong": wrong, "exact_by_files_alone": alone}
