"""A second look at a broker finds its certificate, or that it does not use TLS; it is short, and its result is kept."""

from __future__ import annotations

import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
import trustme

from shoal.proxy.config.security import ClusterTls
from shoal.proxy.config.settings import Address
from shoal.proxy.net.tls.contexts import TlsContext
from shoal.proxy.net.tls.look import BrokerLook
from tests.support.certificates import ca_file, pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

CA = trustme.CA(organization_name="Good", organization_unit_name="CA")
OTHER = trustme.CA(organization_name="Other", organization_unit_name="CA")


@asynccontextmanager
async def broker(serve: Callable[[trio.SocketStream], Awaitable[None]]) -> AsyncIterator[tuple[Address, list[int]]]:
    """-> its address, and a list with an entry for each connection."""
    connections: list[int] = []

    async def accepted(stream: trio.SocketStream) -> None:
        connections.append(1)
        async with stream:
            await serve(stream)

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, accepted, [listener])
        yield Address("127.0.0.1", listener.socket.getsockname()[1]), connections
        nursery.cancel_scope.cancel()


async def be_silent(_: trio.SocketStream) -> None:
    await trio.sleep_forever()


def look_of(tmp_path: Path, seconds: float = 5) -> BrokerLook:
    return BrokerLook(TlsContext(ClusterTls(ca=ca_file(tmp_path, CA)), "cluster 'x'"), seconds=seconds)


def refusal(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, "words of OpenSSL"
    return error


async def test_a_refused_certificate_is_named(tmp_path: Path) -> None:
    files = pair(tmp_path, OTHER, "b1.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)

    async def serve(stream: trio.SocketStream) -> None:
        tls = trio.SSLStream(stream, context, server_side=True)
        await tls.do_handshake()
        with pytest.raises(trio.BrokenResourceError):
            await tls.receive_some(1)  # nothing is ever sent over such a connection

    async with broker(serve) as (address, connections):
        look = look_of(tmp_path)
        for _ in range(3):
            text = await look.explain(refusal(20), address, b"\x16\x03", "localhost")
            assert "CN=server" in text
            assert "signed by OU=CA,O=Other, which is not in " in text
        assert len(connections) == 1


async def test_a_plaintext_broker_is_named(tmp_path: Path) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        request = await stream.receive_some(1000)
        await stream.send_all((20).to_bytes(4) + request[8:12] + bytes(16))

    async with broker(serve) as (address, _):
        text = await look_of(tmp_path).explain(ConnectionResetError(), address, b"", "localhost")
        assert "the broker does not use TLS" in text


async def test_a_web_server_that_waits_for_the_end_of_a_line_is_named(tmp_path: Path) -> None:
    """As those of Java and Go do with a TLS hello."""

    async def serve(stream: trio.SocketStream) -> None:
        received = b""
        while b"\r\n\r\n" not in received:
            received += await stream.receive_some() or b"\r\n\r\n"
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with broker(serve) as (address, _):
        look = look_of(tmp_path)
        with pytest.raises(ConnectionAbortedError) as caught:
            await look.at_silence(address)
        assert "web server without TLS" in await look.explain(caught.value, address, b"", "localhost")


async def test_a_broker_that_only_closes_may_be_a_plaintext_one(tmp_path: Path) -> None:
    async def serve(_: trio.SocketStream) -> None:
        return

    async with broker(serve) as (address, _):
        text = await look_of(tmp_path).explain(ConnectionResetError(), address, b"", "localhost")
        assert "may be that of a plaintext listener" in text


async def test_a_silent_broker_costs_one_short_look(tmp_path: Path) -> None:
    async with broker(be_silent) as (address, connections):
        look = look_of(tmp_path, seconds=0.05)
        for _ in range(3):
            assert await look.plaintext(address) is None
            assert "its certificate" in await look.explain(refusal(10), address, b"\x16\x03", "localhost")
        assert len(connections) == 3  # for Kafka, for HTTP, for the certificate


async def test_a_broker_that_is_gone(tmp_path: Path) -> None:
    async with broker(be_silent) as (address, _):
        pass
    assert await look_of(tmp_path).plaintext(address) is None
