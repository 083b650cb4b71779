"""Brokers with the agent. `make test` uses the newest version line, and the oldest for a part; `make test-agent` every
release."""

import pytest

from shoal.scenarios.kafka.broker import Cluster, ClusterSpec, Node
from tests.support.kafka.clusters import SharedClusters

USUAL = ("4.3.0", "3.9.1")
RELEASES = ("3.9.0", "3.9.2", "4.0.0", "4.0.2", "4.1.0", "4.1.1", "4.1.2", "4.2.0", "4.3.1")
"""The others on Maven Central with all their jars."""
LINES = ("3.9.2", "4.0.2", "4.1.2", "4.2.0", "4.3.1")
"""The newest of each line, for what takes long."""


@pytest.fixture(
    params=[USUAL[0], *(pytest.param(version, marks=pytest.mark.agent) for version in (USUAL[1], *RELEASES))]
)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def cluster(shared_clusters: SharedClusters, version: str) -> Cluster:
    """One broker of `version` with the agent."""
    return shared_clusters.cluster(f"agent-{version}", ClusterSpec(version=version, agent=True))


@pytest.fixture
def node(cluster: Cluster) -> Node:
    return cluster.nodes[1]
