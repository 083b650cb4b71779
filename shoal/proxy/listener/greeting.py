"""From an accepted socket to a `Client`, within the login deadline of its guest.

[PROXY protocol header] ──> [TLS handshake] ──> Client
"""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import trio
from trio.lowlevel import wait_readable

from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.proxy_protocol import LONGEST, read_proxy_header
from shoal.proxy.config.settings import Address
from shoal.proxy.listener.addresses import Networks, plain_host
from shoal.proxy.listener.server_names import UnknownName, names_of
from shoal.proxy.net.client import Client
from shoal.proxy.net.transport import make_reset, tune
from shoal.proxy.statistics import CloseCause

if TYPE_CHECKING:
    from shoal.protocol.wire.proxy_protocol import ProxyHeader
    from shoal.proxy.config.settings import Limits, ListenerSettings
    from shoal.proxy.listener.admission import Guest
    from shoal.proxy.net.tls.contexts import TlsContext

__all__ = ["Greeting", "GreetingFailed"]

_NO_HEADER = (
    "{error}: proxy-protocol has this address, so each connection must begin with one. Turn it on in the load balancer "
    "(HAProxy: send-proxy-v2), or remove the address"
)


class GreetingFailed(Exception):
    """The client does not get as far as its first request."""

    def __init__(self, cause: CloseCause, words: str = "") -> None:
        super().__init__(words)
        self.cause = cause


class Greeting:
    """How connections of a listener begin."""

    def __init__(self, settings: ListenerSettings, limits: Limits, tls: TlsContext | None = None) -> None:
        self._limits = limits
        self._tls = tls
        self._names = names_of(settings)
        self._balancers = Networks(settings.proxy_protocol)

    def begins_with_header(self, host: str) -> bool:
        """True for a load balancer: a PROXY protocol header is required, and has the client's address."""
        return bool(self._balancers) and host in self._balancers

    @property
    def has_handshake(self) -> bool:
        return self._tls is not None

    def now(self, sock: socket.socket) -> Client:
        """A client of which nothing but its socket is known. Raises OSError if it has left already."""
        tune(sock, self._limits)
        host, port = sock.getpeername()[:2]
        local_host = plain_host(sock.getsockname()[0])
        return Client(transport=sock, peer=Address(plain_host(host), port), local_host=local_host)

    async def secure(self, client: Client, sock: socket.socket) -> Client:
        """After the handshake, if there is one. Raises OSError and GreetingFailed."""
        return client if self._tls is None else await self._secure(client, sock, self._tls)

    async def _secure(self, client: Client, sock: socket.socket, tls: TlsContext) -> Client:
        from shoal.proxy.net.tls.explain import Failure, explain_client
        from shoal.proxy.net.tls.handshake import HandshakeFailed, accept_tls, principal_of

        await wait_readable(sock)  # a silent client costs no TLS state: ~30 KiB
        try:
            transport = await accept_tls(sock, tls.context)
        except HandshakeFailed as failed:
            words = self._unknown_name(failed.asked_name) or explain_client(
                Failure(failed.cause, failed.received, failed.shown()), tls, time.time()
            )
            cause = CloseCause.CLIENT_CLOSED if words is None else CloseCause.HANDSHAKE_FAILED
            raise GreetingFailed(cause, words or "") from failed
        try:
            principal = principal_of(transport, tls)
        except ValueError as error:
            what = f"the subject of the client's certificate cannot be read ({error}): give it another certificate"
            raise GreetingFailed(CloseCause.HANDSHAKE_FAILED, what) from error
        return replace(client, transport=transport, principal=principal, server_name=transport.asked_name)

    def _unknown_name(self, asked: str | None) -> str | None:
        """With routing by SNI: what to log about a name that leads to no broker."""
        try:
            if self._names is not None:
                self._names.node(asked)
        except UnknownName as error:
            return str(error)
        return None

    async def behind_balancer(self, client: Client, sock: socket.socket, guest: Guest) -> Client:
        """The client that a header tells of; it counts for its own address from now on. Raises OSError and
        GreetingFailed."""
        try:
            header = await _read_header(sock)
        except RemoteProtocolError as error:
            raise GreetingFailed(CloseCause.CLIENT_PROTOCOL, _NO_HEADER.format(error=error)) from error
        if header.host is None:
            return client
        host = plain_host(header.host)
        refusal = guest.comes_from(host, trio.current_time())
        if refusal is not None:
            make_reset(sock)
            raise GreetingFailed(refusal, f"{host} behind {client.peer}")
        return replace(client, peer=Address(host, header.port), balancer=client.peer)


async def _read_header(sock: socket.socket) -> ProxyHeader:
    """Read the header and no byte behind it. Raises RemoteProtocolError, GreetingFailed and OSError."""
    head = b""
    while True:
        await wait_readable(sock)
        more = sock.recv(LONGEST - len(head), socket.MSG_PEEK)
        if not more:
            raise GreetingFailed(CloseCause.CLIENT_CLOSED)
        header = read_proxy_header(head + more)
        sock.recv(len(more) if header is None else header.size - len(head))
        if header is not None:
            return header
        head += more
