"""How the brokers of one cluster are reached, with one identity.

    addresses in turn ──> TCP ──> TLS ──> login ──> BrokerConnection

All of it must be done within the connect timeout of an address. Everything that connects to a broker does so here: the
ports of listeners, discovery, coalescing lanes, down-conversion, `shoal probe`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import trio

from shoal.proxy.net.connect import RecentAddresses, connect, require_host

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Sequence

    from shoal.protocol.wire.types import Buffer
    from shoal.proxy.config.settings import Address, Limits
    from shoal.proxy.net.tls.contexts import TlsContext
    from shoal.proxy.net.tls.handshake import Sessions
    from shoal.proxy.net.tls.look import BrokerLook
    from shoal.proxy.net.transport import SocketTransport

__all__ = [
    "BrokerConnection",
    "Contact",
    "Login",
    "LoginFailed",
    "Session",
    "Upstream",
    "UpstreamFault",
    "UpstreamLost",
    "UpstreamRefused",
    "UpstreamUnreachable",
]


class UpstreamLost(Exception):
    """The broker's connection ended before its answer arrived: it is unknown whether the request was processed."""


class UpstreamFault(Exception):
    """The broker's answer to one of Shoal's own requests is wrong."""


class UpstreamUnreachable(Exception):
    """No address accepted a connection; the message has all addresses and their errors."""


class UpstreamRefused(UpstreamUnreachable):
    """A broker accepted the connection, and Shoal could not log in."""


class LoginFailed(Exception):
    """The broker is there, and Shoal cannot log in; the message says why."""


class Session(Protocol):
    """A login at a broker."""

    @property
    def due_at(self) -> float:
        """When Shoal must log in again, in trio's time; infinite: never."""

    async def renew(self, send: Callable[[bytes], Awaitable[Buffer]]) -> None:
        """Log in again over the same connection, which has no request in flight. Raises LoginFailed, and what `send`
        raises, which returns the answer to a request.
        """


class Login(Protocol):
    """Logs in at a broker, on a new connection without other bytes in flight."""

    async def login(self, transport: SocketTransport, address: Address) -> Session:
        """Raises LoginFailed, and OSError if the connection is lost."""


class BrokerConnection(NamedTuple):
    """A connection that is ready for requests. `session`: None if Shoal has not logged in."""

    transport: SocketTransport
    address: Address
    session: Session | None = None


@dataclass(slots=True)
class Contact:
    """The last attempt to connect to a cluster, with any identity."""

    at: float | None = None  # trio's time; None: none was made
    failure: str | None = None  # None: it succeeded
    no_broker: str | None = None  # what answers there instead of a broker, when it was asked last
    when_silent: Callable[[Address], None] = lambda address: None  # called if an attempt there had no answer in time

    @property
    def problem(self) -> str | None:
        return self.failure or self.no_broker

    def note(self, failure: str | None = None) -> None:
        self.at, self.failure = trio.current_time(), failure


class Upstream:
    """The way to the brokers of a cluster, with one identity."""

    def __init__(
        self,
        limits: Limits,
        *,
        tls: TlsContext | None = None,
        login: Login | None = None,
        contact: Contact | None = None,
    ) -> None:
        self.contact = contact or Contact()
        self.limits = limits
        self.tls = tls
        self._login = login
        self._recent = RecentAddresses()
        self._sessions: Sessions | None = None
        self._look: BrokerLook | None = None

    async def connect(self, addresses: Sequence[Address]) -> BrokerConnection:
        """Try the addresses in turn. Raises UpstreamUnreachable."""
        failures, refused = [], False
        for address in addresses:
            try:
                with trio.fail_after(self.limits.connect_timeout):
                    made = await self._connect(address)
                self.contact.note()
                return made
            except trio.Cancelled:  # by one with less time
                self.contact.when_silent(address)
                raise
            except trio.TooSlowError:
                self.contact.when_silent(address)
                failures.append(
                    f"{address}: no answer within {self.limits.connect_timeout:g} s (limits.connect-timeout)"
                )
            except OSError as error:
                failures.append(f"{address}: {error.strerror or error}")
            except LoginFailed as error:
                failures.append(f"{address}: {error}")
                refused = True
        what = "cannot log in at the broker" if refused else "cannot reach the broker"
        failure = f"{what}: {'; '.join(failures or ['no address is known'])}"
        self.contact.note(failure)
        raise UpstreamRefused(failure) if refused else UpstreamUnreachable(failure)

    async def _connect(self, address: Address) -> BrokerConnection:
        sock = await connect(address, self.limits, self._recent)
        transport: SocketTransport = sock
        try:
            if self.tls is not None:
                transport = await self._shake_hands(sock, self.tls, address)
            session = await self._login.login(transport, address) if self._login is not None else None
        except BaseException:
            self._recent.forget(address)  # another address of the name may be better
            transport.close()
            raise
        return BrokerConnection(transport, address, session)

    async def _shake_hands(self, sock: socket.socket, tls: TlsContext, address: Address) -> SocketTransport:
        from shoal.proxy.net.tls.handshake import HandshakeFailed, Sessions, connect_tls
        from shoal.proxy.net.tls.look import BrokerLook

        if self._sessions is None or self._look is None:
            self._sessions, self._look = Sessions(), BrokerLook(tls)
        look = self._look
        name = (tls.server_name or address.host).removesuffix(".")  # certificates and SNI have no root
        require_host(name)
        try:
            transport = await connect_tls(
                sock, tls.context, name, str(address), self._sessions, partial(look.at_silence, address)
            )
        except HandshakeFailed as failed:
            words = await look.explain(failed.cause, address, failed.received, name)
            raise OSError(failed.cause.errno, words) from failed
        transport.explain = look.explain_alert  # with TLS 1.3, a broker refuses our certificate after the handshake
        return transport
