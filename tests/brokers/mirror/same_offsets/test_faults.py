"""Whatever fails: each record of a mirror topic is at its offset, once."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, fill
from shoal.scenarios.kafka.errors import HarnessError
from shoal.scenarios.kafka.mirror import Mirror
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.rig.flow import WITHIN, Flow, flowing
from tests.brokers.mirror.rig.steady import steady, wrapped_more
from tests.brokers.mirror.same_offsets.rig import until_equal, until_stopped, wiring

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

PARTITIONS = 3
BATCHES = Layout(run=100, exact=True)


async def test_shoal_mirror_and_broker_are_killed_at_work(
    offsets_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path
) -> None:
    """A mirror that copies at least once copies exactly once here."""
    pair = offsets_pair
    await Topics(pair.source.bootstrap).create(kept, PARTITIONS)
    async with flowing(pair, aliases, tmp_path, wiring(kept)) as flow:
        async with steady(pair, kept):
            await wrapped_more(flow)
            flow.shoal.kill()
            await flow.shoal.start()
            await wrapped_more(flow)
            flow.running.kill()
            flow.mirror = await Mirror.start(tmp_path, flow.spec)
            await wrapped_more(flow)
            (broker,) = pair.target.nodes.values()
            broker.kill()
            await broker.start()
            await wrapped_more(flow)
        await until_equal(flow, kept)


@pytest.mark.slow  # the next one loses a copy, too
async def test_a_copy_that_is_gone_is_made_again(
    offsets_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path
) -> None:
    """The mirror has committed offsets of records that the target no longer has."""
    pair = offsets_pair
    await Topics(pair.source.bootstrap).create(kept)
    await fill(pair.source.bootstrap, kept, orders(8_000))
    async with flowing(pair, aliases, tmp_path, wiring(kept)) as flow:
        await until_equal(flow, kept)
        assert await flow.running.stop()
        await Topics(pair.target.bootstrap).delete(flow.remote(kept))
        flow.mirror = await Mirror.start(tmp_path, flow.spec)
        await until_equal(flow, kept)


@pytest.mark.slow
async def test_a_target_that_has_lost_records_gets_them_again(
    offsets_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path
) -> None:
    """One copy has lost its folder on the only broker; of another one, all records were deleted."""
    pair, emptied = offsets_pair, f"{kept}-emptied"
    for name in (kept, emptied):
        await Topics(pair.source.bootstrap).create(name)
        await fill(pair.source.bootstrap, name, orders(3_000), layout=Layout(run=100))
    async with flowing(pair, aliases, tmp_path, wiring(f"{kept},{emptied}")) as flow:
        await until_equal(flow, kept, emptied)
        (broker,) = pair.target.nodes.values()
        broker.kill()
        shutil.rmtree(broker.data / f"{flow.remote(kept)}-0")
        await broker.start()
        for cluster, name in ((pair.target, flow.remote(emptied)), (pair.source, emptied)):
            topics = Topics(cluster.bootstrap)
            await topics.until_total(name, 3_000, within=WITHIN)  # a restarted broker may not know yet that it leads
            await topics.delete_records(name, {0: 3_000})
        for name in (kept, emptied):
            await fill(pair.source.bootstrap, name, orders(300, seed=1), layout=Layout(run=100))
        await until_equal(flow, kept, emptied)
        assert flow.events("same-offsets-stopped") == []


@asynccontextmanager
async def copied(pair: Pair, topic: str, aliases: Aliases, work: Path) -> AsyncIterator[Flow]:
    """A flow whose copy is whole."""
    await Topics(pair.source.bootstrap).create(topic)
    await fill(pair.source.bootstrap, topic, orders(1_000), layout=BATCHES)
    async with flowing(pair, aliases, work, wiring(topic)) as flow:
        await until_equal(flow, topic)
        yield flow


async def create_again(pair: Pair, topic: str) -> None:
    """With more records than before."""
    source = Topics(pair.source.bootstrap)
    await source.delete(topic)
    await source.create(topic)
    await fill(pair.source.bootstrap, topic, orders(3_000, seed=9), layout=BATCHES)


async def test_a_source_that_was_created_again_is_not_mixed_with_its_copy(
    offsets_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path
) -> None:
    target = Topics(offsets_pair.target.bootstrap)
    async with copied(offsets_pair, kept, aliases, tmp_path) as flow:
        before = await target.ends(flow.remote(kept))
        assert await flow.running.stop()
        await create_again(offsets_pair, kept)
        flow.mirror = await Mirror.start(tmp_path, flow.spec)
        why = await until_stopped(flow, kept)
        assert "is another than the log has there: its source was created again or truncated" in why
        assert await target.ends(flow.remote(kept)) == before
        await target.delete(flow.remote(kept))  # the way out, if the new topic shall be mirrored
        await until_created(target, flow.remote(kept))
        await until_equal(flow, kept)


@pytest.mark.slow  # tests/proxy/shallow/wrap/test_same_offsets.py has the same without a mirror
async def test_a_source_that_was_created_again_while_its_mirror_sleeps(
    offsets_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path
) -> None:
    """It goes on where it was, on the same connection."""
    target = Topics(offsets_pair.target.bootstrap)
    async with copied(offsets_pair, kept, aliases, tmp_path) as flow:
        before = await target.ends(flow.remote(kept))
        os.kill(flow.running.process.pid, signal.SIGSTOP)
        await create_again(offsets_pair, kept)
        os.kill(flow.running.process.pid, signal.SIGCONT)
        assert "is another than the log has there" in await until_stopped(flow, kept)
        assert await target.ends(flow.remote(kept)) == before


async def until_created(target: Topics, name: str) -> None:
    async def there() -> bool:
        try:
            return await target.partitions(name) > 0
        except HarnessError:
            return False

    await until(there, within=WITHIN, what=f"{name} to be created", poll_s=0.5)


async def test_a_target_without_the_agent_gets_nothing_and_the_others_go_on(
    offsets_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path
) -> None:
    """The brokers have other topics as mirror topics: `ordinary` does not match their pattern."""
    pair, ordinary = offsets_pair, f"no-{kept}"
    source = Topics(pair.source.bootstrap)
    for name in (kept, ordinary):
        await source.create(name)
        await fill(pair.source.bootstrap, name, orders(1_000))
    async with flowing(pair, aliases, tmp_path, wiring(f"{kept},{ordinary}", same_offsets="(no-)?so-.*")) as flow:
        why = await until_stopped(flow, ordinary)
        assert "is no mirror topic on" in why
        assert "start this broker with the Java agent" in why
        await until_equal(flow, kept)
        assert await Topics(pair.target.bootstrap).ends(flow.remote(ordinary)) == {0: 0}


@pytest.mark.slow
async def test_a_batch_that_the_target_refuses_stops_its_partition_until_it_may_pass(
    offsets_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path
) -> None:
    pair = offsets_pair
    source, target = Topics(pair.source.bootstrap), Topics(pair.target.bootstrap)
    await source.create(kept, 2)
    async with flowing(pair, aliases, tmp_path, wiring(kept, extra={"sync.topic.configs.enabled": "false"})) as flow:
        await fill(pair.source.bootstrap, kept, orders(500), layout=Layout(partitions=2))
        await until_equal(flow, kept)
        await target.alter(flow.remote(kept), {"max.message.bytes": "2000"})
        await fill(pair.source.bootstrap, kept, orders(1_000, seed=2), layout=Layout(run=200, exact=True))
        why = await until_stopped(flow, kept)
        assert "max.message.bytes" in why
        await target.alter(flow.remote(kept), {"max.message.bytes": "1048588"})
        await until_equal(flow, kept)
        await resumed(flow)


async def resumed(flow: Flow) -> None:
    await until(
        lambda: bool(flow.events("same-offsets-resumed")),
        within=WITHIN,
        what="the partition to go on",
        process=flow.shoal.process,
        poll_s=0.2,
    )
