"""MirrorMaker 2 in exactly-once mode: whatever is killed, a read_committed consumer sees every record exactly once, in
order.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from shoal.scenarios.kafka.content.compare import first_difference
from shoal.scenarios.kafka.content.copies import read_copy
from shoal.scenarios.kafka.content.reading import READ_COMMITTED
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.mirror import MirrorSpec, running_mirror
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.rig.flow import WITHIN, Flow, Wiring, flowing
from tests.brokers.mirror.rig.steady import PARTITIONS, put, steady, wrapped_more
from tests.support.kafka.catchup import until_copied

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair


def long_transactions(aliases: Aliases) -> dict[str, str]:
    """By default each poll is a transaction with few envelopes. Longer ones make every fault hit a transaction."""
    flow = f"{aliases.source}->{aliases.target}"
    return {f"{flow}.transaction.boundary": "interval", f"{flow}.transaction.boundary.interval.ms": "1500"}


@asynccontextmanager
async def exactly_once(
    pair: Pair, topic: str, aliases: Aliases, work: Path, *, long: bool = True, wiring: Wiring | None = None
) -> AsyncIterator[Flow]:
    """Shoal and the mirror at work with envelopes."""
    await Topics(pair.source.bootstrap).create(topic, PARTITIONS)
    wiring = wiring or Wiring(topics=topic)
    # A worker that was cut off from its group gets its tasks back only after this time, five minutes by default.
    soon = {f"{aliases.target}.scheduled.rebalance.max.delay.ms": "1000"}
    extra = {**soon, **(long_transactions(aliases) if long else {}), **wiring.extra}
    async with flowing(pair, aliases, work, replace(wiring, exactly_once=True, extra=extra)) as flow:
        async with steady(pair, topic):
            await wrapped_more(flow, 1)
        await flow.check(topic, isolation=READ_COMMITTED)
        yield flow
    assert flow.counts()["unwrapped_records"] > 0


async def markers(flow: Flow, topic: str) -> int:
    """Offsets of the copy without a record for any reader, aborted ones included: transaction markers."""
    remote, bootstrap = flow.remote(topic), flow.pair.target.bootstrap
    return await Topics(bootstrap).total(remote) - (await read_copy(bootstrap, remote)).records


async def aborted(flow: Flow, topic: str) -> int:
    """Records in the copy that a read_committed consumer does not get."""
    remote, bootstrap = flow.remote(topic), flow.pair.target.bootstrap
    committed = await read_copy(bootstrap, remote, isolation=READ_COMMITTED)
    return (await read_copy(bootstrap, remote)).records - committed.records


async def killed_at_work(flow: Flow, pair: Pair, topic: str) -> None:
    async with steady(pair, topic):
        await wrapped_more(flow)
        flow.shoal.kill()
        await flow.shoal.start()
        await wrapped_more(flow)


async def stays_exact(flow: Flow, pair: Pair, topic: str, *, kills: int) -> None:
    """Shoal is killed several times: every record is committed once, and no sequence is out of order."""
    for _ in range(kills):
        await killed_at_work(flow, pair, topic)
    await flow.check(topic, isolation=READ_COMMITTED)
    assert not is_refused(flow)


async def test_through_shoal_and_shoal_is_killed(pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    async with exactly_once(pair, topic, aliases, tmp_path) as flow:
        await stays_exact(flow, pair, topic, kills=1)
        assert await markers(flow, topic) > 0


@pytest.mark.slow
@pytest.mark.parametrize("long", [False, True], ids=["short", "long"])
async def test_shoal_is_killed_many_times(pair: Pair, topic: str, aliases: Aliases, tmp_path: Path, long: bool) -> None:
    async with exactly_once(pair, topic, aliases, tmp_path, long=long) as flow:
        await stays_exact(flow, pair, topic, kills=8)


@pytest.mark.slow
async def test_shoal_is_stopped_many_times(pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    """SIGTERM in the middle of transactions."""
    async with exactly_once(pair, topic, aliases, tmp_path) as flow:
        async with steady(pair, topic):
            for _ in range(8):
                await wrapped_more(flow)
                await flow.shoal.stop()
                await flow.shoal.start()
            await wrapped_more(flow)
        await flow.check(topic, isolation=READ_COMMITTED)
        assert not is_refused(flow)


@pytest.mark.slow
async def test_brokers_with_the_older_transactions(pair_39: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    """Below Kafka 4 an epoch lasts for many transactions."""
    async with exactly_once(pair_39, topic, aliases, tmp_path) as flow:
        await stays_exact(flow, pair_39, topic, kills=3)


@pytest.mark.slow
async def test_shoal_comes_back_without_its_file(pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    """In the middle of a transaction: the task fails, and after its restart nothing is lost or duplicated."""
    async with exactly_once(pair, topic, aliases, tmp_path) as flow:
        async with steady(pair, topic):
            for _ in range(10):
                await wrapped_more(flow)
                await without_its_file(flow, tmp_path)
                if is_refused(flow):
                    break
            await flow.running.process.until_printed("OutOfOrderSequenceException", within=WITHIN)
            flow.running.kill()
            flow.running.restart()
            await wrapped_more(flow)
        await flow.check(topic, isolation=READ_COMMITTED)


async def without_its_file(flow: Flow, work: Path) -> None:
    """Wait until it is known whether that was in the middle of a transaction."""
    flow.shoal.kill()
    for file in (work / "state").glob("*.producers"):
        file.unlink()
    await flow.shoal.start()
    wrapped = flow.counts()["wrapped_records"]
    await until(
        lambda: is_refused(flow) or flow.counts()["wrapped_records"] > wrapped,
        within=WITHIN,
        what="the mirror to go on, or to be refused",
        process=flow.shoal.process,
        poll_s=0.2,
    )


def is_refused(flow: Flow) -> bool:
    return "error 45" in flow.shoal.log.read_text()


@pytest.mark.slow
async def test_an_idempotent_mirror(pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    """It guarantees nothing over its own restarts; over Shoal's restarts it appends nothing twice."""
    await Topics(pair.source.bootstrap).create(topic, PARTITIONS)
    extra = {f"{aliases.target}.producer.enable.idempotence": "true"}
    async with flowing(pair, aliases, tmp_path, Wiring(topics=topic, extra=extra)) as flow:
        async with steady(pair, topic):
            await wrapped_more(flow, 1)
        for _ in range(4):
            await killed_at_work(flow, pair, topic)
        await flow.check(topic)
        assert not is_refused(flow)


@pytest.mark.slow
async def test_the_mirror_is_killed(pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    async with exactly_once(pair, topic, aliases, tmp_path) as flow:
        for _ in range(5):
            async with steady(pair, topic):
                await wrapped_more(flow)
                flow.running.kill()
                flow.running.restart()
                await wrapped_more(flow)
        await flow.check(topic, isolation=READ_COMMITTED)
        assert await aborted(flow, topic) > 0
        assert not flow.events("flow-stopped")


@pytest.mark.slow
async def test_the_target_broker_is_killed(pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    async with exactly_once(pair, topic, aliases, tmp_path) as flow:
        for _ in range(2):
            async with steady(pair, topic):
                await wrapped_more(flow)
                pair.target.nodes[1].kill()
                await pair.target.nodes[1].start()
                await wrapped_more(flow)
        await flow.check(topic, isolation=READ_COMMITTED)


@pytest.mark.slow
async def test_without_shoal(pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    """Checks the harness, and MirrorMaker 2's own guarantee."""
    await Topics(pair.source.bootstrap).create(topic, PARTITIONS)
    await put(pair, topic, 20_000, seed=1)
    spec = MirrorSpec(
        source=pair.source.bootstrap,
        target=pair.target.bootstrap,
        topics=topic,
        tasks=2,
        exactly_once=True,
        source_alias=aliases.source,
        target_alias=aliases.target,
    )
    async with running_mirror(tmp_path, spec) as mirror:
        for seed in (2, 3):
            ours, remote = await read_copy(pair.source.bootstrap, topic), spec.remote_topic(topic)
            theirs = await until_copied(
                ours, pair.target.bootstrap, remote, within=WITHIN, isolation=READ_COMMITTED, process=mirror.process
            )
            assert await first_difference(ours, theirs) is None
            await put(pair, topic, 20_000, seed=seed)
            mirror.kill()
            mirror.restart()
