"""Whatever is killed, restarted or cut: nothing is lost or out of order, few records are duplicated, and no envelope is
stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shoal.protocol.shallow.envelope import MAGIC
from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, fill
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.rig.doubled import check_resumed, doubled
from tests.brokers.mirror.rig.flow import WITHIN, Flow, Wiring, flowing
from tests.brokers.mirror.rig.steady import (
    PARTITIONS,
    RUN,
    put,
    steady,
    warm_up,
    wrapped_more,
)
from tests.support.kafka.relay import RELAY_HOST, Faults, relay

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair


@pytest.mark.slow
async def test_brokers_restarted(pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    await Topics(pair.source.bootstrap).create(topic, PARTITIONS)
    wiring = Wiring(topics=topic, extra={f"{aliases.target}.offset.flush.interval.ms": "500"})
    async with flowing(pair, aliases, tmp_path, wiring) as flow:
        await warm_up(pair, topic, flow)
        async with steady(pair, topic):
            await wrapped_more(flow)
            pair.source.nodes[1].kill()
            await pair.source.nodes[1].start()
            await wrapped_more(flow)
        await flow.check_faithful(topic, duplicates=0)
        known = await doubled(flow, topic)

        async with steady(pair, topic):
            await wrapped_more(flow)
            pair.target.nodes[1].kill()
            await pair.target.nodes[1].start()
            await wrapped_more(flow)
        # MM2's own workers and offsets live in the target cluster: it starts its tasks again, where it had committed.
        await check_resumed([one for one in await doubled(flow, topic) if one not in known], flow, topic)


@pytest.mark.slow
async def test_a_killed_mirror(pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    await Topics(pair.source.bootstrap).create(topic, PARTITIONS)
    wiring = Wiring(topics=topic, extra={f"{aliases.target}.offset.flush.interval.ms": "500"})
    async with flowing(pair, aliases, tmp_path, wiring) as flow:
        await warm_up(pair, topic, flow)
        async with steady(pair, topic):
            await wrapped_more(flow)
            flow.running.kill()
            flow.running.restart()
            await wrapped_more(flow)
        # MM2 continues at its committed offsets, as without Shoal: it may copy later records again.
        await check_resumed(await doubled(flow, topic), flow, topic)


@pytest.mark.slow
async def test_a_mirror_started_in_the_middle_of_a_batch(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    """The first record that the source still has is inside a batch: earlier ones are neither copied nor counted."""
    topics = Topics(pair.source.bootstrap)
    await topics.create(topic, PARTITIONS)
    await fill(
        pair.source.bootstrap, topic, orders(2_000), layout=Layout(run=2_000, exact=True), compression_type="zstd"
    )
    await topics.delete_records(topic, {0: 777})
    async with flowing(pair, aliases, tmp_path, Wiring(topics=topic, tasks=1)) as flow:
        counts = await flow.check_faithful(topic, duplicates=0)
        assert counts.source == 2_000 - 777
        await warm_up(pair, topic, flow)
        await flow.check(topic)


async def cut(flow: Flow, faults: Faults, what: str, times: int) -> None:
    setattr(faults, what, times)
    await until(
        lambda: faults.done.get(what, 0) >= times, within=WITHIN, what=f"{what} to be done", process=flow.shoal.process
    )
    await wrapped_more(flow, 1)


@pytest.mark.slow
async def test_connections_cut_in_the_middle(pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    """Between Shoal and both brokers: fetch answers and produce requests break off, produce answers are lost."""
    source, target = pair.source.nodes[1], pair.target.nodes[1]
    await Topics(pair.source.bootstrap).create(topic, PARTITIONS)
    ports = source.settings.ports.proxied, target.settings.ports.proxied
    async with relay(ports[0]) as from_source, relay(ports[1]) as to_target:
        wiring = Wiring(topics=topic, source=f"127.0.0.2:{ports[0]}", target=f"127.0.0.2:{ports[1]}")
        async with flowing(pair, aliases, tmp_path, wiring) as flow:
            await warm_up(pair, topic, flow)
            async with steady(pair, topic):
                await cut(flow, from_source, "cut_answers", 3)
            await flow.check_faithful(topic, duplicates=0)
            async with steady(pair, topic):
                await cut(flow, to_target, "cut_requests", 3)
            await flow.check_faithful(topic, duplicates=0)
            async with steady(pair, topic):
                await cut(flow, to_target, "swallow_answers", 3)
            # The broker has appended the request, and its answer is lost: one batch, or one plain outer batch of 16 kB,
            # each.
            await flow.check_faithful(topic, duplicates=3 * PARTITIONS * RUN)


@pytest.mark.slow
async def test_connections_of_the_mirror_cut_in_the_middle(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    """Between MM2 and Shoal, and by a restart of Shoal: appended batches are known, so there are no duplicates."""
    await Topics(pair.source.bootstrap).create(topic, PARTITIONS)
    async with flowing(pair, aliases, tmp_path, Wiring(topics=topic, host=RELAY_HOST)) as flow:
        source, target = flow.ports
        async with relay(*source) as from_shoal, relay(*target) as to_shoal:
            to_shoal.marked = MAGIC
            from_shoal.cut_from = to_shoal.cut_from = 300  # the mirror has claim checks, not batches
            await warm_up(pair, topic, flow)
            for faults, what in (
                (from_shoal, "cut_answers"),
                (to_shoal, "cut_requests"),
                (to_shoal, "swallow_answers"),
            ):
                async with steady(pair, topic):
                    for times in (1, 2, 3):
                        await cut_once(flow, faults, what, times)
                await flow.check_faithful(topic, duplicates=0)
            async with steady(pair, topic):
                await wrapped_more(flow)
                await flow.shoal.stop()  # SIGTERM: pending requests are answered first
                await flow.shoal.start()
                await wrapped_more(flow)
            await flow.check_faithful(topic, duplicates=0)
    assert flow.counts("total")["retries_suppressed"] > 0


@pytest.mark.slow
async def test_shoal_is_stopped_many_times_in_the_middle(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    """SIGTERM while envelopes are opened: requests in flight are completed, and the state survives the process."""
    await Topics(pair.source.bootstrap).create(topic, PARTITIONS)
    async with flowing(pair, aliases, tmp_path, Wiring(topics=topic)) as flow:
        await warm_up(pair, topic, flow)
        async with steady(pair, topic):
            for _ in range(8):
                await wrapped_more(flow)
                await flow.shoal.stop()
                await flow.shoal.start()
            await wrapped_more(flow)
        await flow.check_faithful(topic, duplicates=0)


@pytest.mark.slow
async def test_shoal_is_taken_over_many_times_in_the_middle(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    """Neither a record nor an envelope is lost, doubled or left between the two: the mirror never has both."""
    await Topics(pair.source.bootstrap).create(topic, PARTITIONS)
    async with flowing(pair, aliases, tmp_path, Wiring(topics=topic)) as flow:
        await warm_up(pair, topic, flow)
        async with steady(pair, topic):
            for _ in range(6):
                await wrapped_more(flow)
                await flow.shoal.take_over()
            await wrapped_more(flow)
        await flow.check_faithful(topic, duplicates=0)


async def cut_once(flow: Flow, faults: Faults, what: str, times: int) -> None:
    """For the n-th time, while envelopes flow."""
    await wrapped_more(flow, 1)
    setattr(faults, what, 1)
    await until(
        lambda: faults.done.get(what, 0) >= times, within=WITHIN, what=f"{what} to be done", process=flow.shoal.process
    )


@pytest.mark.slow
async def test_a_batch_damaged_on_its_way_is_refused_and_sent_again(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    port = pair.target.nodes[1].settings.ports.proxied
    await Topics(pair.source.bootstrap).create(topic, PARTITIONS)
    wiring = Wiring(topics=topic, tasks=1, target=f"127.0.0.2:{port}")
    async with relay(port) as to_target, flowing(pair, aliases, tmp_path, wiring) as flow:
        await warm_up(pair, topic, flow)
        to_target.flip_requests = 2
        await put(pair, topic, 12_000, seed=2)
        await flow.check(topic)
        assert to_target.done == {"flip_requests": 2}
        await flow.until_said("error 2 (CORRUPT_MESSAGE) for")
        await flow.until_said(f"/{topic}-")
