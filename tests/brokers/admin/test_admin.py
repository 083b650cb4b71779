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

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster
    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

_PER_LISTENER = {
    "requests": "shoal_client_requests_total",
    "from_client": "shoal_client_received_bytes_total",
    "to_client": "shoal_client_sent_bytes_total",
    "opened": "shoal_connections_opened_total",
    "envelopes": "shoal_envelopes_total",
    "wrapped_records": "shoal_wrapped_records_total",
    "wrapped_bytes": "shoal_wrapped_bytes_total",
    "opened_envelopes": "shoal_opened_envelopes_total",
    "unwrapped_records": "shoal_appended_records_total",
    "produce_requests": "shoal_target_produce_requests_total",
    "reconciled_envelopes": "shoal_reconciled_envelopes_total",
}


def assert_equals_total(found: Mapping[tuple[str, ...], float], total: Mapping[str, Any]) -> None:
    """The counters of a scrape and the last line of the log about a listener."""
    listener = total["listener"]
    for field, metric in _PER_LISTENER.items():
        assert found.get((metric, listener), 0) == total[field], field
    for reason, count in total["raw_batches"].items():
        assert found["shoal_raw_batches_total", listener, reason] == count
    for cause, count in total["closed"].items():
        assert found["shoal_connections_closed_total", cause, listener] == count
    by_api = sum(value for key, value in found.items() if key[0] == "shoal_requests_total" and key[2] == listener)
    assert by_api == total["requests"]


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
        found = values(await scrape(admin))
        assert found["shoal_requests_total", "Produce", "p"] > 0
        assert found["shoal_request_bytes_total", "Produce", "request", "p"] > 2_000
        assert found["shoal_request_broker_seconds_count", "Fetch", "p"] > 0
        assert found["shoal_cluster_reachable", "c"] == 1
    (total,) = logged(shoal, "total")
    assert_equals_total(found, total)


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
        found = values(await scrape(admin))
    for total in logged(flow.shoal, "total"):
        assert_equals_total(found, total)
