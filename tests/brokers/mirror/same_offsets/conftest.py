"""A source, and a target whose brokers keep the offsets of topics named so-...: `make test-agent` has all lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shoal.scenarios.kafka.broker import ClusterSpec
from shoal.scenarios.kafka.content.scan import Scanner
from shoal.scenarios.kafka.java.jars import DEFAULT_VERSION
from tests.brokers.agent.conftest import LINES, USUAL
from tests.support.kafka.clusters import Pair

if TYPE_CHECKING:
    from tests.support.kafka.clusters import SharedClusters

OPTIONS = ("-Dshoal.mirror.topics=(.*[.])?so-.*",)
OFTEN = {"log.cleaner.backoff.ms": "200"}
SOON = {"replica.lag.time.max.ms": "5000"}  # out of sync
BEGINNING_FAR = ("-Dshoal.mirror.topics=so-far-.*",)  # of a source: its agent writes the first records


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target_version" in metafunc.fixturenames:
        others = (version for version in (*USUAL, *LINES) if version != DEFAULT_VERSION)
        seldom = [pytest.param(version, marks=pytest.mark.agent) for version in others]
        is_on_all = metafunc.module.__name__.endswith(("test_copies", "test_replicas"))
        versions = [DEFAULT_VERSION, *seldom] if is_on_all else [DEFAULT_VERSION]
        metafunc.parametrize("target_version", versions, indirect=True)


@pytest.fixture
def target_version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def offsets_pair(shared_clusters: SharedClusters, target_version: str) -> Pair:
    source = shared_clusters.cluster("offsets-source", ClusterSpec(properties=OFTEN))
    spec = ClusterSpec(version=target_version, agent=True, jvm_options=OPTIONS, properties=OFTEN)
    target = shared_clusters.cluster(f"offsets-target-{target_version}", spec)
    return Pair(source=source, target=target, scanners=(Scanner(source.bootstrap), Scanner(target.bootstrap)))


@pytest.fixture
def three_pair(shared_clusters: SharedClusters, target_version: str) -> Pair:
    """One source broker and three target brokers, all with the agent."""
    source = shared_clusters.cluster("offsets-far-source", ClusterSpec(agent=True, jvm_options=BEGINNING_FAR))
    spec = ClusterSpec(version=target_version, nodes=3, agent=True, jvm_options=OPTIONS, properties=SOON)
    target = shared_clusters.cluster(f"offsets-three-target-{target_version}", spec)
    return Pair(source=source, target=target, scanners=(Scanner(source.bootstrap), Scanner(target.bootstrap)))


@pytest.fixture
def from_three(shared_clusters: SharedClusters) -> Pair:
    """Three stock source brokers and one target broker."""
    source = shared_clusters.cluster("offsets-three-source", ClusterSpec(nodes=3, properties=SOON))
    spec = ClusterSpec(agent=True, jvm_options=OPTIONS, properties=OFTEN)
    target = shared_clusters.cluster(f"offsets-target-{DEFAULT_VERSION}", spec)
    return Pair(source=source, target=target, scanners=(Scanner(source.bootstrap), Scanner(target.bootstrap)))


@pytest.fixture
def kept(topic: str) -> str:
    """A source topic whose copy is a mirror topic."""
    return f"so-{topic}"
