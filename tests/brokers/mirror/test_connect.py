"""A MirrorSourceConnector on a real Connect worker, configured with what `shoal mirror` prints and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from shoal.scenarios.kafka.content.records import oddities, orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, fill
from shoal.scenarios.kafka.process import until
from shoal.scenarios.kafka.segments import segment_contents
from tests.brokers.mirror.rig.flow import WITHIN, Flow, Wiring, flowing
from tests.brokers.mirror.rig.steady import PARTITIONS, put, steady, warm_up, wrapped_more
from tests.support.kafka.connect import ConnectMirror, connector_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

NAME = "mirror"
PAUSE_S = 75.0  # above evidence-seconds


def printed(flow: Flow) -> dict[str, str]:
    """The Connect form, from the output of this Shoal at start-up."""
    said = flow.shoal.output()
    start = said.index("\n{\n") if not said.startswith("{\n") else -1
    lines: dict[str, str] = json.loads(said[start + 1 : said.index("\n}\n") + 2])
    return lines


async def check_by_shoal(flow: Flow, connector: str) -> str:
    """`curl -s localhost:8083/connectors/mirror | shoal check -`"""
    where = [f"--source-listen=127.0.0.1:{flow.source_port}", f"--target-listen=127.0.0.1:{flow.target_port}"]
    argv = [sys.executable, "-m", "shoal", "check", "-", *where]
    done = await trio.to_thread.run_sync(
        partial(subprocess.run, argv, input=connector, capture_output=True, text=True, check=False)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def test_a_connector_with_the_printed_lines(pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    bootstrap = pair.source.bootstrap
    await Topics(bootstrap).create(topic, 4)
    shoal = ("--form", "connect", "--plain-compression", "zstd")
    wiring = Wiring(topics=topic, mirror=ConnectMirror, shoal=shoal)
    async with flowing(pair, aliases, tmp_path, wiring) as flow:
        worker = flow.running
        assert isinstance(worker, ConnectMirror)
        await worker.configure(NAME, {**connector_config(flow.spec), **printed(flow)})
        for seed, codec in enumerate(("gzip", "lz4", "snappy", "none")):
            layout = Layout(partitions=4, run=100)
            await fill(bootstrap, topic, orders(4_000, seed=seed), layout=layout, compression_type=codec)
            await fill(bootstrap, topic, oddities(400, seed=seed), layout=layout, compression_type=codec)
            await flow.check(topic)
        # Shoal compressed the records that were not wrapped: no other client here writes zstd.
        assert "zstd" not in segment_contents(pair.source.nodes[1].data, topic).codecs
        assert "zstd" in segment_contents(pair.target.nodes[1].data, flow.remote(topic)).codecs
        assert "This mirror can go through Shoal" in await check_by_shoal(flow, await worker.described(NAME))
    counts = flow.counts()
    assert counts["unwrapped_records"] >= counts["wrapped_records"] > 5_000
    proven = {event["client_id"] for event in flow.events("flow-proven")}
    assert proven
    assert proven <= {f"{flow.spec.flow}|{NAME}-{task}|replication-consumer" for task in range(2)}


@pytest.mark.slow
async def test_a_connector_that_is_paused_for_longer_than_envelopes_are_waited_for(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    """While paused, it has envelopes that it has not sent on. It does not fetch either, so nothing is overdue."""
    await Topics(pair.source.bootstrap).create(topic, PARTITIONS)
    wiring = Wiring(topics=topic, mirror=ConnectMirror, shoal=("--form", "connect"))
    async with flowing(pair, aliases, tmp_path, wiring) as flow:
        worker = flow.running
        assert isinstance(worker, ConnectMirror)
        await worker.configure(NAME, {**connector_config(flow.spec), **printed(flow)})
        await warm_up(pair, topic, flow)
        async with steady(pair, topic, 20_000):
            await wrapped_more(flow)
            await worker.put(f"/connectors/{NAME}/pause")
            await until(is_still(flow), within=WITHIN, what="the connector to be paused", poll_s=2.0)
        held = flow.counts()
        assert held["envelopes"] > held["opened_envelopes"], "none is on its way"
        await put(pair, topic, 40_000, seed=1)
        over = partial(passed, trio.current_time() + PAUSE_S)
        await until(over, within=2 * PAUSE_S, what="a long pause")
        assert flow.counts()["opened_envelopes"] == held["opened_envelopes"]
        await worker.put(f"/connectors/{NAME}/resume")
        await flow.check(topic)
        async with steady(pair, topic):
            await wrapped_more(flow)
        await flow.check(topic)
        assert not flow.events("flow-stopped")


def passed(end: float) -> bool:
    return trio.current_time() > end


def is_still(flow: Flow) -> Callable[[], bool]:
    """For `until`: nothing was produced since the last call."""
    before = -1

    def since() -> bool:
        nonlocal before
        same, before = flow.counts()["opened_envelopes"] == before, flow.counts()["opened_envelopes"]
        return same

    return since
