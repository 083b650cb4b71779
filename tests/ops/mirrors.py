"""Lag and gaps of a real MirrorMaker 2, against what source and target have.

lag   the mirror is stopped while a producer runs, and catches up: the largest error 5 s later, in records
gap   records deleted before they are mirrored, a topic created again; and what is no gap: compaction, markers of
      transactions, records deleted behind the mirror, a mirror that starts anew
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from shoal.scenarios.kafka.broker import ClusterSpec, running_cluster
from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.scan import Scanner
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, Transaction, fill_transactions
from tests.brokers.mirror.rig.flow import Wiring, flowing
from tests.brokers.mirror.rig.steady import PARTITIONS, put, warm_up
from tests.brokers.mirror.test_gaps import until_gaps
from tests.brokers.mirror.test_lag import behind, lag
from tests.conftest import Aliases
from tests.support.kafka.clusters import Pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.brokers.mirror.rig.flow import Flow
    from tests.ops.stage import Stage

__all__ = ["gap", "lag_error"]

_SETTLED = 5.0
_COMPACTED = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}


@asynccontextmanager
async def _pair(stage: Stage) -> AsyncIterator[Pair]:
    spec = ClusterSpec(version=stage.kafka)
    async with (
        running_cluster(stage.work / "source", spec) as source,
        running_cluster(stage.work / "target", spec) as target,
    ):
        yield Pair(source=source, target=target, scanners=(Scanner(source.bootstrap), Scanner(target.bootstrap)))


async def lag_error(stage: Stage) -> dict[str, object]:
    topic, errors = "orders", list[int]()
    async with _pair(stage) as pair:
        await Topics(pair.source.bootstrap).create(topic, PARTITIONS)
        async with flowing(pair, Aliases("A", "B"), stage.work, Wiring(topics=topic)) as flow:
            await warm_up(pair, topic, flow)

            async def compare() -> None:
                await trio.sleep(_SETTLED)
                errors.append(abs(lag(flow) - await behind(flow, topic)))

            await compare()
            await flow.running.stop()
            for seed in range(3):
                await put(pair, topic, 8_000, seed=seed)
                await compare()
            flow.running.restart()
            await flow.check(topic)
            await compare()
    return {"max_error_records": max(errors)}


async def gap(stage: Stage) -> dict[str, object]:
    names = ("deleted", "made-anew", "compacted", "transactions")
    async with _pair(stage) as pair:
        topics = Topics(pair.source.bootstrap)
        for name in names:
            config = _COMPACTED if name == "compacted" else {}
            await topics.create(name, PARTITIONS, config=config)
        await put(pair, "deleted", 500, seed=9)
        await topics.delete_records("deleted", {0: 77})  # a mirror that starts anew begins there
        async with flowing(pair, Aliases("A", "B"), stage.work, Wiring(topics="|".join(names))) as flow:
            for name in names[1:]:
                await put(pair, name, 1_000, seed=1)
            await warm_up(pair, "deleted", flow)
            for name in names[1:]:
                await flow.check_gap(name)
            before = await topics.ends("deleted")
            await topics.delete_records("deleted", {1: before[1] - 5})  # behind the mirror
            await _aborted(flow)
            ends = await topics.ends("made-anew")
            await flow.running.stop()
            await put(pair, "compacted", 1_000, seed=1)  # the same keys
            await put(pair, "deleted", 3_000, seed=3)
            await topics.delete_records("deleted", {0: before[0] + 700})
            await topics.delete("made-anew")
            await topics.create("made-anew", PARTITIONS)
            flow.running.restart()
            wanted = [
                ("deleted", 0, before[0], before[0] + 700),
                *(("recreated", one, ends[one], ends[one]) for one in range(PARTITIONS)),
            ]
            await until_gaps(flow, *wanted)
            await put(pair, "deleted", 1_000, seed=4)
            await flow.check_gap("deleted")
            await trio.sleep(_SETTLED)
            found = len(flow.events("mirror-gap"))
            left = lag(flow)
    assert left == 0, f"a lag of {left} that never ends"
    return {"events": found, "false_alarms": found - len(wanted)}


async def _aborted(flow: Flow) -> None:
    """A topic that ends with an aborted transaction."""
    records = tuple(orders(200, seed=5))
    transactions = [Transaction(records=records, commit=True), Transaction(records=records, commit=False)]
    await fill_transactions(
        flow.pair.source.bootstrap,
        "transactions",
        transactions,
        transactional_id="ops",
        layout=Layout(partitions=PARTITIONS, run=100),
    )
