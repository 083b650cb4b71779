"""Wired wrongly: the interlock keeps every envelope out of every topic, and says why it does not wrap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.scenarios.kafka.compare import first_difference
from shoal.scenarios.kafka.copies import read_copy
from shoal.scenarios.kafka.records import orders
from shoal.scenarios.kafka.topics import Topics
from shoal.scenarios.kafka.traffic import Layout, fill
from tests.mirror.flow import WITHIN, Wiring, flowing

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Aliases
    from tests.kafka_clusters import Pair

RUN = 100


async def put(pair: Pair, topic: str, records: int, *, seed: int) -> None:
    layout = Layout(run=RUN)
    await fill(pair.source.bootstrap, topic, orders(records, seed=seed), layout=layout, compression_type="zstd")


async def test_a_producer_that_does_not_go_through_shoal(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    """The target listener is there, and the mirror produces straight to the brokers."""
    await Topics(pair.source.bootstrap).create(topic, 1)
    await put(pair, topic, 6_000, seed=1)
    wiring = Wiring(topics=topic, tasks=1, producer=pair.target.bootstrap)
    async with flowing(pair, aliases, tmp_path, wiring) as flow:
        await flow.check(topic)
        await put(pair, topic, 6_000, seed=2)
        await flow.check(topic)
        await flow.until_said("bootstrap.servers")
    assert flow.counts()["envelopes"] == 0
    assert flow.events("flow")


async def test_a_transform_that_changes_values(pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    """A transform that adds a header to every record works on records, so none may be wrapped."""
    await Topics(pair.source.bootstrap).create(topic, 1)
    await put(pair, topic, 3_000, seed=1)
    flow_prefix = f"{aliases.source}->{aliases.target}."
    transform = {
        f"{flow_prefix}transforms": "mark",
        f"{flow_prefix}transforms.mark.type": "org.apache.kafka.connect.transforms.InsertHeader",
        f"{flow_prefix}transforms.mark.header": "copied",
        f"{flow_prefix}transforms.mark.value.literal": "yes",
    }
    async with flowing(pair, aliases, tmp_path, Wiring(topics=topic, tasks=1, extra=transform)) as flow:
        target = Topics(pair.target.bootstrap)
        await target.until_total(flow.remote(topic), 3_000, within=WITHIN, process=flow.running.process)
        await put(pair, topic, 3_000, seed=2)
        await target.until_total(flow.remote(topic), 6_000, within=WITHIN, process=flow.running.process)
        await flow.until_said("transform (SMT)")
        assert await pair.envelopes() == []
        theirs = await read_copy(pair.target.bootstrap, flow.remote(topic))
        assert "copied" in str(await theirs.contents(0, 5_999))
    assert flow.counts()["envelopes"] == 0


async def test_two_flows_of_which_only_one_goes_through_shoal(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    """One MM2 copies to two targets, and both consumers read through Shoal: only the flow whose producer does, gets envelopes."""
    other = f"{aliases.target}x"
    await Topics(pair.source.bootstrap).create(topic, 1)
    await put(pair, topic, 6_000, seed=1)
    second = {
        "clusters": f"{aliases.source}, {aliases.target}, {other}",
        f"{other}.bootstrap.servers": pair.source.bootstrap,  # a copy beside the original, under another name
        f"{aliases.source}->{other}.enabled": "true",
        f"{aliases.source}->{other}.topics": topic,
        f"{other}.producer.compression.type": "lz4",
        f"{other}.plugin.discovery": "service_load",
    }
    async with flowing(
        pair, aliases, tmp_path, Wiring(topics=topic, tasks=1, extra=second, other_targets=(other,))
    ) as flow:
        copies = Topics(pair.source.bootstrap)
        for seed in range(2, 8):
            await put(pair, topic, 6_000, seed=seed)
        await flow.check(topic)
        await copies.until_total(flow.remote(topic), 42_000, within=WITHIN, process=flow.running.process)
        ours = await read_copy(pair.source.bootstrap, topic)
        assert await first_difference(ours, await read_copy(pair.source.bootstrap, flow.remote(topic))) is None
        await put(pair, topic, 6_000, seed=9)
        await flow.check(topic)
        assert await pair.envelopes() == []
    proven = [str(event) for event in flow.events("proven") if f"{aliases.source}->{other}|" in str(event)]
    assert proven == []


async def test_a_target_listener_that_stops_while_running(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    """The mirror is moved to the brokers, behind Shoal's back, while it is at work with envelopes."""
    await Topics(pair.source.bootstrap).create(topic, 1)
    await put(pair, topic, 6_000, seed=1)
    async with flowing(pair, aliases, tmp_path, Wiring(topics=topic, tasks=1)) as flow:
        await flow.until_wrapped(1)
        await flow.check(topic)
        wrapped = flow.counts()["wrapped_records"]
        flow.running.kill()
        direct = {f"{aliases.target}.producer.bootstrap.servers": pair.target.bootstrap}
        flow.running.restart(flow.with_extra(direct))
        await put(pair, topic, 6_000, seed=2)
        counts = await flow.check_faithful(topic, duplicates=6_000)
        assert counts.source == 12_000
        assert flow.counts()["wrapped_records"] == wrapped


async def test_two_processes_of_shoal_of_which_the_target_one_dies(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    """Unpaired by explicit setting. While the other process is dead the mirror waits; nothing goes around it."""
    await Topics(pair.source.bootstrap).create(topic, 1)
    await put(pair, topic, 6_000, seed=1)
    async with flowing(pair, aliases, tmp_path, Wiring(topics=topic, tasks=1, separate=True)) as flow:
        await flow.until_wrapped(1)
        await flow.check(topic)
        flow.target_shoal.kill()
        await put(pair, topic, 6_000, seed=2)
        assert await pair.envelopes() == []
        await flow.target_shoal.start()
        await flow.check_faithful(topic, duplicates=512 * 1024 // 9_000 * RUN)
