"""A cluster of three real brokers behind one Shoal, shared by all tests of this directory.

Brokers advertise to Shoal a name that nothing else on this machine can resolve (see `resolver/`). Tests that stop
brokers restart them; tests that stop Shoal run their own.
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
        # Without a common divisor, so a group and a transactional id of the same name may have any two coordinators.
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.num.partitions": "9",
        "auto.leader.rebalance.enable": "false",  # only tests move leaders
    },
)


@pytest.fixture(scope="package")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = trio.run(Cluster.start, tmp_path_factory.mktemp("cluster"), SPEC)
    yield cluster
    cluster.kill_all()  # its data is no longer needed


@pytest.fixture(scope="package")
def stand(brokers: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """The shared cluster behind the shared Shoal. At the end Shoal must exit cleanly, with no traceback logged."""
    stand = own_shoal(brokers, tmp_path_factory.mktemp("shoal"))
    trio.run(stand.shoal.start)
    yield stand
    trio.run(stand.shoal.stop)


@pytest.fixture
def new_stand(brokers: Cluster, tmp_path: Path) -> Iterator[Callable[..., Stand]]:
    """Makes Shoals, not started, in front of the shared cluster; those still running at the end are killed."""
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
    """kafka-python leaves its wake-up socket pair to the garbage collector, which warns of it."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
