"""A thousand random offsets, translated and compared with what is at them.

topic       the mirror is started again, Shoal is killed and stopped, connections to the target's brokers break off in
            requests and before answers
compacted   the source was compacted before the mirror copied it, and again after that
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING

import trio

from shoal.scenarios.kafka.broker import ClusterSpec, running_cluster
from shoal.scenarios.kafka.content.records import sized
from shoal.scenarios.kafka.content.scan import Scanner
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, fill
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.rig.flow import WITHIN, Wiring, flowing
from tests.brokers.mirror.rig.steady import PARTITIONS, put
from tests.brokers.mirror.rig.translated import check_offsets
from tests.brokers.mirror.test_copies import EAGER_CLEANER, NO_CONFIGS, compact
from tests.brokers.mirror.test_lag import lag
from tests.conftest import Aliases
from tests.support.kafka.clusters import Pair
from tests.support.kafka.relay import RELAY_HOST, relay

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.brokers.mirror.rig.flow import Flow
    from tests.ops.stage import Stage
    from tests.support.kafka.relay import Faults

__all__ = ["run"]

_ROUND = 2_000  # records
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
            orders = _Orders(flow)
            await orders.until_wrapped()
            stage.progress.say("connections break off ...")
            for what in ("cut_requests", "swallow_answers"):
                await orders.through(to_target, what, 2)
            stage.progress.say("the mirror and Shoal are killed ...")
            flow.running.kill()
            flow.running.restart()
            await orders.until_wrapped()
            flow.shoal.kill()
            await flow.shoal.start()
            await orders.until_wrapped()
            await flow.shoal.stop()
            await flow.shoal.start()
            await orders.until_wrapped()
            stage.progress.say("compaction ...")
            await compact(pair, "compacted", seed=10)
            await until_known(flow, "compacted")
            await flow.check_gap("orders")
            await until(lambda: lag(flow) == 0, within=WITHIN, what="no lag", process=flow.shoal.process)
            return await _compared(stage, flow)


async def until_known(flow: Flow, topic: str) -> None:
    """Fresh records, until Shoal has appended some of them from envelopes."""
    files, seeds = flow.work / "state", count(100)
    with trio.fail_after(WITHIN):
        while not any(f'"{flow.remote(topic)}"' in file.read_text() for file in files.glob("*.offsets")):
            seed = next(seeds)
            fresh = sized(2_000, 1_500, seed=seed)
            records = (record._replace(key=b"%d %d" % (seed, index)) for index, record in enumerate(fresh))
            await fill(flow.pair.source.bootstrap, topic, records, layout=Layout(run=40), compression_type="zstd")
            await trio.sleep(1)


class _Orders:
    """Writes the topic in rounds that the mirror copies before the next one, so a slow machine has no backlog."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._rounds = 0

    async def round(self) -> None:
        flow, self._rounds = self._flow, self._rounds + 1
        await put(flow.pair, "orders", _ROUND, seed=self._rounds)
        total = await Topics(flow.pair.source.bootstrap).total("orders")
        copies = Topics(flow.pair.target.bootstrap)
        await copies.until_total(flow.remote("orders"), total, within=WITHIN, process=flow.running.process)

    async def until_wrapped(self) -> None:
        """In envelopes, more than so far."""
        before = self._flow.counts()["wrapped_records"]
        with trio.fail_after(WITHIN):
            while self._flow.counts()["wrapped_records"] < before + _ROUND:
                await self.round()

    async def through(self, faults: Faults, what: str, times: int) -> None:
        setattr(faults, what, times)
        with trio.fail_after(WITHIN):
            while faults.done.get(what, 0) < times:
                await self.round()
        await self.until_wrapped()


async def _compared(stage: Stage, flow: Flow) -> dict[str, object]:
    checked = wrong = exact = alone = 0
    for topic, wanted in _OFFSETS.items():
        found = await check_offsets(flow, topic, wanted, seed=1)
        files = await check_offsets(flow, topic, wanted, seed=1, online=False)
        back = await check_offsets(flow, topic, wanted, seed=2, to_source=True)
        for name, one in (("with brokers", found), ("files only", files), ("to the source", back)):
            stage.progress.say(
                f"{topic}, {name}: {one.exact} of {one.checked} exact, {one.wrong} wrong, {dict(one.why)}"
            )
            assert not one.faults, one.faults
        checked, exact = checked + found.checked, exact + found.exact
        wrong, alone = wrong + found.wrong + files.wrong + back.wrong, alone + files.exact
    return {"checked": checked, "exact": exact, "wrong": wrong, "exact_by_files_alone": alone}
