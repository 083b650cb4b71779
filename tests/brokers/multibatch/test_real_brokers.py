"""`shoal probe` and the proofs of a running proxy against real brokers."""

from __future__ import annotations

from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING

import pytest
import trio
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, ResourcePatternType, ResourceType

from shoal.protocol.multibatch.proof import Result
from shoal.protocol.multibatch.trial import SCRATCH_PREFIX
from shoal.proxy.cli.probe import ClusterReport, probe_cluster
from shoal.proxy.cluster.cluster import Cluster as UpstreamCluster
from shoal.proxy.config.parse import parse_addresses
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.settings import Address, ClusterSettings, Limits, ListenerSettings, Mode, Settings
from shoal.proxy.lifecycle.server import Server
from shoal.proxy.net.broker_client import open_client
from shoal.scenarios.kafka.broker import Cluster, ClusterSpec
from shoal.scenarios.kafka.content.clients import client_config
from tests.proxy.cluster.test_multi_batch import ASK, ProvingPath
from tests.support.kafka.acls import allow
from tests.support.rig import free_range, request
from tests.support.secrets import password_login

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shoal.proxy.config.security import SaslSettings
    from tests.support.kafka.clusters import Pair, SharedClusters

ALICE, BOB = "alice", "bob"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ALL_FOR_BOB = [(BOB, AclOperation.ALL)]
AUTHORIZED = ClusterSpec(
    users={ALICE: "right", BOB: "right"},
    properties={
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    },
)


def settings(bootstrap: str, sasl: SaslSettings | None = None) -> ClusterSettings:
    return ClusterSettings(name="c", bootstrap=parse_addresses(bootstrap), sasl=sasl)


async def probe(bootstrap: str, topic: str | None = None, sasl: SaslSettings | None = None) -> ClusterReport:
    return await probe_cluster(settings(bootstrap, sasl), Limits(), topic=topic, seconds=60)


def topics(cluster: Cluster) -> set[str]:
    return set(AdminClient(client_config(cluster.bootstrap)).list_topics(timeout=10).topics)


def alice(mechanism: str = "PLAIN", password: str = "right") -> SaslSettings:
    """She has no rights."""
    return password_login(ALICE, password, mechanism)


def bob(mechanism: str = "PLAIN") -> SaslSettings:
    return password_login(BOB, "right", mechanism)


@pytest.fixture
def guarded(shared_clusters: SharedClusters) -> Cluster:
    """Kafka 4.3.0 where alice and bob may do nothing, and unauthenticated clients everything."""
    return shared_clusters.cluster("guarded", AUTHORIZED)


async def test_stock_kafka_4_3_refuses(pair: Pair) -> None:
    report = await probe(pair.target.bootstrap)
    assert report.cluster_id == pair.target.cluster_id
    assert report.result is Result.REFUSED
    assert report.brokers[0].proof.why == "the broker answers 2 batches (uncompressed) with error 87 (INVALID_RECORD)"
    assert not {name for name in topics(pair.target) if name.startswith(SCRATCH_PREFIX)}


async def test_stock_kafka_3_9_refuses(pair_39: Pair) -> None:
    report = await probe(pair_39.target.bootstrap)
    assert report.result is Result.REFUSED
    assert report.brokers[0].proof.why == "the broker answers 2 batches (uncompressed) with error 87 (INVALID_RECORD)"


async def test_every_broker_of_a_cluster_gets_an_answer(three_brokers: Cluster) -> None:
    report = await probe(three_brokers.nodes[1].address)
    assert [(broker.node_id, broker.proof.result) for broker in report.brokers] == [
        (n, Result.REFUSED) for n in (1, 2, 3)
    ]


async def test_librdkafka_s_mock_cluster_loses_records_and_is_unsafe() -> None:
    """It lacks CreateTopics, but creates every requested topic, with leaders by chance."""
    producer = Producer({"bootstrap.servers": "ignored:1", "test.mock.num.brokers": 2, "log_level": 0})
    listed = (producer.list_topics(f"probe-me-{number}", timeout=10) for number in count())
    led_by_both = next(
        one
        for one in listed
        for topic in one.topics.values()
        if len({p.leader for p in topic.partitions.values()}) == 2
    )
    (topic,) = led_by_both.topics
    broker = next(iter(led_by_both.brokers.values()))
    bootstrap = f"{broker.host}:{broker.port}"
    assert (await probe(bootstrap)).result is Result.UNKNOWN
    report = await probe(bootstrap, topic=topic)
    assert [one.proof.result for one in report.brokers] == [Result.UNSAFE, Result.UNSAFE], report
    assert "3 of 5 records are lost" in report.brokers[0].proof.why


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_it_logs_in_and_says_which_rights_are_missing(guarded: Cluster, mechanism: str) -> None:
    proof = (await probe(guarded.sasl_bootstrap, sasl=alice(mechanism))).brokers[0].proof
    assert proof.result is Result.UNKNOWN
    assert "cannot create the scratch topic" in proof.why
    assert "AUTHORIZATION_FAILED" in proof.why
    assert "let the client create and delete topics __shoal-probe-*" in proof.remedy


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_is_told(guarded: Cluster, mechanism: str) -> None:
    with pytest.raises(OperatorError, match="error 58"):
        await probe(guarded.sasl_bootstrap, sasl=alice(mechanism, "wrong"))


async def test_without_a_log_in_a_sasl_port_is_recognised(guarded: Cluster) -> None:
    proof = (await probe(guarded.sasl_bootstrap)).brokers[0].proof
    assert proof.result is Result.UNKNOWN
    assert "--sasl-mechanism" in proof.remedy


async def test_rights_for_one_named_topic_are_enough(guarded: Cluster, topic: str) -> None:
    admin = AdminClient(client_config(guarded.bootstrap))
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(timeout=20)
    allow(guarded, ResourceType.TOPIC, topic, ALL_FOR_BOB)
    report = await probe(guarded.sasl_bootstrap, topic=topic, sasl=bob())
    assert report.brokers[0].proof.why == "the broker answers 2 batches (uncompressed) with error 87 (INVALID_RECORD)"


@asynccontextmanager
async def proxied(address: str) -> AsyncIterator[tuple[Server, Address]]:
    """A Shoal in this process whose clients make it prove broker 1; -> its address of that broker."""
    bootstrap = parse_addresses(address)
    given = Settings(
        clusters=(settings(address),),
        listeners=(ListenerSettings(name="test", cluster="c", port=0, nodes=free_range()),),
    )
    server = Server(given, {Mode.PLAIN: ProvingPath}, learn=False)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        host, port = server.listeners["test"].advertise(bootstrap[0], 1, "127.0.0.1")
        yield server, Address(host, port)
        nursery.cancel_scope.cancel()


async def test_a_proxy_proves_with_the_rights_of_its_client(guarded: Cluster) -> None:
    """The client's own authenticated connection creates the scratch topic."""
    allow(guarded, ResourceType.TOPIC, SCRATCH_PREFIX, ALL_FOR_BOB, ResourcePatternType.PREFIXED)
    async with proxied(guarded.sasl_bootstrap) as (server, broker):
        bobs = UpstreamCluster(settings(str(broker), bob("SCRAM-SHA-512")), Limits()).upstream
        with open_client(bobs, [broker]) as client:
            assert (await client.exchange(request(ASK, 0, 7)))[8:] == b"0"
        (known,) = server.clusters["c"].proofs.proofs().values()
        assert known.why == "the broker answers 2 batches (uncompressed) with error 87 (INVALID_RECORD)"
    assert not {name for name in topics(guarded) if name.startswith(SCRATCH_PREFIX)}
