"""The admin listener of a Shoal process, in front of real brokers with real clients."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from shoal.scenarios.kafka.content.copies import read_copy
from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import fill
from tests.brokers.mirror.rig.flow import Wiring, flowing, logged
from tests.support.admin import ask, get_json, scrape, values
from tests.support.shoal_process import ShoalProcess, free_port_block, running_shoal, write_toml
from tests.support.totals import differences, scrape_without_clients

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster
    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair


async def until_status(port: int, path: str, wanted: int, within: float = 60.0) -> Any:
    with trio.fail_after(within):
        while True:
            status, body = await ask(port, path)
            if status == wanted:
                return json.loads(body)
            await trio.sleep(0.2)


@asynccontextmanager
async def plain_shoal(cluster: Cluster, work: Path) -> AsyncIterator[tuple[ShoalProcess, int, int]]:
    """-> Shoal, its bootstrap port, and its admin port."""
    port, admin = free_port_block(4), free_port_block(1)
    listener = {"name": "p", "cluster": "c", "listen": f"127.0.0.1:{port}", "ports": f"{port + 1}-{port + 3}"}
    config = write_toml(
        work / "shoal.toml",
        {
            "admin": {"listen": f"127.0.0.1:{admin}"},
            "log": {"format": "json"},
            "cluster": [{"name": "c", "bootstrap": cluster.bootstrap}],
            "listener": [listener],
        },
    )
    async with running_shoal(ShoalProcess(["run", "-c", str(config)], work=work, ports=[port, admin])) as shoal:
        yield shoal, port, admin


async def test_what_clients_do_is_counted(pair: Pair, topic: str, tmp_path: Path) -> None:
    await Topics(pair.source.bootstrap).create(topic, 1)
    async with plain_shoal(pair.source, tmp_path) as (shoal, port, admin):
        await fill(f"127.0.0.1:{port}", topic, orders(2_000), compression_type="zstd")
        assert (await read_copy(f"127.0.0.1:{port}", topic)).records == 2_000
        assert (await get_json(admin, "/readyz"))["ready"] is True
        found = await scrape_without_clients(admin)
        assert found["shoal_requests_total", "Produce", "p"] > 0
        assert found["shoal_request_bytes_total", "Produce", "request", "p"] > 2_000
        assert found["shoal_request_broker_seconds_count", "Fetch", "p"] > 0
        assert found["shoal_cluster_reachable", "c"] == 1
    (total,) = logged(shoal, "total")
    assert differences(found, total) == []


@pytest.mark.slow
async def test_a_broker_that_is_gone_is_noticed(pair: Pair, tmp_path: Path) -> None:
    async with plain_shoal(pair.source, tmp_path) as (_, _, admin):
        assert (await until_status(admin, "/readyz", 200))["ready"] is True
        for node in pair.source.nodes.values():
            node.kill()
        found = await until_status(admin, "/readyz", 503)
        assert "cannot reach the broker" in found["clusters"]["c"]
        assert found["listeners"] == {"p": None}
        assert (await ask(admin, "/livez"))[0] == 200
        await pair.source.revive()
        assert (await until_status(admin, "/readyz", 200))["clusters"] == {"c": None}


@pytest.mark.slow
async def test_a_mirror_is_shown_and_counted(pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    admin = free_port_block(1)
    await Topics(pair.source.bootstrap).create(topic, 1)
    await fill(pair.source.bootstrap, topic, orders(50_000), compression_type="zstd")
    async with flowing(
        pair, aliases, tmp_path, Wiring(topics=topic, tasks=1, shoal=("--admin", f"127.0.0.1:{admin}"))
    ) as flow:
        await flow.check(topic)
        await flow.until_opened()
        found = values(await scrape(admin))
        assert found["shoal_interlock_topics", "source", "wrapped"] == 1
        source = next(one for one in (await get_json(admin, "/status"))["listeners"] if one["name"] == "source")
        (mirror,) = source["flows"]
        assert mirror["client_id"].endswith("replication-consumer")
        assert [(one["topic"], one["state"], one["why"]) for one in mirror["topics"]] == [(topic, "wrapped", None)]
        assert await flow.running.stop()
        last = await scrape_without_clients(admin)
    for total in logged(flow.shoal, "total"):
        assert differences(last, total) == []
