"""Routing by SNI: one port serves the whole cluster, and the name that a client asks for says which broker."""

from __future__ import annotations

import ssl
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import kio.schema.metadata.v10.response as metadata_v10
import kio.schema.metadata.v12.response as metadata_v12
import pytest
import trio

from shoal.protocol.schema.api import ApiKey
from shoal.proxy.cli.doctor.destinations import ShoalListeners, client_address
from shoal.proxy.config.security import Routing
from shoal.proxy.config.settings import ListenerSettings, Mode, PortMap
from shoal.proxy.net.tls.certificates import Certificate, covers
from tests.proxy.listener.test_plain import metadata
from tests.support.kio_messages import decode_response, response_frame
from tests.support.rig import (
    DEADLINE,
    BrokerSide,
    FakeBroker,
    Peer,
    Tls,
    api_key,
    correlation_id,
    request,
    response,
    rig,
    until,
)
from tests.support.tls import client_context, secured, server_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.rig import Rig

NAMES: dict[str, Any] = {
    "routing": Routing.SNI,
    "advertised_host": "shoal.test",
    "broker_host": "broker-{node}.shoal.test",
    "nodes": PortMap(ports={}),
}


def tagged(tag: bytes) -> Any:
    async def answer(side: BrokerSide, frame: bytes) -> None:
        await side.send(response(correlation_id(frame), tag))

    return answer


@asynccontextmanager
async def cluster(**of_listener: Any) -> AsyncIterator[tuple[Rig, FakeBroker]]:
    """A bootstrap broker and broker 7, which only metadata name. Each answers with its tag."""
    seventh = FakeBroker(tagged(b"seventh"), tls=server_context())

    async def answer(side: BrokerSide, frame: bytes) -> None:
        if api_key(frame) == ApiKey.METADATA:
            form = metadata_v10 if frame[7] == 10 else metadata_v12
            await side.send(response_frame(metadata((7, *seventh.address), response=form), correlation_id(frame)))
        else:
            await tagged(b"bootstrap")(side, frame)

    async with trio.open_nursery() as nursery:
        await nursery.start(seventh.run)
        async with rig(answer, tls=Tls.BOTH, **{**NAMES, **of_listener}) as r:
            yield r, seventh
        nursery.cancel_scope.cancel()


async def client_of(r: Rig, name: str | None) -> Peer:
    """Asks for `name`; without one it sends no SNI."""
    context = client_context()
    context.check_hostname = False
    stream = await r.clients.enter_async_context(await trio.open_tcp_stream("127.0.0.1", r.listener.port))
    with trio.fail_after(DEADLINE):
        return Peer(await r.clients.enter_async_context(await secured(stream, context, name=name)))


async def ask(client: Peer) -> bytes:
    await client.send(request(99, 0, 1))
    return (await client.frame())[8:]


@pytest.mark.parametrize("port", [None, 443])
async def test_metadata_name_brokers_and_each_name_leads_to_its_broker(port: int | None) -> None:
    async with cluster(advertised_port=port) as (r, _):
        client = await client_of(r, "shoal.test")
        await client.send(request(ApiKey.METADATA, 12, 5))
        (broker,) = decode_response(await client.frame(), metadata_v12.MetadataResponse).brokers
        assert (broker.node_id, broker.host, broker.port) == (7, "broker-7.shoal.test", port or r.listener.port)
        assert await ask(client) == b"bootstrap"
        assert await ask(await client_of(r, "Broker-7.shoal.test")) == b"seventh"


async def test_without_a_name_the_bootstrap_broker_answers() -> None:
    async with cluster() as (r, _):
        assert await ask(await client_of(r, None)) == b"bootstrap"


async def test_a_broker_that_is_not_known_is_asked_for() -> None:
    """A client with metadata of an earlier Shoal reaches its broker."""
    async with cluster() as (r, _):
        assert await ask(await client_of(r, "broker-7.shoal.test")) == b"seventh"
        assert await ask(await client_of(r, "broker-99.shoal.test")) == b"bootstrap"
        assert set(r.listener.ports.bound) == {None, 7}


async def test_a_broker_that_is_learned_while_it_drains() -> None:
    async with cluster() as (r, _):
        client = await client_of(r, "shoal.test")
        await client.send(request(ApiKey.METADATA, 12, 5)[:6])
        await until(lambda: bool(r.listener.connections) and r.connection.connected and r.connection.requests.mid_frame)
        r.server.drain()
        await client.send(request(ApiKey.METADATA, 12, 5)[6:])
        (broker,) = decode_response(await client.frame(), metadata_v12.MetadataResponse).brokers
        assert (broker.node_id, broker.host, broker.port) == (7, "broker-7.shoal.test", r.listener.port)
        assert await client.at_end()


async def test_an_unknown_name_is_refused_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as (r, seventh):
        with pytest.raises(trio.BrokenResourceError) as refused:
            await client_of(r, "elsewhere.test")
        assert isinstance(refused.value.__cause__, ssl.SSLError)
        assert refused.value.__cause__.reason == "TLSV1_UNRECOGNIZED_NAME"
        await r.closed()
        assert not [*r.broker.sides, *seventh.sides]
    assert "the client asks for the name 'elsewhere.test'" in caplog.text
    assert "known are shoal.test (advertise) and broker-{node}.shoal.test (broker-host)" in caplog.text


async def test_a_certificate_without_the_names_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster():
        pass
    assert "is not for shoal.test and broker-1.shoal.test, where clients connect" in caplog.text
    caplog.clear()
    async with cluster(advertised_host="localhost", broker_host="{node}.localhost"):
        pass
    assert "is not for 1.localhost, where clients connect" in caplog.text


@pytest.mark.parametrize(
    ("name", "covered"),
    [
        ("a.test", True),
        ("A.TEST", True),
        ("x.b.test", True),
        ("b.test", False),
        ("x.y.b.test", False),
        ("10.0.0.1", True),
        ("10.0.0.2", False),
    ],
)
def test_names_of_a_certificate(name: str, covered: bool) -> None:
    certificate = Certificate("CN=x", "CN=y", ("a.test", "*.B.test", "10.0.0.1"), 0, 1, b"", None, b"")
    assert covers(certificate, name) is covered


def test_the_mirror_may_use_all_names() -> None:
    listener = ListenerSettings(
        name="x",
        cluster="c",
        host="10.0.0.1",
        port=9093,
        routing=Routing.SNI,
        advertised_host="shoal.test",
        broker_host="broker-{node}.shoal.test",
        advertised_port=443,
    )
    other = ListenerSettings(name="y", cluster="c", port=1)
    shoal = ShoalListeners(wrap=replace(listener, mode=Mode.WRAP), unwrap=other)
    assert client_address(listener) == "shoal.test:443"
    found = shoal.destinations("shoal.test:443,broker-7.shoal.test:443,10.0.0.1:9093,elsewhere.test:443,shoal.test:1")
    assert [destination.value for destination in found.values()] == ["wrap"] * 3 + ["direct"] * 2
