"""Shoal between a client and a broker that speak TLS, or one of them."""

from __future__ import annotations

import random
import socket
import ssl
import struct
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing
import trustme

from shoal.proxy.config.security import ClientAuth
from shoal.proxy.config.settings import MIB, Limits
from shoal.proxy.net.tls.contexts import TlsContext
from shoal.proxy.net.tls.handshake import Sessions, connect_tls, note_asked_name
from shoal.proxy.net.transport import until_readable
from shoal.proxy.statistics import CloseCause
from tests.support.certificates import Strange, ca_file, strange
from tests.support.held_answers import HeldAnswers
from tests.support.rig import (
    DEADLINE,
    BrokerSide,
    FakeBroker,
    Peer,
    Tls,
    correlation_id,
    request,
    response,
    rig,
    until,
)
from tests.support.tls import TlsStream, client_context, listener_tls, renegotiate, secured

if TYPE_CHECKING:
    from pathlib import Path


UNKNOWN_KEY = 99
CA = trustme.CA(organization_name="Example CA")


@pytest.mark.parametrize("tls", [*list(Tls), Tls.BOTH])
async def test_frames_of_every_size_pass_both_ways(tls: Tls) -> None:
    async with rig(tls=tls) as r:
        client = await r.client()
        rng = random.Random(1)
        for number, size in enumerate((0, 1, 100, 16_384, 16_385, 300_000, 5 * MIB)):
            body = rng.randbytes(size)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.send_in_chunks, request(UNKNOWN_KEY, 0, number, body), rng)
                assert (await client.frame()) == response(number, b"\0\4test" + body)


async def test_a_client_that_does_not_read_pauses_its_broker() -> None:
    """And when it reads again, it gets every byte, in order."""
    size = 32 * MIB
    payload = random.Random(1).randbytes(MIB)

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await broker.send(struct.pack(">ii", 4 + size, correlation_id(frame)))
        for _ in range(size // MIB):
            await broker.stream.send_all(payload)

    async with rig(answer, tls=Tls.BOTH) as r:
        client = await r.client()
        await client.send(request(UNKNOWN_KEY, 0, 1))
        await until(lambda: bool(r.listener.connections) and r.connection.connected and r.connection.client_out.blocked)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert r.connection.responses.received < size // 2
        assert await client.read(8) == struct.pack(">ii", 4 + size, 1)
        for _ in range(size // MIB):
            assert await client.read(MIB) == payload


async def test_requests_and_answers_at_the_same_time() -> None:
    """Both directions are full: no write waits for a read, and no read for a write."""
    count, body = 40, bytes(range(256)) * 1024

    async with rig(tls=Tls.BOTH) as r:
        client = await r.client()

        async def send() -> None:
            for number in range(count):
                await client.send(request(UNKNOWN_KEY, 0, number, body))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            for number in range(count):
                assert await client.frame() == response(number, b"\0\4test" + body)


async def test_a_client_cannot_renegotiate() -> None:
    async with rig(tls=Tls.TO_CLIENTS) as r:
        sock = socket.create_connection(("127.0.0.1", r.listener.port))
        sock.setblocking(False)
        client = await connect_tls(sock, client_context(ssl.TLSVersion.TLSv1_2), "localhost", "shoal", Sessions())
        with closing(client), trio.fail_after(DEADLINE):
            renegotiate(client.tls)
            client._send_control()
            await until_readable(client)
            with pytest.raises(ssl.SSLError, match="NO_RENEGOTIATION"):
                client.recv_into(memoryview(bytearray(100)))


async def test_a_client_that_never_greets_is_closed_after_the_login_timeout() -> None:
    async with rig(tls=Tls.BOTH, limits=Limits(login_timeout=0.1)) as r:
        stream = await trio.open_tcp_stream("127.0.0.1", r.listener.port)
        async with stream:
            with trio.fail_after(DEADLINE):
                assert await stream.receive_some() == b""
        assert await r.closed() == {CloseCause.LOGIN_TIMEOUT: 1}
        assert not r.broker.sides
        assert not r.listener.tally.active


async def test_a_drain_does_not_wait_for_handshakes() -> None:
    async with rig(tls=Tls.BOTH, limits=Limits(drain_seconds=1000)) as r:
        stream = await trio.open_tcp_stream("127.0.0.1", r.listener.port)
        async with stream:
            await stream.send_all(b"\x16\x03\x01")
            await trio.testing.wait_all_tasks_blocked(0.01)
            r.server.drain()
            with trio.fail_after(DEADLINE):
                assert await stream.receive_some() == b""


@pytest.mark.parametrize("first", [b"\0\0\0\x10" + bytes(16), b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-x\r\n"])
async def test_a_client_without_tls_is_refused_in_words(first: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with rig(tls=Tls.BOTH) as r:
        stream = await trio.open_tcp_stream("127.0.0.1", r.listener.port)
        async with stream:
            await stream.send_all(first)
            with trio.fail_after(DEADLINE):
                while await stream.receive_some():  # an alert
                    pass
        assert await r.closed() == {CloseCause.HANDSHAKE_FAILED: 1}
    assert "TLS handshake failed: the client" in caplog.text


@pytest.mark.parametrize("kind", Strange)
async def test_a_certificate_that_only_openssl_can_read(
    kind: Strange, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A client with it is served, unless its name is what cannot be read: that is no error in Shoal."""
    files = strange(tmp_path, CA, kind)
    context = client_context()
    context.load_cert_chain(files.certificate, files.key)
    own = listener_tls(client_ca=ca_file(tmp_path, CA), client_auth=ClientAuth.REQUIRED)
    async with rig(tls=Tls.TO_BROKER) as r:
        settings = replace(r.listener.settings, tls=own)
        tls = TlsContext(own, "listener 'test'", prepare=note_asked_name)
        r.listener.reception.use(settings, r.listener.limits, tls)
        stream = await trio.open_tcp_stream("127.0.0.1", r.listener.port)
        client = Peer(await r.clients.enter_async_context(await secured(stream, context)))
        if kind is Strange.NAMES:
            await client.send(request(UNKNOWN_KEY, 0, 1))
            assert await client.frame() == response(1, b"\0\4test")
            assert r.connection.principal == "CN=strange"
        else:
            assert await client.at_end()
            assert await r.closed() == {CloseCause.HANDSHAKE_FAILED: 1}
            assert "the subject of the client's certificate cannot be read" in caplog.text
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("kind", Strange)
async def test_a_broker_with_a_certificate_that_only_openssl_can_read(
    kind: Strange, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is of an unknown CA, so Shoal looks at it once more: that is no error in Shoal, and others are served."""
    files = strange(tmp_path, CA, kind)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    async with rig(tls=Tls.TO_BROKER, broker=FakeBroker(tls=context)) as r:
        client = await r.client()
        await client.send(request(UNKNOWN_KEY, 0, 1))
        assert await client.at_end()
        assert await r.closed() == {CloseCause.UPSTREAM_UNREACHABLE: 1}
    named = "its certificate CN=strange is signed by" if kind is Strange.NAMES else "its certificate is of no CA in"
    assert named in caplog.text
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_port_scan_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    async with rig(tls=Tls.BOTH) as r:
        await (await trio.open_tcp_stream("127.0.0.1", r.listener.port)).aclose()
        assert await r.closed() == {CloseCause.CLIENT_CLOSED: 1}
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


async def test_a_broker_that_closes_in_the_middle_of_the_handshake(caplog: pytest.LogCaptureFixture) -> None:
    async with rig(tls=Tls.TO_BROKER) as r:
        listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
        (cluster,) = r.server.clusters.values()
        cluster.bootstrap = (cluster.bootstrap[0]._replace(port=listener.socket.getsockname()[1]),)

        async def close(stream: trio.SocketStream) -> None:
            await stream.receive_some()
            await stream.send_all(b"\x16\x03\x03")
            await stream.aclose()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, close, [listener])
            client = await r.client()
            await client.send(request(UNKNOWN_KEY, 0, 1))
            assert await client.at_end()
            assert await r.closed() == {CloseCause.UPSTREAM_UNREACHABLE: 1}
            nursery.cancel_scope.cancel()
    assert "handshake" in caplog.text


async def test_a_client_that_leaves_during_the_handshake_with_the_broker() -> None:
    """The handshake with the broker is given up when Shoal ends; nothing is left behind."""
    async with rig(tls=Tls.TO_BROKER) as r:
        listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
        async with listener:
            (cluster,) = r.server.clusters.values()
            cluster.bootstrap = (cluster.bootstrap[0]._replace(port=listener.socket.getsockname()[1]),)
            client = await r.client()
            await client.send(request(UNKNOWN_KEY, 0, 1))
            await until(lambda: bool(r.listener.connections))
            r.server.drain()
            assert await client.at_end()
            await client.stream.aclose()
            assert await r.closed() == {CloseCause.DRAINED: 1}


async def test_a_broker_that_refuses_in_the_middle_is_blamed_also_if_a_request_finds_it() -> None:
    """While the answers before are not read."""
    held = HeldAnswers(UNKNOWN_KEY)

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await broker.send(response(correlation_id(frame)))
        await held.is_held.wait()
        assert isinstance(broker.stream, TlsStream)
        await broker.stream.tls.transport_stream.send_all(b"\x15\x03\x03\0\2\2\x30")  # an alert in plain text
        broker.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await broker.stream.tls.transport_stream.aclose()

    async with rig(answer, path=held.path, tls=Tls.TO_BROKER) as r:
        client = await r.client()
        await client.send(request(UNKNOWN_KEY, 0, 1))
        await until(lambda: r.broker.ended == 1)
        await client.send(request(UNKNOWN_KEY, 0, 2))
        assert await r.closed() == {CloseCause.UPSTREAM_PROTOCOL: 1}
