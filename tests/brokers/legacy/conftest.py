"""Clusters for old clients: Kafka 3.9.1, which still supports them, and Kafka 4.3.0 behind Shoal.

The first one validates the tests; only slow tests use it. One process per kind of client serves all tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pytest
import trio

from shoal.scenarios.kafka.broker import Cluster, ClusterSpec
from shoal.scenarios.kafka.ports import LOOPBACK
from tests.brokers.legacy.old_clients.kinds import KINDS
from tests.support.kafka.relay import RELAY_HOST
from tests.support.shoal_process import ShoalProcess, free_port_block, write_toml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.brokers.legacy.old_clients.client import OldClient
    from tests.brokers.legacy.old_clients.kinds import Kind
    from tests.support.kafka.clusters import SharedClusters

_PORTS = 4


class Shoals(Protocol):
    def __call__(
        self, name: str, cluster: Cluster, bootstrap: str | None = None, /, **options: object
    ) -> tuple[ShoalProcess, str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    cluster: Cluster
    bootstrap: str
    """Bootstrap address of old clients; modern ones use `cluster` itself."""
    shoal: ShoalProcess | None = None


def legacy_shoal(
    cluster: Cluster,
    work: Path,
    bootstrap: str | None = None,
    /,
    sasl: Mapping[str, object] | None = None,
    **options: object,
) -> tuple[ShoalProcess, str]:
    """A Shoal, not started, and the address of its listener for old clients; `options`: `legacy-options`. `bootstrap`:
    of the cluster, if not the one without SASL; `sasl`: clients log in at Shoal."""
    port = free_port_block(_PORTS + 1)
    listener = {
        "name": "old",
        "cluster": "one",
        "listen": f"{LOOPBACK}:{port}",
        "ports": f"{port + 1}-{port + _PORTS}",
        "legacy": True,
        **({"sasl": sasl} if sasl else {}),
        **({"legacy-options": options} if options else {}),
    }
    document = {
        "cluster": [{"name": "one", "bootstrap": (bootstrap or cluster.bootstrap).split(",")}],
        "listener": [listener],
    }
    config = write_toml(work / "shoal.toml", document)
    return ShoalProcess(["run", "-c", str(config)], work=work, ports=[port]), f"{LOOPBACK}:{port}"


@pytest.fixture
def modern(shared_clusters: SharedClusters) -> Cluster:
    """Kafka 4.3.0, one broker, also the source of mirrors."""
    return shared_clusters.cluster("source-4.3.0", ClusterSpec(version="4.3.0", proxied_as=RELAY_HOST))


@pytest.fixture(scope="session")
def shoals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shoals]:
    """A running Shoal by name, and the address of its listener; created like `legacy_shoal`."""
    made: dict[str, tuple[ShoalProcess, str]] = {}

    def one(
        name: str, cluster: Cluster, bootstrap: str | None = None, /, **options: object
    ) -> tuple[ShoalProcess, str]:
        if name not in made:
            made[name] = legacy_shoal(cluster, tmp_path_factory.mktemp(name), bootstrap, **options)  # type: ignore[arg-type]
        shoal, bootstrap = made[name]
        if not shoal.running:
            trio.run(shoal.start)
        return shoal, bootstrap

    yield one
    for shoal, _ in made.values():
        trio.run(shoal.stop)


@pytest.fixture
def through_shoal(modern: Cluster, shoals: Shoals) -> Route:
    shoal, bootstrap = shoals("old", modern)
    return Route(cluster=modern, bootstrap=bootstrap, shoal=shoal)


@pytest.fixture(params=[pytest.param("direct", marks=pytest.mark.slow), "shoal"])
def route(request: pytest.FixtureRequest, shared_clusters: SharedClusters) -> Route:
    if request.param == "shoal":
        found: Route = request.getfixturevalue("through_shoal")
        return found
    cluster = shared_clusters.cluster("source-3.9.1", ClusterSpec(version="3.9.1", proxied_as=RELAY_HOST))
    return Route(cluster=cluster, bootstrap=cluster.bootstrap)


@pytest.fixture(scope="session")
def old_clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Kind], OldClient]]:
    """The process of a kind, started at first use."""
    work = tmp_path_factory.mktemp("clients")
    started: dict[str, OldClient] = {}

    def one(kind: Kind) -> OldClient:
        if kind.name not in started:
            started[kind.name] = trio.run(kind.start, work / f"{kind.name}.log")
        return started[kind.name]

    yield one
    for client in started.values():
        client.end()


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def client(kind: Kind, old_clients: Callable[[Kind], OldClient]) -> OldClient:
    return old_clients(kind)
