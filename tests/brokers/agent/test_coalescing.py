"""Many producers of one partition, coalesced: sets of batches after Shoal has proven that the broker accepts them."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio
from confluent_kafka import Producer

from shoal.scenarios.kafka.broker import ClusterSpec, running_cluster
from shoal.scenarios.kafka.content.clients import client_config
from shoal.scenarios.kafka.ports import LOOPBACK
from shoal.scenarios.kafka.process import together
from tests.brokers.proxy.rig.data import IN_TIME, Record, new_topic, produce, read
from tests.support.shoal_process import ShoalProcess, free_port_block, running_shoal, write_toml

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster

in_thread = trio.to_thread.run_sync
PRODUCERS = 20
RECORDS = 300


def coalescing(cluster: Cluster, work: Path) -> tuple[ShoalProcess, str]:
    port = free_port_block(3)
    listener = {
        "name": "joined",
        "cluster": "c",
        "listen": f"{LOOPBACK}:{port}",
        "ports": f"{port + 1}-{port + 2}",
        "coalesce": True,
        "coalescing": {"linger": 0.01},
    }
    document = {"cluster": [{"name": "c", "bootstrap": cluster.bootstrap}], "listener": [listener]}
    config = write_toml(work / "shoal.toml", document)
    return ShoalProcess(["run", "-c", str(config)], work=work, ports=[port]), f"{LOOPBACK}:{port}"


async def test_batches_of_one_partition_travel_in_sets(cluster: Cluster, tmp_path: Path) -> None:
    topic = await in_thread(new_topic, cluster, [[1]])
    shoal, bootstrap = coalescing(cluster, tmp_path)
    sent: dict[bytes, list[Record]] = {}

    async def one(number: int) -> None:
        key = b"%d" % number
        records = [Record(key, b"%d" % at) for at in range(RECORDS)]
        settings = {"linger_ms": 0, "max_in_flight": 5, "batch_num_messages": 1}
        sent[key] = (await in_thread(partial(produce, bootstrap, topic, records, **settings)))[0]

    async with running_shoal(shoal):
        await together(*(partial(one, number) for number in range(PRODUCERS)))
        stored = (await in_thread(partial(read, cluster.bootstrap, topic)))[0]
    for key, records in sent.items():
        assert [record for record in stored if record.key == key] == records
    assert len(stored) == PRODUCERS * RECORDS
    requests, into = re.findall(r"total joined: .*joined ([\d,]+) produce requests into ([\d,]+)", shoal.output())[-1]
    assert int(requests.replace(",", "")) > 3 * int(into.replace(",", "")), (
        "without sets each partition has one request for each"
    )


class Clients:
    """Long-lived producers without ids: only their batches are in sets. A lost connection may duplicate unanswered
    batches."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings: dict[str, str | int] = {"acks": "all", "linger.ms": 0, "batch.num.messages": 1, "max.in.flight": 1}
        self.topic = topic
        self.producers = [Producer(client_config(bootstrap, **settings)) for _ in range(PRODUCERS)]
        self.sent: list[list[bytes]] = [[] for _ in self.producers]

    def send(self, each: int) -> None:
        for _ in range(each):
            for number, producer in enumerate(self.producers):
                value = b"%d" % len(self.sent[number])
                producer.produce(self.topic, value, b"%d" % number)
                self.sent[number].append(value)
        for producer in self.producers:
            assert not producer.flush(IN_TIME)

    def check(self, stored: list[Record]) -> None:
        for number, sent in enumerate(self.sent):
            found = [record.value for record in stored if record.key == b"%d" % number]
            assert list(dict.fromkeys(found)) == sent


@pytest.mark.agent
async def test_a_broker_that_comes_back_without_its_agent_gets_no_sets_any_more(tmp_path: Path) -> None:
    async with running_cluster(tmp_path / "broker", ClusterSpec(agent=True)) as cluster:
        node, topic = cluster.nodes[1], await in_thread(new_topic, cluster, [[1]])
        shoal, bootstrap = coalescing(cluster, tmp_path)
        async with running_shoal(shoal):
            clients = Clients(bootstrap, topic)
            await in_thread(clients.send, 100)
            assert "broker 1 gets several batches per partition and request" in shoal.output()
            node.kill()
            node.agent = False
            await node.start()
            await in_thread(clients.send, 200)
            clients.check((await in_thread(partial(read, cluster.bootstrap, topic)))[0])
    assert "broker 1 gets one batch per partition and request: refused" in shoal.output()
    assert "no longer takes several batches" not in shoal.output(), "none was tried with records of clients"
