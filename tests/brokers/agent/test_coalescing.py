"""Many producers of one partition, coalesced: sets of batches after Shoal has proven that the broker accepts them."""

from __future__ import annotations

import re
import time
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio
from confluent_kafka import Producer

from shoal.protocol.records.batch import NewRecord, encode_batch, seal_batch
from shoal.protocol.wire.compression import Codec
from shoal.scenarios.kafka.broker import ClusterSpec, running_cluster
from shoal.scenarios.kafka.content.clients import client_config
from shoal.scenarios.kafka.ports import LOOPBACK
from shoal.scenarios.kafka.process import together
from tests.brokers.proxy.rig.data import IN_TIME, Record, new_topic, produce, read
from tests.brokers.proxy.rig.frames import Closed, Wire, request, response
from tests.support.coalesce_rig import batch
from tests.support.shoal_process import ShoalProcess, free_port_block, running_shoal, write_toml

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster

in_thread = trio.to_thread.run_sync
PRODUCERS = 20
RECORDS = 300


def coalescing(cluster: Cluster, work: Path, linger: float = 0.01) -> tuple[ShoalProcess, str]:
    port = free_port_block(3)
    listener = {
        "name": "joined",
        "cluster": "c",
        "listen": f"{LOOPBACK}:{port}",
        "ports": f"{port + 1}-{port + 2}",
        "coalesce": True,
        "coalescing": {"linger": linger},
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


def refused() -> dict[str, bytes]:
    """Batches that a broker refuses, by the name of its error."""
    now = round(time.time() * 1000)
    damaged = seal_batch(
        b"not gzip", codec=Codec.NONE, attributes=Codec.GZIP, record_count=1, base_timestamp=now, max_timestamp=now
    )
    tomorrow = now + 24 * 3600 * 1000
    return {
        "invalid_timestamp": encode_batch([NewRecord(tomorrow, b"k", b"value")]),
        "unknown_server_error": damaged,
        "corrupt_message": batch("value")[:-1] + b"?",
    }


def errors(wires: Sequence[Wire], topic: str, batches: Sequence[bytes]) -> list[str]:
    """The error that each client gets, when all send a batch at once."""
    for wire, records in zip(wires, batches, strict=True):
        topics = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
        wire.send(request("produce", 9, {"acks": -1, "timeout": timedelta(seconds=30), "topic_data": topics}))
    frames = [wire.receive() for wire in wires]
    answers = [response("produce", 9, frame) for frame in frames if not isinstance(frame, Closed)]
    return [answer.responses[0].partition_responses[0].error_code.name for answer in answers]


async def test_a_batch_that_the_broker_refuses_is_an_error_of_its_client_alone(
    cluster: Cluster, tmp_path: Path
) -> None:
    config = {"message.timestamp.after.max.ms": "3600000"}  # the default since Kafka 4
    topic = await in_thread(new_topic, cluster, [[1]], config)
    shoal, bootstrap = coalescing(cluster, tmp_path, linger=0.1)
    port = int(bootstrap.rpartition(":")[2]) + 1
    good, bad = [batch(str(number)) for number in range(6)], refused()
    async with running_shoal(shoal):
        await shoal.until_logged("broker 1 (")
        with ExitStack() as stack:
            wires = [stack.enter_context(Wire(LOOPBACK, port)) for _ in good]
            while "broker 1 gets several batches per partition and request" not in shoal.output():
                assert await in_thread(errors, wires, topic, good) == ["none"] * 6
            for name, one in bad.items():
                culprit = stack.enter_context(Wire(LOOPBACK, port))
                found = await in_thread(errors, [*wires[:3], culprit, *wires[3:]], topic, [*good[:3], one, *good[3:]])
                assert found == ["none"] * 3 + [name] + ["none"] * 3
    stored = (await in_thread(partial(read, cluster.bootstrap, topic)))[0]
    assert sorted(record.value or b"" for record in stored[-18:]) == sorted(b"%d" % at for at in range(6) for _ in bad)
    assert "no longer takes several batches" not in shoal.output()


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
