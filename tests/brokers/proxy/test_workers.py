"""Two workers before three real brokers: one is killed while 20 producers and some consumers work."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from dataclasses import dataclass, field
from math import inf
from threading import Event
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import pytest
import trio
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from shoal.scenarios.kafka.content.clients import client_config
from shoal.scenarios.kafka.content.reading import read_all
from shoal.scenarios.kafka.ports import LOOPBACK
from shoal.scenarios.kafka.process import until
from tests.brokers.proxy.rig.data import new_topic
from tests.support.admin import get_json, scrape, values
from tests.support.shoal_process import (
    ShoalProcess,
    connected_at,
    free_port_block,
    listening_ports,
    running_shoal,
    write_toml,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from confluent_kafka import Message

    from shoal.scenarios.kafka.broker import Cluster

pytestmark = pytest.mark.kafka

_PRODUCERS, _PARTITIONS = 20, 3
_WITHIN = 120.0
_TRIES = 600
_WAITING = 10 * _PRODUCERS  # records that are not acknowledged: on a slow machine, more would only wait longer
_LEAST = 10  # connections of the busiest of two workers: each of the producers has several


@dataclass
class Traffic:
    port: int
    topic: str
    enough: Event = field(default_factory=Event)
    sent: list[bytes] = field(default_factory=list)
    acknowledged: int = 0
    errors: set[str] = field(default_factory=set)
    read: Counter[bytes] = field(default_factory=Counter)

    @property
    def _bootstrap(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def produce(self) -> None:
        def delivered(error: object, message: object) -> None:
            if error is None:
                self.acknowledged += 1
            else:
                self.errors.add(str(error))

        settings = client_config(self._bootstrap, linger_ms=0, enable_idempotence=True)
        producers = [Producer({**settings, "client.id": f"p-{number}"}) for number in range(_PRODUCERS)]
        while not self.enough.is_set():
            for number, producer in enumerate(producers):
                if len(self.sent) - self.acknowledged < _WAITING:
                    value = b"%d:%d" % (number, len(self.sent))
                    producer.produce(self.topic, value, on_delivery=delivered)
                    self.sent.append(value)
                producer.poll(0)
            sleep(0.01)
        for producer in producers:
            producer.flush(_WITHIN)

    def consume(self, partition: int) -> None:
        settings = client_config(self._bootstrap, group_id="readers", enable_auto_commit=False)
        consumer = Consumer({**settings, "client.id": f"c-{partition}"})
        consumer.assign([TopicPartition(self.topic, partition, OFFSET_BEGINNING)])
        until_read = inf  # the last of the records
        while monotonic() < until_read and (not self.enough.is_set() or self.read.total() < len(self.sent)):
            if self.enough.is_set() and until_read == inf:
                until_read = monotonic() + _WITHIN
            for message in consumer.consume(100, 0.2):
                assert message.error() is None
                self.read[message.value() or b""] += 1
        consumer.close()


async def kill_busiest(admin: int, ports: Collection[int]) -> tuple[int, Mapping[tuple[str, ...], float]]:
    """Kill the worker with most connections as soon as the supervisor knows them all; -> its number, the counters.

    It is stopped while the kernel is asked: a connection that the supervisor has not heard of can't be counted after
    its end. Which worker has most depends on who was late when the clients came.
    """
    seen: object = None
    for _ in range(_TRIES):
        status, found = await get_json(admin, "/status"), values(await scrape(admin))
        workers: list[dict[str, Any]] = status["workers"]
        if all(worker["state"] == "serving" and worker["answers"] for worker in workers):
            known = {number: found["shoal_worker_connections", str(number)] for number in range(1, len(workers) + 1)}
            busiest = max(known, key=known.__getitem__)
            pid = workers[busiest - 1]["pid"]
            os.kill(pid, signal.SIGSTOP)
            if connected_at(pid, ports) == known[busiest] >= _LEAST:
                os.kill(pid, signal.SIGKILL)
                return busiest, found
            seen = known, connected_at(pid, ports)
            os.kill(pid, signal.SIGCONT)
        await trio.sleep(0.1)
    pytest.fail(f"the supervisor never knew all connections of the busiest worker: {seen}")


def closed(found: Mapping[tuple[str, ...], float]) -> Counter[str]:
    """By cause, without those that clients themselves have closed, with or without unread answers."""
    causes = {key[1]: int(value) for key, value in found.items() if key[0] == "shoal_connections_closed_total"}
    return Counter({cause: count for cause, count in causes.items() if cause not in ("client_closed", "client_lost")})


def saved_ports(state: Path) -> set[int]:
    return {node["port"] for node in json.loads(state.read_text())["nodes"].values()}


async def kill_one(shoal: ShoalProcess, traffic: Traffic, admin: int, ports: Collection[int], state: Path) -> None:
    await until(lambda: traffic.read.total() > 10 * _PRODUCERS, within=_WITHIN, what="records")
    before_pids = [worker["pid"] for worker in (await get_json(admin, "/status"))["workers"]]
    used = {traffic.port, *saved_ports(state)}
    assert all(listening_ports(pid) == used for pid in before_pids)

    number, before = await kill_busiest(admin, ports)
    await until(lambda: f"worker {number} (process" in shoal.output(), within=_WITHIN, what="its end")
    count = traffic.acknowledged
    await until(lambda: traffic.acknowledged > count + 20 * _PRODUCERS, within=_WITHIN, what="records")
    rows: list[dict[str, Any]] = []
    after: Mapping[tuple[str, ...], float] = {}

    async def both_serve() -> bool:
        nonlocal rows, after
        rows, after = (await get_json(admin, "/status"))["workers"], values(await scrape(admin))
        return all(worker["state"] == "serving" and worker["answers"] for worker in rows)

    await until(both_serve, within=_WITHIN, what="both workers to serve", poll_s=0.1)
    kept = [row["pid"] == pid for row, pid in zip(rows, before_pids, strict=True)]
    assert kept == [one != number for one in (1, 2)]
    assert closed(after) - closed(before) == Counter({"internal": before["shoal_worker_connections", str(number)]})
    assert all(listening_ports(row["pid"]) == used for row in rows)
    produced = "shoal_requests_total", "Produce", "l"
    assert after[produced] > before[produced]


@pytest.mark.parametrize(
    "kind", [pytest.param({}, marks=pytest.mark.slow), {"coalesce": True}], ids=["plain", "coalescing"]
)
async def test_a_killed_worker_costs_its_connections_and_no_record(
    kind: dict[str, object], brokers: Cluster, tmp_path: Path
) -> None:
    first = free_port_block(8)
    admin, ports = first + 7, range(first, first + 6)
    listener = {"name": "l", "cluster": "c", "listen": f"{LOOPBACK}:{first}", "ports": f"{first + 1}-{first + 5}"}
    document = {
        "workers": 2,
        "state-dir": str(tmp_path / "state"),
        "cluster": [{"name": "c", "bootstrap": brokers.bootstrap.split(",")}],
        "listener": [{**listener, **kind}],
        "admin": {"listen": f"{LOOPBACK}:{admin}"},
    }
    toml = write_toml(tmp_path / "shoal.toml", document)
    traffic = Traffic(first, new_topic(brokers, [[1], [2], [3]]))
    shoal = ShoalProcess(["run", "-c", str(toml)], work=tmp_path, ports=[first, admin])
    async with running_shoal(shoal), trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, traffic.produce)
        for partition in range(_PARTITIONS):
            nursery.start_soon(trio.to_thread.run_sync, traffic.consume, partition)
        try:
            await kill_one(shoal, traffic, admin, ports, tmp_path / "state" / "l.json")
        finally:
            traffic.enough.set()
    assert not traffic.errors
    assert traffic.acknowledged == len(traffic.sent)
    assert traffic.read == Counter(traffic.sent)

    stored: Counter[bytes] = Counter()

    def take(messages: list[Message]) -> None:
        stored.update(message.value() or b"" for message in messages)

    await read_all(brokers.bootstrap, traffic.topic, take)
    assert stored == Counter(traffic.sent)
