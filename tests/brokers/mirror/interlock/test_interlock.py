"""Wrong wiring: the interlock keeps envelopes out of all topics, and logs why it does not wrap."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import OFFSET_BEGINNING, Message, TopicPartition

from shoal.scenarios.kafka.content.compare import first_difference
from shoal.scenarios.kafka.content.copies import read_copy
from shoal.scenarios.kafka.content.reading import read_from
from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, fill
from shoal.scenarios.kafka.ports import free_port
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.rig.copier import Copier
from tests.brokers.mirror.rig.flow import WITHIN, Flow, Wiring, flowing

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

RUN = 100


async def until_told(flow: Flow, kind: str, *, times: int = 1) -> list[str]:
    """The interlock's log lines of this kind, when there are enough."""
    await until(
        lambda: len(flow.events(kind)) >= times,
        within=WITHIN,
        what=f"shoal to log {kind!r}",
        process=flow.shoal.process,
        poll_s=0.2,
    )
    return [str(event["message"]) for event in flow.events(kind)]


def envelopes(flow: Flow) -> tuple[int, int]:
    """-> envelopes sent by the source listener and opened by the target listener, after Shoal has exited."""
    source, target = flow.events("total")
    return int(str(source["envelopes"])), int(str(target["opened_envelopes"]))


async def put(pair: Pair, topic: str, records: int, *, seed: int) -> None:
    layout = Layout(run=RUN)
    await fill(pair.source.bootstrap, topic, orders(records, seed=seed), layout=layout, compression_type="zstd")


async def test_a_producer_that_goes_elsewhere(pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    """The wrong address; the right one; then directly to the brokers, bypassing Shoal."""
    setting = f"{aliases.target}.producer.bootstrap.servers"
    await Topics(pair.source.bootstrap).create(topic, 1)
    await put(pair, topic, 3_000, seed=1)
    async with flowing(
        pair, aliases, tmp_path, Wiring(topics=topic, tasks=1, producer=f"127.0.0.1:{free_port()}")
    ) as flow:
        (told,) = await until_told(flow, "flow-without-evidence")
        assert f"no record of {topic} " in told
        assert f"Does {setting} " in told
        assert f"127.0.0.1:{flow.target_port}" in told
        assert flow.counts()["envelopes"] == 0
        assert await Topics(pair.target.bootstrap).total(flow.remote(topic)) == 0

        flow.running.kill()
        flow.running.restart(flow.with_extra({setting: f"127.0.0.1:{flow.target_port}"}))
        await flow.check(topic)
        await put(pair, topic, 3_000, seed=2)
        await flow.check(topic)

        flow.running.kill()
        flow.running.restart(flow.with_extra({setting: pair.target.bootstrap}))
        await put(pair, topic, 3_000, seed=3)
        counts = await flow.check_faithful(topic, duplicates=6_000)
        assert counts.source == 9_000
        # Its task may have been restarted: then only records that no reader has received are evidence.
        await put(pair, topic, 300, seed=4)
        assert f"Does {setting} " in (await until_told(flow, "flow-without-evidence", times=2))[1]
        assert await pair.envelopes() == []
    handed_out, opened = envelopes(flow)
    assert 0 < handed_out <= opened


@pytest.mark.slow
async def test_another_tool_that_copies_the_same_records(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    """MM2 reads through Shoal and produces directly; another tool reads directly and produces through Shoal, a moment
    later."""
    await Topics(pair.source.bootstrap).create(topic, 1)
    wiring = Wiring(topics=topic, tasks=1, producer=pair.target.bootstrap)
    async with flowing(pair, aliases, tmp_path, wiring) as flow:
        remote, through_shoal = flow.remote(topic), f"127.0.0.1:{flow.target_port}"
        await Topics(pair.target.bootstrap).create(remote, 1)
        with Copier(source=pair.source.bootstrap, topic=topic, target=through_shoal, copy=remote, delay=0.6):
            seeds = count(1)

            async def has_strayed() -> bool:
                await put(pair, topic, 300, seed=next(seeds))
                return bool(flow.events("flow-strayed"))

            await until(has_strayed, within=WITHIN, what="a record with a token to stray", poll_s=0.5)
        (told,) = (str(event["message"]) for event in flow.events("flow-strayed"))
        records = 300 * (next(seeds) - 1)
        await Topics(pair.target.bootstrap).until_total(
            remote, records + 1, within=WITHIN, process=flow.running.process
        )
        assert await pair.envelopes() == []
        strayed: list[str] = []

        def look(messages: list[Message]) -> None:
            strayed.extend(
                name for message in messages for name in dict(message.headers() or ()) if "interlock" in name
            )

        await read_from(pair.target.bootstrap, [TopicPartition(remote, 0, OFFSET_BEGINNING)], look)
        assert len(strayed) == 1
        assert f"{topic}-0 at offset " in told
    assert flow.counts()["envelopes"] == 0
    assert not flow.events("flow-proven")


@pytest.mark.slow
async def test_a_transform_that_changes_values(pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    """A transform needs records, so none may be wrapped."""
    await Topics(pair.source.bootstrap).create(topic, 1)
    await put(pair, topic, 3_000, seed=1)
    connector = f"{aliases.source}->{aliases.target}."
    transform = {
        f"{connector}transforms": "hoist",
        f"{connector}transforms.hoist.type": "org.apache.kafka.connect.transforms.HoistField$Value",
        f"{connector}transforms.hoist.field": "copied",
        f"{connector}value.converter": "org.apache.kafka.connect.json.JsonConverter",
        f"{connector}value.converter.schemas.enable": "false",
    }
    async with flowing(pair, aliases, tmp_path, Wiring(topics=topic, tasks=1, extra=transform)) as flow:
        target = Topics(pair.target.bootstrap)
        await target.until_total(flow.remote(topic), 3_000, within=WITHIN, process=flow.running.process)
        await put(pair, topic, 3_000, seed=2)
        await target.until_total(flow.remote(topic), 6_000, within=WITHIN, process=flow.running.process)
        (told,) = await until_told(flow, "flow-without-evidence")
        assert f"records for {topic} come to the target listener" in told
        assert "transform (SMT)" in told
        assert await pair.envelopes() == []
        theirs = await read_copy(pair.target.bootstrap, flow.remote(topic))
        assert ((await theirs.contents(0, 5_999)).value or b"").startswith(b'{"copied":"')
    assert flow.counts()["envelopes"] == 0


@pytest.mark.slow
async def test_two_flows_of_which_only_one_goes_through_shoal(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    """One MM2 copies to two targets, and both consumers read through Shoal: only the flow whose producer uses Shoal
    gets envelopes."""
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
        # Otherwise a copy of the copy of ... of the second target's heartbeats.
        "heartbeats.replication.enabled": "false",
    }
    async with flowing(
        pair, aliases, tmp_path, Wiring(topics=topic, tasks=1, extra=second, other_targets=(other,))
    ) as flow:
        copies = Topics(pair.source.bootstrap)
        for seed in range(2, 5):
            await put(pair, topic, 6_000, seed=seed)
        await flow.check(topic)
        await copies.until_total(flow.remote(topic), 24_000, within=WITHIN, process=flow.running.process)
        ours = await read_copy(pair.source.bootstrap, topic)
        assert await first_difference(ours, await read_copy(pair.source.bootstrap, flow.remote(topic))) is None
        await put(pair, topic, 6_000, seed=9)
        await flow.check(topic)
        await flow.until_said(f"Does {other}.producer.bootstrap.servers ")
        assert await pair.envelopes() == []
    assert all(
        f"{aliases.source}->{aliases.target}|" in str(event["client_id"]) for event in flow.events("flow-proven")
    )
    handed_out, opened = envelopes(flow)
    assert 0 < handed_out <= opened


@pytest.mark.slow
async def test_two_sources_one_shoal_one_target(
    pair: Pair, pair_39: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    """Two wrapping listeners have the same pair: both flows are proven and wrapped, each by its own records."""
    second, theirs = f"{aliases.source}x", pair_39.source.bootstrap
    for bootstrap in (pair.source.bootstrap, theirs):
        await Topics(bootstrap).create(topic, 1)
    extra = {
        "clusters": f"{aliases.source}, {aliases.target}, {second}",
        f"{second}.bootstrap.servers": theirs,
        f"{second}->{aliases.target}.enabled": "true",
        f"{second}->{aliases.target}.topics": topic,
    }
    wiring = Wiring(topics=topic, tasks=1, second_source=theirs, extra=extra)
    async with flowing(
        pair,
        aliases,
        tmp_path,
        wiring,
        more=lambda flow: {f"{second}.consumer.bootstrap.servers": f"127.0.0.1:{flow.second_port}"},
    ) as flow:
        copy = f"{second}.{topic}"
        for seed in range(1, 5):
            await put(pair, topic, 6_000, seed=seed)
            layout = Layout(run=RUN)
            await fill(theirs, topic, orders(6_000, seed=10 + seed), layout=layout, compression_type="zstd")
            await flow.check(topic)
            await Topics(pair.target.bootstrap).until_total(
                copy, 6_000 * seed, within=WITHIN, process=flow.running.process
            )
        ours = await read_copy(theirs, topic)
        assert await first_difference(ours, await read_copy(pair.target.bootstrap, copy)) is None
        assert await pair.envelopes() == []
    proven = {str(event["client_id"]).partition("->")[0] for event in flow.events("flow-proven")}
    assert proven == {aliases.source, second}
    assert {str(event["listener"]) for event in flow.events("total") if event.get("envelopes")} == {"source", "second"}
    assert not flow.events("flow-stopped")


@pytest.mark.slow
async def test_two_processes_of_shoal_of_which_the_target_one_dies(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    """Explicitly unpaired. While the other process is dead the mirror waits; nothing bypasses it."""
    await Topics(pair.source.bootstrap).create(topic, 1)
    await put(pair, topic, 6_000, seed=1)
    async with flowing(pair, aliases, tmp_path, Wiring(topics=topic, tasks=1, separate=True)) as flow:
        await flow.until_wrapped(1)
        await flow.check(topic)
        flow.target_shoal.kill()
        before = flow.counts()["wrapped_records"]
        await put(pair, topic, 6_000, seed=2)
        await flow.until_wrapped(before + 1)  # the mirror holds envelopes, and cannot deliver them
        assert await pair.envelopes() == []
        assert await Topics(pair.target.bootstrap).total(flow.remote(topic)) == 6_000
        await flow.target_shoal.start()
        await flow.check_faithful(topic, duplicates=512 * 1024 // 9_000 * RUN)
