"""A Shoal with everything that has metrics, and clients for each part of it.

source ── wrap ── MM2 ── unwrap ── target (with the agent)     a topic of 200 partitions
apps   ── coalescing and TLS ── target                         eight producers, and transactions of clients that leave
old    ── legacy ── target                                     a client of Kafka 0.9, both ways
a traffic index and a raw capture
"""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import trio
from confluent_kafka import Consumer, Producer

from shoal.scenarios.kafka.broker import Cluster, ClusterSpec, running_cluster
from shoal.scenarios.kafka.content.clients import client_config
from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, fill
from shoal.scenarios.kafka.mirror import Mirror, MirrorSpec
from shoal.scenarios.kafka.security.certificates import Authority
from tests.support.shoal_process import ShoalProcess, free_port_block, running_shoal, write_toml

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.ops.stage import Stage

__all__ = ["PARTITIONS", "TOPIC", "Scene", "running_scene"]

PARTITIONS: Final = 200
TOPIC, EVENTS = "orders", "events"
_PORTS: Final = 5  # of a listener
_APPS: Final = 8
_EVENT: Final = b"x" * 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    shoal: ShoalProcess
    admin: int
    ports: dict[str, int]  # of the listeners, by name
    source: Cluster
    target: Cluster
    mirror: Mirror
    authority: Authority

    async def put(self, records: int, *, seed: int) -> None:
        """To all partitions of the mirrored topic, in batches of 100 records."""
        layout = Layout(partitions=PARTITIONS, run=100)
        bootstrap = self.source.bootstrap
        await fill(bootstrap, TOPIC, orders(records, seed=seed), layout=layout, compression_type="zstd")

    async def until_mirrored(self) -> None:
        total = await Topics(self.source.bootstrap).total(TOPIC)
        await Topics(self.target.bootstrap).until_total(f"A.{TOPIC}", total, within=120, process=self.mirror.process)

    @asynccontextmanager
    async def clients(self) -> AsyncIterator[None]:
        """Applications and an old client work during the block."""
        over = trio.Event()
        apps = client_config(f"localhost:{self.ports['apps']}", linger_ms=5, acks="all")
        apps |= {"security.protocol": "ssl", "ssl.ca.location": str(self.authority.certificate)}
        old = client_config(
            f"127.0.0.1:{self.ports['old']}", api_version_request=False, broker_version_fallback="0.9.0.1"
        )
        async with trio.open_nursery() as nursery:
            for _ in range(_APPS):
                nursery.start_soon(_until, over, partial(_produce, apps))
            nursery.start_soon(_until, over, partial(_produce, {**apps, "acks": "0"}))
            nursery.start_soon(_until, over, partial(_transactions, apps))  # are not coalesced
            nursery.start_soon(_until, over, partial(_produce, old))
            nursery.start_soon(_until, over, partial(_consume, old))
            yield
            over.set()


async def _until(over: trio.Event, work: Callable[[Callable[[], bool]], None]) -> None:
    await trio.to_thread.run_sync(work, over.is_set)


def _produce(settings: dict[str, str | int | float | bool], is_over: Callable[[], bool]) -> None:
    producer = Producer(settings)
    while not is_over():
        producer.produce(EVENTS, _EVENT)
        producer.poll(0)
        time.sleep(0.02)
    producer.flush(10)


def _transactions(settings: dict[str, str | int | float | bool], is_over: Callable[[], bool]) -> None:
    """Each of a new client."""
    while not is_over():
        producer = Producer({**settings, "transactional.id": "app"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(EVENTS, _EVENT)
        producer.commit_transaction(30)
        time.sleep(0.5)


def _consume(settings: dict[str, str | int | float | bool], is_over: Callable[[], bool]) -> None:
    consumer = Consumer({**settings, "group.id": "old", "auto.offset.reset": "earliest"})
    consumer.subscribe([EVENTS])
    while not is_over():
        consumer.consume(1_000, timeout=0.2)
    consumer.close()


@asynccontextmanager
async def running_scene(stage: Stage) -> AsyncIterator[Scene]:
    """It mirrors, and has caught up."""
    agent = ClusterSpec(version=stage.kafka, agent=True)
    async with (
        running_cluster(stage.work / "source", ClusterSpec(version=stage.kafka)) as source,
        running_cluster(stage.work / "target", agent) as target,
    ):
        await Topics(source.bootstrap).create(TOPIC, PARTITIONS)
        await Topics(target.bootstrap).create(EVENTS, 4)
        authority = Authority.create(stage.work / "ca")
        admin = free_port_block(1)
        ports = {name: free_port_block(_PORTS) for name in ("source", "target", "apps", "old")}
        config = _config(stage.work, source, target, authority, admin, ports)
        process = ShoalProcess(["run", "-c", str(config)], work=stage.work, ports=[*ports.values(), admin])
        async with running_shoal(process):
            spec = MirrorSpec(
                source=source.bootstrap,
                target=target.bootstrap,
                consumer=f"127.0.0.1:{ports['source']}",
                producer=f"127.0.0.1:{ports['target']}",
                topics=TOPIC,
                tasks=2,
            )
            mirror = await Mirror.start(stage.work, spec)
            try:
                yield Scene(
                    shoal=process,
                    admin=admin,
                    ports=ports,
                    source=source,
                    target=target,
                    mirror=mirror,
                    authority=authority,
                )
            finally:
                mirror.kill()


def _config(
    work: Path, source: Cluster, target: Cluster, authority: Authority, admin: int, ports: dict[str, int]
) -> Path:
    capture = work / "capture"
    capture.mkdir()
    server = authority.server("localhost", "127.0.0.1")
    kinds: dict[str, dict[str, object]] = {
        "source": {"cluster": "source", "mode": "wrap", "pair": "target"},
        "target": {"cluster": "target", "mode": "unwrap"},
        "apps": {
            "cluster": "target",
            "coalesce": True,
            "tls": {"certificate": str(server.certificate), "key": str(server.key)},
        },
        "old": {"cluster": "target", "legacy": True},
    }
    listeners = [
        {
            "name": name,
            "listen": f"127.0.0.1:{first}",
            "ports": f"{first + 1}-{first + _PORTS - 1}",
            "advertise": "localhost",
            **kinds[name],
        }
        for name, first in ports.items()
    ]
    document = {
        "state-dir": str(work / "state"),
        "admin": {"listen": f"127.0.0.1:{admin}", "topic-labels": True},
        "log": {"format": "json", "report-every": 1},
        "capture": {"directory": str(capture), "raw": {"apis": ["Produce"]}},
        "cluster": [
            {"name": "source", "bootstrap": source.bootstrap},
            {"name": "target", "bootstrap": target.bootstrap},
        ],
        "listener": listeners,
    }
    return write_toml(work / "shoal.toml", document)
