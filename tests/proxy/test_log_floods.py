"""Lines that a client or a broker could cause without a bound are limited, and state how many are missing."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import trio

from shoal.protocol.schema.api import ApiKey
from shoal.proxy.config.settings import Address, PortMap
from shoal.proxy.connection.clients import Clients, FirstUses
from shoal.proxy.legacy.clients import LegacyClients
from shoal.proxy.statistics import CloseCause
from tests.support.batches import damaged
from tests.support.rig import request, rig
from tests.support.shallow.batches import BATCHES, outer
from tests.support.shallow.rig import shallow_rig
from tests.support.shoal_process import free_port_block

if TYPE_CHECKING:
    import pytest
    from trio.testing import MockClock


def ids(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.event for record in caplog.records]  # type: ignore[attr-defined]


async def test_complaints_with_texts_of_clients(caplog: pytest.LogCaptureFixture) -> None:
    async with rig() as r:
        for number in range(1000):
            r.listener.complain("broker-login-refused", f"a client wants {number}", mechanism=str(number))
    assert ids(caplog) == ["broker-login-refused"] * 20


async def test_errors_of_a_partition_that_a_mirror_retries(caplog: pytest.LogCaptureFixture) -> None:
    async with shallow_rig() as r:
        client = await r.producer()
        for _ in range(30):
            await client.produce(damaged(outer(*BATCHES), -200))
            await client.answers()
    assert ids(caplog).count("partition-refused") == 1


async def test_a_cluster_that_each_client_connection_asks_for_its_brokers(caplog: pytest.LogCaptureFixture) -> None:
    port, unused = free_port_block(2), free_port_block(1)
    async with rig(nodes=PortMap(ports={2: port})) as r:
        r.listener.cluster.bootstrap = (Address("127.0.0.1", unused),)
        for number in range(30):
            client = await r.client(port)
            await client.send(request(300, 0, number, b""))
            assert await client.at_end()
        assert await r.closed(30) == {CloseCause.UPSTREAM_UNREACHABLE: 30}
    assert ids(caplog).count("cluster-unreachable") == 1


async def test_a_cluster_and_its_topics_that_change_with_each_answer(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """As if the bootstrap addresses led to two clusters."""
    caplog.set_level("INFO")
    async with rig() as r:
        cluster = r.listener.cluster
        for number in range(100):
            topics = [("t", bytes([number + 1] * 16))]
            answer: Any = SimpleNamespace(cluster_id=f"c{number % 2}", topics=topics, partition_counts=[1])
            cluster.learn(answer)
        assert ids(caplog) == ["cluster-id-changed", "topic-recreated", "cluster-id-changed"]
        mock_clock.jump(60)
        answer.cluster_id = "c0"
        cluster.learn(answer)
        assert caplog.messages[-1].endswith("(97 more of this kind since the last such line)")


async def test_old_clients_with_another_client_id_each_time(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """None is lost: those that a second has no line for have one in the next."""
    caplog.set_level("INFO")
    clients, every = LegacyClients("old"), Clients()
    for number in range(100):
        connection: Any = Client(f"client {number}", every)
        every.first_use(connection, "old", request(ApiKey.FETCH, 1, 1))
        clients.translated(connection)
    mock_clock.jump(10)
    for seconds in (1, 2):
        clients.tick(trio.current_time())
        assert len(caplog.messages) == seconds * 5
    clients.tick(inf)
    assert len(set(caplog.messages)) == 100


class Client:
    def __init__(self, client_id: str, clients: Clients) -> None:
        self.client_id = client_id
        self.principal = None
        self.peer = Address("10.0.0.1", 1)
        self.first_uses = FirstUses()
        self.listener = SimpleNamespace(clients=clients)
