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


async def until_known(
    admin: int, ports: Collection[int], least: int = 0, *, kill: int = 0
) -> tuple[list[dict[str, Any]], Mapping[tuple[str, ...], float]]:
    """Until the supervisor knows all connections of all workers, `least` each; -> the workers, the counters.

    `kill`: the worker that is killed then. It is stopped while the kernel is asked: a connection that the supervisor
    has not heard of can't be counted after its end.
    """
    with trio.fail_after(_WITHIN):
        while True:
            workers: list[dict[str, Any]] = (await get_json(admin, "/status"))["workers"]
            found = values(await scrape(admin))
            if all(worker["state"] == "serving" and worker["answers"] for worker in workers):
                victim = workers[kill - 1]["pid"]
                if kill:
                    os.kill(victim, signal.SIGSTOP)
                if all(
                    connected_at(worker["pid"], ports) == found["shoal_worker_connections", str(number)] >= least
                    for number, worker in enumerate(workers, 1)
                ):
                    if kill:
                        os.kill(victim, signal.SIGKILL)
                    return workers, found
                if kill:
                    os.kill(victim, signal.SIGCONT)
            await trio.sleep(0.1)


def closed(found: Mapping[tuple[str, ...], float]) -> Counter[str]:
    """By cause, without those that clients themselves have closed, with or without unread answers."""
    causes = {key[1]: int(value) for key, value in found.items() if key[0] == "shoal_connections_closed_total"}
    return Counter({cause: count for cause, count in causes.items() if cause not in ("client_closed", "client_lost")})


def saved_ports(state: Path) -> set[int]:
    return {node["port"] for node in json.loads(state.read_text())["nodes"].values()}


async def kill_one(shoal: ShoalProcess, traffic: Traffic, admin: int, ports: Collection[int], state: Path) -> None:
    await until(lambda: traffic.read.total() > 10 * _PRODUCERS, within=_WITHIN, what="records")
    (one, two), before = await until_known(admin, ports, least=10, kill=2)
    used = {traffic.port, *saved_ports(state)}
    assert listening_ports(one["pid"]) == used

    await until(lambda: "worker 2 (process" in shoal.output(), within=_WITHIN, what="its end")
    count = traffic.acknowledged
    await until(lambda: traffic.acknowledged > count + 20 * _PRODUCERS, within=_WITHIN, what="records")
    rows, after = await until_known(admin, ports)
    assert rows[0]["pid"] == one["pid"]
    assert rows[1]["pid"] != two["pid"]
    assert closed(after) - closed(before) == Counter({"internal": before["shoal_worker_connections", "2"]})
    assert listening_ports(rows[1]["pid"]) == used
    produced = "shoal_requests_total", "Produce", "l"
    assert after[produced] > before[produced]


@pytest.mark.parametrize("kind", [{}, {"coalesce": True}], ids=["plain", "coalescing"])
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
