"""Property tests draw the same examples every time: exploring is `make fuzz`'s part. A loaded machine fails none of
them.

Tests that use a real cluster are marked `kafka` here.
"""

import logging
import os
import re
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import pytest
import trio
from hypothesis import HealthCheck, settings

from shoal.scenarios.kafka import ports
from shoal.scenarios.kafka.broker import Cluster, ClusterSpec
from shoal.scenarios.kafka.security.certificates import Authority
from shoal.scenarios.kafka.security.kdc import Kdc
from shoal.scenarios.kafka.security.listeners import BrokerTls
from shoal.scenarios.kafka.security.tokens import TokenIssuer
from tests.support.kafka.clusters import Pair, SharedClusters
from tests.support.log_lines import LineCheck, as_sentence

settings.register_profile("shoal", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shoal")

_NUMBERS = count(1)
_CLUSTERS = pytest.StashKey[SharedClusters]()


class Aliases(NamedTuple):
    source: str
    target: str


def pytest_configure() -> None:
    """Each worker process draws its ports from a range of its own, below the ephemeral ports."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    share = (ports.HIGHEST - ports.LOWEST + 1) // workers
    first = ports.LOWEST + worker % workers * share  # one that replaces a crashed worker has a higher number
    os.environ[ports.PORTS] = f"{first}-{first + share - 1}"


@pytest.fixture(autouse=True)
def _log_lines_are_in_the_table() -> Iterator[None]:
    check = LineCheck()
    logging.getLogger().addHandler(check)
    yield
    logging.getLogger().removeHandler(check)
    assert check.found == []


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Its messages are the sentences that people read; `record.event` is the event's id."""
    caplog.handler.addFilter(as_sentence)
    yield caplog
    caplog.handler.removeFilter(as_sentence)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if (clusters := item.config.stash.get(_CLUSTERS, None)) is not None:
        clusters.next_test(item.nodeid)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "shared_clusters" in getattr(item, "fixturenames", ()):
            item.add_marker("kafka")
    items.sort(key=_agent_release)


def _agent_release(item: pytest.Item) -> str:
    """Tests of `make test-agent` in the order of releases: each release's brokers start once."""
    call = getattr(item, "callspec", None)
    if call is None or item.get_closest_marker("agent") is None:
        return ""
    return str(call.params.get("version") or call.params.get("target_version", ""))


@pytest.fixture(scope="session")
def shared_clusters(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedClusters]:
    clusters = request.config.stash[_CLUSTERS] = SharedClusters(tmp_path_factory.mktemp("kafka"))
    yield clusters
    clusters.end()


@pytest.fixture
def pair(shared_clusters: SharedClusters) -> Pair:
    """Kafka 4.3.0, source and target, one broker each."""
    return shared_clusters.pair("4.3.0")


@pytest.fixture
def pair_39(shared_clusters: SharedClusters) -> Pair:
    """The same with Kafka 3.9.1."""
    return shared_clusters.pair("3.9.1")


@pytest.fixture
def three_brokers(shared_clusters: SharedClusters) -> Cluster:
    """Kafka 4.3.0, three combined nodes."""
    return shared_clusters.cluster("three", ClusterSpec(nodes=3))


@pytest.fixture
def sasl_cluster(shared_clusters: SharedClusters) -> Cluster:
    """Kafka 4.3.0, one broker, the user alice with the password "right" on `sasl_bootstrap`."""
    return shared_clusters.cluster("sasl", ClusterSpec(users={"alice": "right"}))


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="session")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenIssuer]:
    """Its token endpoint knows the client alice with the secret "right"."""
    with TokenIssuer(tmp_path_factory.mktemp("issuer")) as issuer:
        yield issuer


@pytest.fixture
def secured_cluster(shared_clusters: SharedClusters, authority: Authority, issuer: TokenIssuer) -> Cluster:
    """Kafka 4.3.0, one broker with all listeners and mechanisms. SSL takes clients with and without a certificate;
    the user alice has the password "right"."""
    tls = BrokerTls(authority=authority, client_auth="requested")
    spec = ClusterSpec(users={"alice": "right"}, tls=tls, tokens=issuer)
    return shared_clusters.cluster("secured", spec)


@pytest.fixture(scope="session")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    kdc = trio.run(Kdc.start, tmp_path_factory.mktemp("kdc"))
    yield kdc
    kdc.kill()


@pytest.fixture
def kerberos_cluster(shared_clusters: SharedClusters, authority: Authority, kdc: Kdc) -> Cluster:
    """Kafka 4.3.0, one broker known as localhost, GSSAPI with and without TLS."""
    return shared_clusters.cluster("kerberos", ClusterSpec(tls=BrokerTls(authority=authority), kdc=kdc))


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses; no dot in it, so that it is its own regular expression."""
    return f"{re.sub('[^A-Za-z0-9]+', '-', request.node.name)[:80].strip('-')}-{next(_NUMBERS)}"


@pytest.fixture
def aliases() -> Aliases:
    """Cluster aliases for a mirror with no past, see `MirrorSpec.target_alias`."""
    number = next(_NUMBERS)
    return Aliases(f"a{number}", f"b{number}")
