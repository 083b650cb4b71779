"""One broker with mirror topics: `make test` has all tests on the newest line, and on the oldest what is appended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shoal.scenarios.kafka.content.topics import Topics
from tests.brokers.agent.conftest import RELEASES, USUAL

from .rig import MIRRORED, mirror_cluster

if TYPE_CHECKING:
    from shoal.scenarios.kafka.broker import Cluster
    from tests.support.kafka.clusters import SharedClusters


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "version" in metafunc.fixturenames:
        often = USUAL if metafunc.module.__name__.endswith("test_appends") else USUAL[:1]
        seldom = [pytest.param(one, marks=pytest.mark.agent) for one in (*USUAL, *RELEASES) if one not in often]
        metafunc.parametrize("version", [*often, *seldom], indirect=True)


@pytest.fixture
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def cluster(shared_clusters: SharedClusters, version: str) -> Cluster:
    return mirror_cluster(shared_clusters, version)


@pytest.fixture
async def mirrored(cluster: Cluster, topic: str) -> str:
    """A mirror topic without records."""
    await Topics(cluster.bootstrap).create(MIRRORED + topic)
    return MIRRORED + topic
