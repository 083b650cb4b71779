"""Every API, in every version that a 4.3 broker advertises to clients: the same answer directly and through Shoal.

All are compared by single calls (`calls.py`) and flows (`flows.py`), except `NOT_COMPARED`. If the broker advertises
what neither covers, `test_nothing_that_is_advertised_is_left_out` fails.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from shoal.scenarios.kafka.ports import LOOPBACK
from tests.brokers.proxy.rig.batches import batch
from tests.brokers.proxy.rig.frames import KEYS, Body, Closed, Entity, Wire, framed, request, response
from tests.brokers.proxy.rig.stand import PASSWORD, SIDE_USERS

from .calls import calls
from .comparison import LEADER_NODE, PLAIN, SASL, Address, Ask, Comparison, Flow, Side, Topic
from .flows import SCRIPTS, Versions

if TYPE_CHECKING:
    from shoal.scenarios.kafka.broker import Cluster
    from tests.brokers.proxy.rig.stand import Stand

pytestmark = pytest.mark.kafka

NAMES = {key: name for name, key in KEYS.items()}
# (api, version) -> reason; see also `test_produce_before_v3_is_refused_by_the_broker`.
NOT_COMPARED: Mapping[tuple[str, int], str] = {
    **{("produce", version): "advertised for old librdkafka, but not spoken (KIP-896)" for version in range(3)},
}
IN_TIME = timedelta(seconds=20)
GROUP, TRANSACTION = 0, 1  # key types of FindCoordinator
Offered = Mapping[str, tuple[int, int]]  # API -> oldest and newest version


@pytest.fixture(scope="module")
def offered(brokers: Cluster) -> Offered:
    """The broker's own ApiVersions answer."""
    with _broker(brokers) as wire:
        answer = _ask(wire, "api_versions", 3, {"client_software_name": "test", "client_software_version": "1"})
    return {NAMES[one.api_key]: (one.min_version, one.max_version) for one in answer.api_keys}


@pytest.fixture(scope="module")
def comparison(brokers: Cluster, stand: Stand) -> Iterator[Comparison]:
    ways: dict[str, tuple[dict[tuple[str, int], Address], dict[Address, int]]] = {"d": ({}, {}), "s": ({}, {})}
    for node_id, node in brokers.nodes.items():
        for tag, plain, sasl, named in (
            ("d", _bound(node.proxied_address), _bound(node.sasl_address), f"broker-{node_id}.shoal.test"),
            ("s", stand.broker(node_id), stand.sasl_broker(node_id), LOOPBACK),
        ):
            reach, names = ways[tag]
            reach |= {(PLAIN, node_id): plain, (SASL, node_id): sasl}
            names |= {(named, plain[1]): node_id}
    with _broker(brokers) as wire:
        make = _Maker(wire)
        direct, shoal = (make.side(tag, *ways[tag]) for tag in "ds")
    yield Comparison(direct=direct, shoal=shoal)
    direct.hang_up()
    shoal.hang_up()


class _Maker:
    """Topics and names for the two sides: whatever matters is on the queried broker."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._run = uuid.uuid4().int % 10**9
        self.shared = self._topic(f"eq-shared-{self._run}")
        data = {**self.shared.named, "partition_data": [{"index": 0, "records": batch([b"%d" % i for i in range(5)])}]}
        _ask(wire, "produce", 13, {"acks": -1, "timeout": IN_TIME, "topic_data": [data]})
        self._own = {tag: self._topic(f"eq-{tag}-own{self._run}") for tag in "ds"}

    def side(self, tag: str, reach: Mapping[tuple[str, int], Address], named: Mapping[Address, int]) -> Side:
        return Side(
            tag=tag,
            reach=reach,
            named=named,
            shared=self.shared,
            own=self._own[tag],
            topic_ids={topic.topic_id for topic in self._own.values()},
            token=f"\0{SIDE_USERS[tag]}\0{PASSWORD}".encode(),
            group=self._name(tag, "group"),
            other_group=self._name(tag, "other"),
            consumer_group=self._name(tag, "consumer"),
            share_group=self._name(tag, "share"),
            streams_group=self._name(tag, "streams"),
            transactional_id=self._name(tag, "txn"),
        )

    def _name(self, tag: str, kind: str) -> str:
        """A name whose group and transaction coordinators are the queried broker."""
        deadline = monotonic() + 30
        for number in count():
            name = f"eq-{tag}-{kind}{self._run}{number}"
            if all(self._coordinator(name, key_type) == LEADER_NODE for key_type in (GROUP, TRANSACTION)):
                return name
            assert monotonic() < deadline, name
        raise AssertionError

    def _coordinator(self, name: str, key_type: int) -> int:
        """-1 while there is none: the first request creates the coordinator's topic."""
        answer = _ask(self._wire, "find_coordinator", 4, {"key_type": key_type, "coordinator_keys": [name]})
        return int(answer.coordinators[0].node_id)

    def _topic(self, name: str) -> Topic:
        """Partition 0 is on the queried broker, partition 1 on another one."""
        placed = [{"partition_index": 0, "broker_ids": [LEADER_NODE]}, {"partition_index": 1, "broker_ids": [2]}]
        wanted = {"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": placed}
        _ask(self._wire, "create_topics", 7, {"topics": [wanted], "timeout": IN_TIME})
        look = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        deadline = monotonic() + 30
        while True:
            (found,) = _ask(self._wire, "metadata", 12, look).topics
            if [
                partition.leader_id for partition in sorted(found.partitions, key=lambda p: int(p.partition_index))
            ] == [1, 2]:
                return Topic(name, found.topic_id)
            assert monotonic() < deadline, found


def _bound(address: str) -> Address:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _broker(cluster: Cluster) -> Wire:
    return Wire(*_bound(cluster.nodes[LEADER_NODE].proxied_address))


def _ask(wire: Wire, api: str, version: int, body: Body) -> Entity:
    frame = wire.ask(request(api, version, body))
    assert not isinstance(frame, Closed)
    return response(api, version, frame)


def _single_calls(side: Side, api: str, version: int) -> Flow:
    for body in calls(side, api):
        yield Ask(api, version, body)


def _compare_single_calls(comparison: Comparison, offered: Offered, api: str) -> None:
    oldest, newest = offered[api]
    for version in range(oldest, newest + 1):
        if (api, version) not in NOT_COMPARED:
            comparison.run(lambda side, version=version: _single_calls(side, api, version))  # type: ignore[misc]


def _compare_script(comparison: Comparison, offered: Offered, name: str) -> None:
    for age in range(SCRIPTS[name].ages):
        comparison.run(lambda side, age=age: SCRIPTS[name].flow(side, Versions(offered, age)))  # type: ignore[misc]


def test_everything_is_answered_alike(comparison: Comparison, offered: Offered) -> None:
    for api in offered:
        _compare_single_calls(comparison, offered, api)
    for name in SCRIPTS:
        _compare_script(comparison, offered, name)
    assert not comparison.differences, "\n".join(comparison.differences)
    advertised = {(api, version) for api, (oldest, newest) in offered.items() for version in range(oldest, newest + 1)}
    assert comparison.compared == advertised - NOT_COMPARED.keys()
    assert advertised >= NOT_COMPARED.keys()
    assert not comparison.useless_fields()


@pytest.mark.parametrize("version", range(3))
def test_produce_before_v3_is_refused_by_the_broker(brokers: Cluster, stand: Stand, version: int) -> None:
    header = KEYS["produce"].to_bytes(2) + version.to_bytes(2) + (7).to_bytes(4) + b"\xff\xff"
    frame = framed(header + b"\xff\xff" + (1000).to_bytes(4) + bytes(4))  # acks=-1, no topics
    with _broker(brokers) as direct, Wire(*stand.broker(LEADER_NODE)) as shoal:
        answers = direct.ask(frame), shoal.ask(frame)
    assert answers == (Closed(), Closed())
