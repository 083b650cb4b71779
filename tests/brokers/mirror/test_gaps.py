"""Source records that MirrorMaker 2 passes over in silence are one event each, with the exact range; else none is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from shoal.proxy.cli.gaps import main
from shoal.scenarios.kafka.content.clients import client_config
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.rig.flow import WITHIN, Flow, Wiring, flowing
from tests.brokers.mirror.rig.steady import PARTITIONS, put, warm_up

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair


def gaps(flow: Flow) -> list[tuple[object, ...]]:
    """(kind, partition, from, to) of each event."""
    keys = ("kind", "partition", "from_offset", "to_offset")
    return [tuple(event[key] for key in keys) for event in flow.events("mirror-gap")]


async def until_gaps(flow: Flow, *wanted: tuple[object, ...]) -> None:
    await until(
        lambda: sorted(gaps(flow)) == sorted(wanted),
        within=WITHIN,
        what=f"gaps {wanted}",
        process=flow.shoal.process,
        poll_s=0.2,
    )


@pytest.mark.slow
async def test_records_deleted_while_the_mirror_and_shoal_are_down(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    topics = Topics(pair.source.bootstrap)
    await topics.create(topic, PARTITIONS)
    async with flowing(pair, aliases, tmp_path, Wiring(topics=topic)) as flow:
        await warm_up(pair, topic, flow)
        mirrored = await topics.ends(topic)
        await topics.delete_records(topic, {1: mirrored[1] - 10})  # behind the mirror: no gap
        await flow.running.stop()
        await put(pair, topic, 4_000, seed=1)
        await flow.shoal.stop()
        await topics.delete_records(topic, {0: mirrored[0] + 700})
        await flow.shoal.start()
        flow.running.restart()
        await until_gaps(flow, ("deleted", 0, mirrored[0], mirrored[0] + 700))
        await flow.check_gap(topic)
        await put(pair, topic, 2_000, seed=2)
        await flow.check_gap(topic)
        assert len(gaps(flow)) == 1


@pytest.mark.slow
async def test_a_mirror_that_reads_committed_records_from_now_on_has_lost_none_of_an_open_transaction(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    """It was given records behind the last stable offset, which is what ListOffsets says is its end now."""
    topics, bootstrap = Topics(pair.source.bootstrap), pair.source.bootstrap
    await topics.create(topic, PARTITIONS)
    producer = Producer(client_config(bootstrap, transactional_id=topic, transaction_timeout_ms=600_000))
    async with flowing(pair, aliases, tmp_path, Wiring(topics=topic)) as flow:
        await warm_up(pair, topic, flow)
        total = sum((await topics.ends(topic)).values())
        producer.init_transactions(WITHIN)
        producer.begin_transaction()
        for number in range(500):
            producer.produce(topic, b"%d" % number, partition=0)
        producer.flush(WITHIN)
        copies = Topics(pair.target.bootstrap)
        await copies.until_total(flow.remote(topic), total + 500, within=WITHIN, process=flow.running.process)
        await flow.running.stop()
        flow.running.restart(flow.with_extra({f"{aliases.source}.consumer.isolation.level": "read_committed"}))
        await flow.running.until_replicating(tasks=2)
        said = len(flow.events("flow"))
        await until(lambda: len(flow.events("flow")) >= said + 30, within=WITHIN, what="several questions for the ends")
        producer.commit_transaction(WITHIN)
        await put(pair, topic, 2_000, seed=2)
        await flow.check_gap(topic)
        assert gaps(flow) == []


@pytest.mark.slow
async def test_a_topic_is_deleted_and_created_again(pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    topics = Topics(pair.source.bootstrap)
    await topics.create(topic, PARTITIONS)
    async with flowing(pair, aliases, tmp_path, Wiring(topics=topic)) as flow:
        await warm_up(pair, topic, flow)
        mirrored = await topics.ends(topic)
        await flow.running.stop()
        await put(pair, topic, 1_000, seed=1)
        ends = await topics.ends(topic)
        await until(
            lambda: flow.events("flow")[-1].get("lag_records") == 1_000, within=WITHIN, what="the lag to be known"
        )
        await topics.delete(topic)
        await topics.create(topic, PARTITIONS)
        await until_gaps(flow, *(("recreated", one, mirrored[one], ends[one]) for one in range(PARTITIONS)))


@pytest.mark.slow
async def test_a_stopped_partition_goes_on_when_its_gap_is_acknowledged(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    topics = Topics(pair.source.bootstrap)
    await topics.create(topic, PARTITIONS)
    async with flowing(pair, aliases, tmp_path, Wiring(topics=topic, shoal=("--on-gap", "stop"))) as flow:
        await warm_up(pair, topic, flow)
        mirrored = await topics.ends(topic)
        await flow.running.stop()
        await put(pair, topic, 4_000, seed=1)
        await topics.delete_records(topic, {0: mirrored[0] + 700})
        flow.running.restart()
        await until_gaps(flow, ("deleted", 0, mirrored[0], mirrored[0] + 700))
        copies = Topics(pair.target.bootstrap)
        remote = flow.remote(topic)
        await copies.until_total(remote, sum(mirrored.values()) + 2_000, within=WITHIN, process=flow.running.process)
        await flow.shoal.stop()
        await flow.shoal.start()
        await put(pair, topic, 2_000, seed=2)
        await copies.until_total(remote, sum(mirrored.values()) + 3_000, within=WITHIN, process=flow.running.process)
        assert (await copies.ends(remote))[0] == mirrored[0], "the stopped partition went on"
        lines = flow.running.log.read_text().count("\n")
        print(lines, "lines of the mirror")
        main(["--state-dir", str(tmp_path / "state"), "--acknowledge", f"{topic}-0"])
        await flow.check_gap(topic)
        assert len(gaps(flow)) == 1
