"""A source, and a target whose brokers keep the offsets of topics named so-..."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shoal.scenarios.kafka.broker import ClusterSpec
from shoal.scenarios.kafka.content.scan import Scanner
from tests.support.kafka.clusters import Pair

if TYPE_CHECKING:
    from tests.support.kafka.clusters import SharedClusters

OPTIONS = ("-Dshoal.mirror.topics=(.*[.])?so-.*",)


@pytest.fixture
def offsets_pair(shared_clusters: SharedClusters) -> Pair:
    often = {"log.cleaner.backoff.ms": "200"}
    source = shared_clusters.cluster("offsets-source", ClusterSpec(properties=often))
    target = shared_clusters.cluster("offsets-target", ClusterSpec(agent=True, jvm_options=OPTIONS, properties=often))
    return Pair(source=source, target=target, scanners=(Scanner(source.bootstrap), Scanner(target.bootstrap)))


@pytest.fixture
def kept(topic: str) -> str:
    """A source topic whose copy is a mirror topic."""
    return f"so-{topic}"
