"""TLS for rigs: certificates, settings for both sides of Shoal, and streams of the other side (trio's own TLS)."""

from __future__ import annotations

import _ssl
import atexit
import ctypes
import shutil
import ssl
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from shoal.proxy.config.security import ClusterTls, ListenerTls
from shoal.scenarios.kafka.security.certificates import Authority

if TYPE_CHECKING:
    from shoal.scenarios.kafka.security.certificates import Identity

__all__ = [
    "TlsStream",
    "authority",
    "client_context",
    "cluster_tls",
    "key_update",
    "listener_tls",
    "openssl",
    "renegotiate",
    "secured",
    "server_context",
    "server_identity",
]


@cache
def authority() -> Authority:
    home = Path(tempfile.mkdtemp(prefix="shoal-test-tls-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return Authority.create(home)


@cache
def server_identity() -> Identity:
    return authority().server("localhost", "127.0.0.1")


def client_context(version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority().certificate)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


def server_context(version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(server_identity().certificate, server_identity().key)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


def openssl(tls: ssl.SSLObject, function: str, *arguments: int) -> int:
    """Call a function of OpenSSL for a connection that Python's `ssl` does not offer."""
    connection = ctypes.c_void_p.from_address(id(tls._sslobj) + 3 * ctypes.sizeof(ctypes.c_void_p))  # type: ignore[attr-defined]
    return int(getattr(ctypes.CDLL(_ssl.__file__), function)(connection, *arguments))


def key_update(tls: ssl.SSLObject) -> None:
    """In TLS 1.3; the other side must update its key as well."""
    assert openssl(tls, "SSL_key_update", 1)
    assert openssl(tls, "SSL_do_handshake") == 1


def renegotiate(tls: ssl.SSLObject) -> None:
    """In TLS 1.2."""
    assert openssl(tls, "SSL_renegotiate")
    openssl(tls, "SSL_do_handshake")


def listener_tls(**more: object) -> ListenerTls:
    identity = server_identity()
    return ListenerTls(certificate=identity.certificate, key=identity.key, **more)  # type: ignore[arg-type]


def cluster_tls(**more: object) -> ClusterTls:
    return ClusterTls(ca=authority().certificate, **more)  # type: ignore[arg-type]


class TlsStream(trio.abc.HalfCloseableStream):
    """Like a `trio.SocketStream`. A half-close is a FIN without close_notify."""

    def __init__(self, stream: trio.SSLStream[trio.SocketStream]) -> None:
        self.tls = stream
        self.setsockopt = stream.transport_stream.setsockopt
        self.socket = stream.transport_stream.socket

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self.tls.send_all(bytes(data))

    async def wait_send_all_might_not_block(self) -> None:
        await self.tls.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self.tls.receive_some(max_bytes)

    async def send_eof(self) -> None:
        await self.tls.transport_stream.send_eof()

    async def aclose(self) -> None:
        await self.tls.aclose()


async def secured(
    stream: trio.SocketStream, context: ssl.SSLContext, *, server_side: bool = False, name: str | None = "localhost"
) -> TlsStream:
    """After the handshake. A client asks for `name`."""
    name = None if server_side else name
    tls = trio.SSLStream(stream, context, server_hostname=name, server_side=server_side, https_compatible=True)
    await tls.do_handshake()
    return TlsStream(tls)
