"""A client that resets its connection cancels what the broker has not begun, through Shoal as directly; one that closes
does not."""

from __future__ import annotations

import socket
import struct
import uuid
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING

import pytest
import trio
from confluent_kafka import Consumer, TopicPartition

from shoal.scenarios.kafka.content.clients import client_config
from tests.brokers.proxy.rig.data import IN_TIME, new_topic
from tests.brokers.proxy.rig.frames import Closed, Wire, request, response
from tests.support.shoal_process import running_shoal

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.scenarios.kafka.broker import Cluster
    from tests.brokers.proxy.rig.stand import Stand

pytestmark = pytest.mark.kafka
in_thread = trio.to_thread.run_sync
TIMES = 6
WAIT = timedelta(seconds=1)  # much longer than a busy machine needs between sending and resetting


def coordinator(brokers: Cluster, group: str) -> int:
    host, _, port = brokers.nodes[1].address.rpartition(":")
    deadline = monotonic() + IN_TIME
    while True:
        with Wire(host, int(port)) as wire:
            frame = wire.ask(request("find_coordinator", 0, {"key": group}))
        assert not isinstance(frame, Closed)
        found = response("find_coordinator", 0, frame)
        if not found.error_code:
            return int(found.node_id)
        assert monotonic() < deadline, found
        sleep(0.1)


def groups_of(brokers: Cluster, node_id: int) -> list[str]:
    found: list[str] = []
    while len(found) < TIMES:
        group = f"g-{uuid.uuid4().hex[:12]}"
        if coordinator(brokers, group) == node_id:
            found.append(group)
    return found


def commit(group: str, topic: str) -> bytes:
    partitions = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}]
    topics = [{"name": topic, "partitions": partitions}]
    return request("offset_commit", 5, {"group_id": group, "generation_id": -1, "member_id": "", "topics": topics})


def waiting_fetch(topic: str) -> bytes:
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    topics = [{"topic": topic, "partitions": partitions}]
    return request(
        "fetch", 4, {"replica_id": -1, "max_wait": WAIT, "min_bytes": 1, "max_bytes": 1 << 20, "topics": topics}
    )


def executed(brokers: Cluster, address: tuple[str, int], *, reset: bool) -> int:
    """The number of commits executed that were queued after a Fetch when the client disconnected."""
    topic, groups = new_topic(brokers, [[1]]), groups_of(brokers, 1)
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(address)) for _ in groups]
        for group, client in zip(groups, clients, strict=True):
            client.sendall(waiting_fetch(topic) + commit(group, topic))
        sleep(0.1)  # both of each have reached the broker, which holds the Fetch
        for client in clients:
            if reset:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                client.shutdown(socket.SHUT_WR)
        for client in clients:
            while not reset and client.recv(65536):
                pass
    sleep(2 * WAIT.total_seconds() if reset else 0.0)  # what would be executed has been
    return sum(_committed(brokers, group, topic) for group in groups)


def _committed(brokers: Cluster, group: str, topic: str) -> bool:
    consumer = Consumer({**client_config(brokers.bootstrap), "group.id": group})
    try:
        (place,) = consumer.committed([TopicPartition(topic, 0)], IN_TIME)
    finally:
        consumer.close()
    return bool(place.offset == 7)


LISTENERS: dict[str, dict[str, object]] = {
    "plain": {},
    "legacy": {"legacy": True},
    "coalescing": {"coalescing": {"ignore-client-ids": True}},
}


@pytest.mark.parametrize(
    "kind", ["plain", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("legacy", "coalescing"))]
)
async def test_what_a_reset_takes_back(brokers: Cluster, new_stand: Callable[..., Stand], kind: str) -> None:
    stand = new_stand(**LISTENERS[kind])
    host, _, port = brokers.nodes[1].address.rpartition(":")
    direct = partial(executed, brokers, (host, int(port)))
    async with running_shoal(stand.shoal):
        through = partial(executed, brokers, stand.broker(1))
        counts = {
            (name, reset): await in_thread(partial(call, reset=reset))
            for name, call in (("direct", direct), ("through", through))
            for reset in (True, False)
        }
    print(kind, counts)
    assert counts["direct", True] == counts["through", True] == 0
    assert counts["direct", False] == counts["through", False] == TIMES
