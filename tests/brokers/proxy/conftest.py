"""One cluster of three real brokers for all tests in this directory, and one Shoal before it.

Brokers advertise to Shoal a name that nothing else on this machine can resolve (see `resolver/`). Tests that stop
brokers put them back; tests that stop Shoal run one of their own.
"""

from __future__ import annotations

import gc
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import trio

from shoal.scenarios.kafka.broker import Cluster, ClusterSpec
from tests.brokers.proxy.rig.stand import PASSWORD, SIDE_USERS, USER, Stand, own_shoal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SPEC = ClusterSpec(
    nodes=3,
    proxied_as="broker-{}.shoal.test",
    users=dict.fromkeys((USER, *SIDE_USERS.values()), PASSWORD),
    properties={
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
        "delegation.token.secret.key": "not a secret",
        # Numbers without a common divisor: a group and a transactional id of one name may then have any two
        # coordinators.
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.num.partitions": "9",
        "auto.leader.rebalance.enable": "false",  # leaders move when a test moves them
    },
)


@pytest.fixture(scope="package")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = trio.run(Cluster.start, tmp_path_factory.mktemp("cluster"), SPEC)
    yield cluster
    cluster.kill_all()  # its data is not needed any more


@pytest.fixture(scope="package")
def stand(brokers: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """The shared cluster behind the shared Shoal. At the end Shoal must stop cleanly and have logged no traceback."""
    stand = own_shoal(brokers, tmp_path_factory.mktemp("shoal"))
    trio.run(stand.shoal.start)
    yield stand
    trio.run(stand.shoal.stop)


@pytest.fixture
def new_stand(brokers: Cluster, tmp_path: Path) -> Iterator[Callable[..., Stand]]:
    """Makes Shoals of the test's own before the shared cluster, not started; what still runs at the end is killed."""
    made: list[Stand] = []

    def make(**options: Any) -> Stand:
        made.append(own_shoal(brokers, tmp_path / f"shoal-{len(made)}", **options))
        return made[-1]

    yield make
    for stand in made:
        if stand.shoal.running:
            stand.shoal.kill()


@pytest.fixture
def forgotten_sockets() -> Iterator[None]:
    """kafka-python leaves the socket pair that wakes its client for the garbage collector, which warns of it."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
