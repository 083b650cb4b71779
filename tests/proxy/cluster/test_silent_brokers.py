"""A bootstrap broker that accepts connections and answers nothing: the cluster is found by the others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import trio

from shoal.proxy.cluster.brokers import NoAnswer
from shoal.proxy.cluster.cluster import Cluster, NotLearned
from shoal.proxy.config.security import ClusterTls
from shoal.proxy.config.settings import Address, ClusterSettings, Limits
from shoal.proxy.listener.login.versions import BrokerVersions
from shoal.proxy.net.upstream import UpstreamUnreachable
from shoal.proxy.shallow.leaders import Leaders
from tests.support.rig import DEADLINE, FakeBroker, fake_broker, request, rig, silent, until
from tests.support.tls import cluster_tls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KEY = 300


@pytest.fixture
async def hung() -> AsyncIterator[FakeBroker]:
    async with fake_broker() as broker:
        broker.answer = silent
        yield broker


@pytest.fixture
async def well() -> AsyncIterator[FakeBroker]:
    async with fake_broker() as broker:
        yield broker


@pytest.fixture
async def frozen() -> AsyncIterator[Address]:
    """Its kernel completes the TCP handshake, and nothing completes that of TLS."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        yield Address(*listener.socket.getsockname())


def cluster_of(*brokers: FakeBroker) -> Cluster:
    return cluster_at(*(broker.address for broker in brokers))


def cluster_at(*addresses: Address, tls: ClusterTls | None = None) -> Cluster:
    return Cluster(ClusterSettings(name="c", bootstrap=addresses, tls=tls), Limits(connect_timeout=0.05))


async def test_a_client_without_an_answer_gets_another_broker_when_it_connects_again(well: FakeBroker) -> None:
    async with rig(silent) as r:
        r.listener.cluster.bootstrap = (r.broker.address, well.address)
        client = await r.client()
        await client.send(request(KEY, 0, 1))
        await until(lambda: len(r.broker.received) == 1)
        await client.leave()
        await r.closed()
        client = await r.client()
        await client.send(request(KEY, 0, 2, b"again"))
        assert (await client.frame())[8:] == well.received[0][12:]


async def test_a_client_with_an_answer_leaves_the_order_as_it_is(well: FakeBroker) -> None:
    async with rig() as r:
        r.listener.cluster.bootstrap = order = (r.broker.address, well.address)
        client = await r.client()
        await client.send(request(KEY, 0, 1))
        await client.frame()
        await client.leave()
        await r.closed()
        assert r.listener.cluster.bootstrap == order


async def test_a_client_that_leaves_within_its_request_leaves_the_order_as_it_is(well: FakeBroker) -> None:
    async with rig() as r:
        r.listener.cluster.bootstrap = order = (r.broker.address, well.address)
        client = await r.client()
        await client.send(request(KEY, 0, 1)[:-1])
        await until(lambda: bool(r.broker.sides))
        await client.leave()
        await r.closed()
        assert r.listener.cluster.bootstrap == order


async def test_a_client_that_resets_its_connection_leaves_the_order_as_it_is(well: FakeBroker) -> None:
    """A broker that answers would be tried behind one that does not."""
    async with rig(silent) as r:
        r.listener.cluster.bootstrap = order = (r.broker.address, well.address)
        client = await r.client()
        await client.send(request(KEY, 0, 1))
        await until(lambda: len(r.broker.received) == 1)
        await client.reset()
        await r.closed()
        assert r.listener.cluster.bootstrap == order


async def test_shoals_own_questions_go_to_another_broker(hung: FakeBroker, well: FakeBroker) -> None:
    leaders = Leaders(cluster_of(hung, well))
    with trio.move_on_after(DEADLINE) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(leaders.exchange, None, request(KEY, 0, 1))
            await until(lambda: len(hung.received) == 1)
            nursery.cancel_scope.cancel()
        assert (await leaders.exchange(None, request(KEY, 0, 2, b"again")))[8:] == well.received[0][12:]
        leaders.close()
    assert not scope.cancelled_caught


async def test_they_end_without_an_answer(hung: FakeBroker, well: FakeBroker) -> None:
    """Else `shoal translate` would wait for ever for a broker that hangs."""
    leaders = Leaders(cluster_of(hung, well), patience=0.1)
    with pytest.raises(NoAnswer, match=r"no answer within 0\.1 s"):
        await leaders.learn(["orders"])
    assert (await leaders.exchange(None, request(KEY, 0, 2, b"again")))[8:] == well.received[0][12:]
    leaders.close()


async def test_a_discovery_without_an_answer_begins_elsewhere_the_next_time(hung: FakeBroker, well: FakeBroker) -> None:
    cluster = cluster_of(hung, well)
    with pytest.raises(NotLearned, match="no answer in time"):
        await cluster.ask_metadata()
    assert cluster.bootstrap == (well.address, hung.address)


async def test_so_does_the_question_before_a_login(hung: FakeBroker, well: FakeBroker) -> None:
    cluster = cluster_of(hung, well)
    with pytest.raises(UpstreamUnreachable, match="did not answer"):
        await BrokerVersions(cluster).answer(None, 3)
    assert cluster.bootstrap == (well.address, hung.address)


async def test_a_broker_that_does_not_answer_while_connected_to_is_tried_last(
    frozen: Address, well: FakeBroker
) -> None:
    cluster = cluster_at(frozen, well.address, tls=cluster_tls())
    with pytest.raises(UpstreamUnreachable, match="no answer within"):
        await cluster.upstream.connect([frozen])
    assert cluster.bootstrap == (well.address, frozen)


async def test_so_it_is_for_a_question_with_less_time_than_a_connection(frozen: Address, well: FakeBroker) -> None:
    """Else the question before a login would never get further than to this one."""
    cluster = cluster_at(frozen, well.address, tls=cluster_tls())
    cluster.prepare(cluster.settings, Limits(connect_timeout=DEADLINE, login_timeout=0.1))()
    with pytest.raises(UpstreamUnreachable, match="did not answer ApiVersions within"):
        await BrokerVersions(cluster).answer(None, 3)
    assert cluster.bootstrap == (well.address, frozen)


async def test_a_reload_keeps_the_order_of_the_same_addresses(hung: FakeBroker, well: FakeBroker) -> None:
    cluster = cluster_of(hung, well)
    cluster.did_not_answer(hung.address)
    cluster.prepare(cluster.settings, Limits())()
    assert list(cluster.bootstrap) == [well.address, hung.address]
    cluster.prepare(replace(cluster.settings, bootstrap=(hung.address,)), Limits())()
    assert list(cluster.bootstrap) == [hung.address]


async def test_a_reload_with_another_access_still_notes_what_cannot_be_reached(frozen: Address) -> None:
    cluster = cluster_at(frozen, tls=cluster_tls())
    cluster.prepare(replace(cluster.settings, tls=ClusterTls()), cluster.limits)()
    with pytest.raises(UpstreamUnreachable) as raised:
        await cluster.upstream.connect([frozen])
    assert cluster.status()["last_connect_failed"] == str(raised.value)
