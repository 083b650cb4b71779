"""The harness: clusters of several brokers, faults, SASL, both versions."""

from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from shoal.scenarios.kafka.broker import Cluster, ClusterSpec, running_cluster
from shoal.scenarios.kafka.content.clients import client_config, in_thread
from shoal.scenarios.kafka.content.copies import read_copy
from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, fill
from shoal.scenarios.kafka.errors import NotReady, TrafficFailed
from shoal.scenarios.kafka.metrics import requests
from tests.support.kafka.clusters import Pair

pytestmark = pytest.mark.kafka


@pytest.mark.slow
async def test_a_cluster_of_three_takes_a_fourth_and_survives_a_kill(tmp_path: Path, topic: str) -> None:
    async with running_cluster(tmp_path, ClusterSpec(nodes=3)) as cluster:
        topics = Topics(cluster.bootstrap)
        fourth = await cluster.add_broker()
        assert not fourth.settings.is_controller
        await topics.create(topic, 8)

        cluster.nodes[2].kill()
        await fill(cluster.bootstrap, topic, orders(800), layout=Layout(partitions=8, run=10))
        await cluster.nodes[2].start()
        await cluster.wait_whole()

        assert (await read_copy(cluster.bootstrap, topic)).records == 800
        assert await fourth.stop()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_users_authenticate(sasl_cluster: Cluster, mechanism: str) -> None:
    assert await _brokers(sasl_cluster, mechanism, "right") == [1]


async def test_a_wrong_password_is_refused(sasl_cluster: Cluster) -> None:
    with pytest.raises(TrafficFailed):
        await _brokers(sasl_cluster, "PLAIN", "wrong")


async def _brokers(cluster: Cluster, mechanism: str, password: str) -> list[int]:
    config = client_config(
        cluster.sasl_bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_username="alice",
        sasl_password=password,
    )
    return sorted((await in_thread(partial(AdminClient(config).list_topics, timeout=5))).brokers)


@pytest.mark.parametrize("version", ["4.3.0", pytest.param("3.9.1", marks=pytest.mark.slow)])
async def test_a_broker_tells_how_many_requests_it_got(tmp_path: Path, topic: str, version: str) -> None:
    async with running_cluster(tmp_path, ClusterSpec(version=version, jmx=True)) as cluster:
        (node,) = cluster.nodes.values()
        assert await requests(node, "Produce") == 0
        await Topics(cluster.bootstrap).create(topic, 1)
        layout = Layout(run=10, exact=True)
        await fill(
            cluster.bootstrap, topic, orders(10), layout=layout
        )  # may be repeated: the topic is new to its leader
        before = await requests(node, "Produce")
        await fill(cluster.bootstrap, topic, orders(70), layout=layout)
        assert await requests(node, "Produce") == before + 7


@pytest.mark.slow
async def test_a_broker_of_3_9_works_the_same(pair_39: Pair, topic: str) -> None:
    bootstrap = pair_39.source.bootstrap
    await Topics(bootstrap).create(topic, 2)
    await fill(bootstrap, topic, orders(100), layout=Layout(partitions=2, run=10), compression_type="zstd")

    assert (await read_copy(bootstrap, topic)).records == 100


async def test_a_broker_that_cannot_start_says_why_and_is_gone(tmp_path: Path) -> None:
    wrong = ClusterSpec(properties={"log.segment.bytes": "nonsense"})

    with pytest.raises(NotReady, match="Invalid value nonsense for configuration"):
        async with running_cluster(tmp_path, wrong):
            pass
