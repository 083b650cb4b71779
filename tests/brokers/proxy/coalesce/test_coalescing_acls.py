"""Clients that authenticate at a coalescing listener: each writes with its own rights over its own connection, never
joined."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio
from confluent_kafka import KafkaError, Message, Producer

from shoal.scenarios.kafka.broker import ClusterSpec
from shoal.scenarios.kafka.content.clients import client_config
from shoal.scenarios.kafka.ports import LOOPBACK
from shoal.scenarios.kafka.process import together
from tests.brokers.proxy.rig.data import IN_TIME, Record, granted_topic, produce, read
from tests.support.shoal_process import ShoalProcess, free_port_block, running_shoal, write_toml

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster
    from tests.support.kafka.clusters import SharedClusters

in_thread = trio.to_thread.run_sync
PASSWORDS = {"alice": "alices-secret", "bob": "bobs-secret"}
RECORDS = 100
WITH_ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",  # the brokers and the test use the listener without SASL
}


@pytest.fixture
def guarded(shared_clusters: SharedClusters) -> Cluster:
    """Kafka 4.3.0, one broker, with ACLs."""
    return shared_clusters.cluster("acls", ClusterSpec(users=PASSWORDS, properties=WITH_ACLS))


def coalescing(cluster: Cluster, work: Path) -> tuple[ShoalProcess, str]:
    port = free_port_block(3)
    where = {"name": "joined", "cluster": "c", "listen": f"{LOOPBACK}:{port}", "ports": f"{port + 1}-{port + 2}"}
    listener = {**where, "coalesce": True, "coalescing": {"linger": 0.005, "ignore-client-ids": True}}
    document = {"cluster": [{"name": "c", "bootstrap": cluster.sasl_bootstrap}], "listener": [listener]}
    config = write_toml(work / "shoal.toml", document)
    return ShoalProcess(["run", "-c", str(config)], work=work, ports=[port]), f"{LOOPBACK}:{port}"


def sasl(user: str, mechanism: str) -> dict[str, str]:
    names = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    return {**names, "sasl.username": user, "sasl.password": PASSWORDS[user]}


def refused(bootstrap: str, topic: str, mechanism: str) -> list[int]:
    """The error codes of bob's requests, one per record."""
    told: list[int] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        told.append(0 if error is None else error.code())

    producer = Producer({**client_config(bootstrap, linger_ms=0), **sasl("bob", mechanism)})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, b"bob", 0, delivered)
        producer.poll(0)
    assert producer.flush(IN_TIME) == 0
    return told


async def test_everybody_writes_with_rights_of_their_own(guarded: Cluster, tmp_path: Path) -> None:
    topic = await in_thread(granted_topic, guarded)
    shoal, bootstrap = coalescing(guarded, tmp_path)
    stored_as: dict[bytes, list[Record]] = {}
    told: list[int] = []

    async def alice(mechanism: str, number: int) -> None:
        key = f"alice {mechanism} {number}".encode()
        records = [Record(key, b"%d" % at) for at in range(RECORDS)]
        settings: dict[str, object] = {"linger_ms": 0, **sasl("alice", mechanism)}
        call = partial(produce, bootstrap, topic, records, partitions=1, **settings)
        stored_as[key] = (await in_thread(call))[0]

    async def bob(mechanism: str) -> None:
        told.extend(await in_thread(refused, bootstrap, topic, mechanism))

    async with running_shoal(shoal):
        mechanisms = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
        alices = [partial(alice, mechanism, number) for mechanism in mechanisms for number in range(2)]
        await together(*alices, *(partial(bob, mechanism) for mechanism in mechanisms))
        stored = (await in_thread(partial(read, guarded.bootstrap, topic)))[0]
    assert told == [KafkaError.TOPIC_AUTHORIZATION_FAILED] * 3 * RECORDS
    assert len(stored) == len(stored_as) * RECORDS
    for key, records in stored_as.items():
        assert [record for record in stored if record.key == key] == records
    assert "authenticated client" in shoal.output()
    assert not any(password in shoal.output() for password in PASSWORDS.values())
