"""Brokers are added, killed, restarted and elected; Shoal restarts: clients continue, acknowledged records are kept,
addresses do not change."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest
import trio
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from shoal.scenarios.kafka.content.clients import client_config
from shoal.scenarios.kafka.java.tools import run_tool
from shoal.scenarios.kafka.ports import LOOPBACK
from tests.brokers.proxy.rig.batches import batch
from tests.brokers.proxy.rig.data import IN_TIME, Record, leaders, new_topic, produce, read, various
from tests.brokers.proxy.rig.feeder import Feeder
from tests.brokers.proxy.rig.frames import Closed, Entity, Wire, request, response
from tests.brokers.proxy.rig.stand import NODE_PORTS
from tests.support.shoal_process import running_shoal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster
    from tests.brokers.proxy.equivalence.comparison import Address
    from tests.brokers.proxy.rig.stand import Stand

    NewStand = Callable[..., Stand]

pytestmark = pytest.mark.kafka
NOT_LEADER_OR_FOLLOWER = 6
BROKER_RESOURCE = 4


def _ask(address: Address, api: str, version: int, body: dict[str, Any]) -> Entity:
    with Wire(*address) as wire:
        frame = wire.ask(request(api, version, body))
    assert not isinstance(frame, Closed), f"{address} closed the connection"
    return response(api, version, frame)


def _named(address: Address) -> dict[int, Address]:
    """The brokers in a client's metadata."""
    return {
        broker.node_id: (broker.host, broker.port) for broker in _ask(address, "metadata", 12, {"topics": []}).brokers
    }


def _is_node(address: Address, node_id: int) -> bool:
    """Only the broker itself describes its configuration."""
    resource = {"resource_type": BROKER_RESOURCE, "resource_name": str(node_id), "configuration_keys": ["node.id"]}
    (result,) = _ask(address, "describe_configs", 4, {"resources": [resource]}).results
    return bool(result.error_code == 0 and result.configs[0].value == str(node_id))


# -- ports -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL"])
async def test_brokers_keep_their_ports_over_a_restart(
    brokers: Cluster, new_stand: NewStand, tmp_path: Path, end: str
) -> None:
    stand = new_stand(ranged=True, state_dir=tmp_path / "state")
    with _taken(stand.plain + 1):  # else the first brokers would get the first ports
        await stand.shoal.start()
        before = _named((LOOPBACK, stand.plain))
    assert all(stand.is_ours(*address) for address in before.values())
    assert (LOOPBACK, stand.plain + 1) not in before.values()
    stand.shoal.kill() if end == "SIGKILL" else await stand.shoal.stop()
    async with running_shoal(stand.shoal):
        # A client with cached metadata reconnects before any client has requested metadata.
        assert all(_is_node(address, node_id) for node_id, address in before.items())
        assert _named((LOOPBACK, stand.plain)) == before


async def test_mapped_ports_are_open_from_the_start(brokers: Cluster, new_stand: NewStand) -> None:
    stand = new_stand()
    async with running_shoal(stand.shoal):
        assert _named(stand.broker(1)) == {node_id: stand.broker(node_id) for node_id in brokers.nodes}
        assert all(_is_node(stand.broker(node_id), node_id) for node_id in brokers.nodes)


async def test_a_broker_that_is_not_in_the_map_is_told(brokers: Cluster, new_stand: NewStand) -> None:
    stand = new_stand(mapped=[1, 2])
    async with running_shoal(stand.shoal):
        with Wire(LOOPBACK, stand.plain) as wire:
            assert wire.ask(request("metadata", 12, {"topics": []})) == Closed()
        await stand.shoal.until_logged("broker 3")
        assert "has no port" in stand.shoal.output()


@pytest.mark.parametrize("broker", [None, 2])
async def test_a_port_that_is_taken_is_told(new_stand: NewStand, broker: int | None) -> None:
    stand = new_stand()
    port = stand.plain if broker is None else stand.broker(broker)[1]
    with _taken(port):
        said = await stand.shoal.refuse_to_start()
    assert f"{LOOPBACK}:{port}" in said
    assert "Address already in use" in said
    assert "'plain'" in said
    assert broker is None or f"broker {broker}" in said


async def test_a_range_that_is_too_small_is_told(brokers: Cluster, new_stand: NewStand) -> None:
    stand = new_stand(ranged=True)
    with _taken(*range(stand.plain + 1, stand.plain + 1 + NODE_PORTS)):
        async with running_shoal(stand.shoal):
            with Wire(LOOPBACK, stand.plain) as wire:
                assert wire.ask(request("metadata", 12, {"topics": []})) == Closed()
            await stand.shoal.until_logged("set a larger range")


@contextmanager
def _taken(*ports: int) -> Iterator[None]:
    """Other processes listen on these."""
    others = [socket.create_server((LOOPBACK, port)) for port in ports]
    try:
        yield
    finally:
        for other in others:
            other.close()


# -- leaders -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(10, 14))
def test_produce_to_another_than_the_leader_names_shoal(brokers: Cluster, stand: Stand, version: int) -> None:
    """KIP-951, Produce v10+."""
    topic = {"name": new_topic(brokers, [[2]])}
    topic_id = _ask(stand.broker(1), "metadata", 12, {"topics": [topic]}).topics[0].topic_id
    data = {**topic, "topic_id": topic_id, "partition_data": [{"index": 0, "records": batch([b"lost"])}]}
    answer = _ask(stand.broker(1), "produce", version, {"acks": -1, "topic_data": [data]})
    (refused,) = answer.responses[0].partition_responses
    assert (refused.error_code, refused.current_leader.leader_id) == (NOT_LEADER_OR_FOLLOWER, 2)
    assert [(one.node_id, one.host, one.port) for one in answer.node_endpoints] == [(2, *stand.broker(2))]


@pytest.mark.parametrize("version", range(16, 19))
def test_fetch_from_another_than_the_leader_names_shoal(brokers: Cluster, stand: Stand, version: int) -> None:
    """KIP-951, Fetch v16+."""
    frame = _fetch(stand.broker(1), new_topic(brokers, [[2]]), (0,), version)
    answer = response("fetch", version, frame)
    (refused,) = answer.responses[0].partitions
    assert (refused.error_code, refused.current_leader.leader_id) == (NOT_LEADER_OR_FOLLOWER, 2)
    assert [(one.node_id, one.host, one.port) for one in answer.node_endpoints] == [(2, *stand.broker(2))]


@pytest.mark.parametrize("version", range(16, 19))
def test_a_streamed_fetch_answer_hides_the_address(brokers: Cluster, stand: Stand, version: int) -> None:
    """Too large to buffer: the tag of NodeEndpoints becomes unknown to clients; no other byte changes."""
    name = new_topic(brokers, [[1], [2]])
    produce(stand.bootstrap, name, [Record(None, bytes([number]) * 500_000) for number in range(8)])
    host, _, port = brokers.nodes[1].proxied_address.rpartition(":")
    direct = _fetch((host, int(port)), name, (0, 1), version)
    shoal = _fetch(stand.broker(1), name, (0, 1), version)
    assert len(direct) == len(shoal) > 4_000_000
    tag_at = direct.rindex(b"broker-2.shoal.test") - len(b"TSA0001L")  # tag, size, array, node id, length of the host
    assert direct[tag_at - 1 : tag_at + 1] == b"\1\0", "one tagged field, NodeEndpoints"
    assert shoal[tag_at] != 0
    assert direct[:tag_at] == shoal[:tag_at]
    assert direct[tag_at + 1 :] == shoal[tag_at + 1 :]


def _fetch(address: Address, topic: str, partitions: tuple[int, ...], version: int) -> bytes:
    topic_id = _ask(address, "metadata", 12, {"topics": [{"name": topic}]}).topics[0].topic_id
    wanted = [{"partition": number, "partition_max_bytes": 1 << 23} for number in partitions]
    body = {"max_bytes": 1 << 23, "min_bytes": 1, "topics": [{"topic_id": topic_id, "partitions": wanted}]}
    with Wire(*address) as wire:
        frame = wire.ask(request("fetch", version, body))
    assert not isinstance(frame, Closed)
    return frame


async def test_clients_follow_leaders_that_move(brokers: Cluster, stand: Stand, tmp_path: Path) -> None:
    topic = new_topic(brokers, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    in_thread = trio.to_thread.run_sync
    with Feeder(stand.bootstrap, topic, partitions=3) as feeder:
        for replicas in ([2, 3, 1], [3, 1, 2]):
            await in_thread(feeder.wait_for, feeder.acknowledged + 300)
            plan = _plan(tmp_path, topic, replicas)
            start = ("--bootstrap-server", stand.bootstrap, "--reassignment-json-file", str(plan))
            await run_tool("ReassignPartitionsCommand", *start, "--execute")
            await in_thread(_elect, stand, topic, replicas[0])
            await in_thread(feeder.wait_for, feeder.acknowledged + 300)
    assert await in_thread(partial(read, stand.bootstrap, topic, partitions=3)) == feeder.sent
    assert await in_thread(partial(read, brokers.bootstrap, topic, partitions=3)) == feeder.sent


def _plan(directory: Path, topic: str, replicas: list[int]) -> Path:
    path = directory / "plan.json"
    path.write_text(f'{{"version": 1, "partitions": [{{"topic": "{topic}", "partition": 0, "replicas": {replicas}}}]}}')
    return path


def _elect(stand: Stand, topic: str, leader: int) -> None:
    """Elect the preferred leader, the first of the replicas, until it leads."""
    admin = AdminClient(client_config(stand.bootstrap))
    deadline = monotonic() + IN_TIME
    while leaders(stand.cluster, topic)[0] != leader:
        assert monotonic() < deadline, leaders(stand.cluster, topic)
        admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(IN_TIME)


# -- brokers -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_broker_is_killed_and_comes_back(brokers: Cluster, stand: Stand) -> None:
    topic = new_topic(brokers, [[1, 2, 3], [2, 3, 1], [3, 1, 2]], {"min.insync.replicas": "2"})
    in_thread = trio.to_thread.run_sync
    victim = brokers.nodes[3]
    with Feeder(stand.bootstrap, topic, partitions=3) as feeder:
        await in_thread(feeder.wait_for, 300)
        victim.kill()
        try:
            await in_thread(feeder.wait_for, feeder.acknowledged + 300)
        finally:
            await victim.start()
            await brokers.wait_whole()
            await in_thread(_lead_as_before, brokers)
        await in_thread(feeder.wait_for, feeder.acknowledged + 300)
    assert await in_thread(partial(read, stand.bootstrap, topic, partitions=3)) == feeder.sent
    assert await in_thread(partial(read, brokers.bootstrap, topic, partitions=3)) == feeder.sent
    assert _is_node(stand.broker(3), 3)
    assert stand.shoal.running


def _lead_as_before(brokers: Cluster) -> None:
    """Wait until every partition, coordinators' partitions included, is led by its preferred leader again."""
    admin = AdminClient(client_config(brokers.bootstrap))
    deadline = monotonic() + IN_TIME
    while True:
        topics = admin.list_topics(timeout=IN_TIME).topics.values()
        if all(
            partition.leader == partition.replicas[0] for topic in topics for partition in topic.partitions.values()
        ):
            return
        assert monotonic() < deadline
        admin.elect_leaders(ElectionType.PREFERRED, None).result(IN_TIME)


async def test_a_new_broker_s_port_is_open_before_it_is_named(brokers: Cluster, new_stand: NewStand) -> None:
    stand = new_stand(ranged=True)
    async with running_shoal(stand.shoal):
        before = _named((LOOPBACK, stand.plain))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(brokers.add_broker)
            address = await trio.to_thread.run_sync(_wait_for_a_new_one, (LOOPBACK, stand.plain), set(before))
        (node_id,) = brokers.nodes.keys() - before.keys()
        topic = new_topic(brokers, [[node_id], [1]])
        sent = produce(stand.bootstrap, topic, various(200), partitions=2)
        assert read(stand.bootstrap, topic, partitions=2) == read(brokers.bootstrap, topic, partitions=2) == sent
        assert _is_node(address, node_id)
        assert _named((LOOPBACK, stand.plain)) == {**before, node_id: address}


def _wait_for_a_new_one(bootstrap: Address, known: set[int]) -> Address:
    """Poll until a new broker is named, and connect to it immediately."""
    deadline = monotonic() + 60
    while not (new := _named(bootstrap).keys() - known):
        assert monotonic() < deadline, known
    named = _named(bootstrap)
    (node_id,) = new
    Wire(*named[node_id]).close()
    return named[node_id]
