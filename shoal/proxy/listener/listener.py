"""One named listener: its ports, its path, and the connections of its clients.

    ports (broker_ports) -> reception: who is let in -> `Connection`, which the listener counts until it has ended

`drain` ends in this order: nothing more is accepted, the ports are closed, each connection answers what it has read.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import trio

from shoal.protocol.messages.metadata import read_metadata_response
from shoal.proxy.config.settings import Address, Mode
from shoal.proxy.connection.connection import COMPLAINT_SECONDS, Connection
from shoal.proxy.connection.pace import Pacing
from shoal.proxy.errors import OperatorError
from shoal.proxy.listener.access import first_routes
from shoal.proxy.listener.admission import REFUSALS, Strangers
from shoal.proxy.listener.broker_ports import BrokerPorts
from shoal.proxy.listener.early_ends import EarlyEnds
from shoal.proxy.listener.login.login import ClientLogin
from shoal.proxy.listener.reception import Reception
from shoal.proxy.listener.refuse_login import REFUSED_LOGINS
from shoal.proxy.listener.refuse_tokens import REFUSED_TOKENS
from shoal.proxy.listener.server_names import names_of
from shoal.proxy.logs import LogThrottle
from shoal.proxy.statistics import CloseCause, ListenerStatistics, Tally, Traffic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from shoal.proxy.capture.frames import FrameCapture
    from shoal.proxy.cluster.bound_port import BoundPort
    from shoal.proxy.cluster.cluster import Cluster
    from shoal.proxy.config.security import ListenerTls
    from shoal.proxy.config.settings import Limits, ListenerSettings
    from shoal.proxy.connection.listener_api import Path
    from shoal.proxy.listener.admission import Guest
    from shoal.proxy.listener.server_names import ServerNames
    from shoal.proxy.net.client import Client
    from shoal.proxy.net.tls.contexts import TlsContext
    from shoal.proxy.net.transport import Buffer

__all__ = ["Listener"]

log = logging.getLogger("shoal.listener")


def _raise(error: OperatorError) -> None:
    raise error


class Listener:
    """What all listeners share is the server's: strangers, `numbers` of client connections, the frame capture.

    `fail` ends the server.
    """

    def __init__(
        self,
        settings: ListenerSettings,
        cluster: Cluster,
        limits: Limits,
        path: Callable[[Listener], Path[Connection]],
        strangers: Strangers | None = None,
        *,
        numbers: Iterator[int] | None = None,
        raw_capture: FrameCapture | None = None,
        fail: Callable[[OperatorError], None] = _raise,
    ) -> None:
        self.settings = settings
        self.name = settings.name
        self.cluster = cluster
        self.limits = limits
        self.fail = fail
        self._numbers = count(1) if numbers is None else numbers
        self._raw_capture = raw_capture
        self.tally = Tally()
        self.connections: set[Connection] = set()
        self.throttle = LogThrottle()
        self._names = names_of(settings)
        self.tls = None if settings.tls is None else _context(settings, settings.tls, self._names)
        self.gate = first_routes(settings.access)
        self.pacing = Pacing(settings.access.bytes_per_second, settings.access.client_bytes_per_second)
        self.reception = Reception(
            settings,
            limits,
            strangers or Strangers(limits),
            tally=self.tally,
            throttle=self.throttle,
            demands_login=self.demands_login,
            begin=self._begin,
            sockets=lambda: [bound_port.sock for bound_port in self.ports.bound.values()],
            tls=self.tls,
        )
        self.ports = BrokerPorts(
            settings,
            cluster,
            self._names,
            welcome=self.reception.welcome,
            complain=self.complain,
            state_failed=self.state_failed,
        )
        self._early_ends = EarlyEnds(cluster, self.throttle)
        self._serving: trio.Nursery | None = None
        self._draining = trio.Event()
        self.path: Path[Connection] = path(self)
        if settings.sasl is not None or settings.principals or cluster.has_principal:
            self.path.routes.update(REFUSED_TOKENS)
        self.login = None if settings.sasl is None else ClientLogin(settings.sasl, self)
        if self.login is None and (cluster.logs_in or settings.principals):
            self.path.routes.update(REFUSED_LOGINS)

    @property
    def port(self) -> int:
        """The bootstrap port."""
        return self.ports.port

    # -- ports -----------------------------------------------------------------------------------------------------

    def bind(self) -> None:
        """Bind the bootstrap port and those of all known brokers. Raises OperatorError."""
        try:
            self.ports.bind()
        except OperatorError:
            self.close()
            raise

    def advertise(self, address: Address, node_id: int, local_host: str) -> tuple[str, int]:
        """The address at which a client reaches the broker; its port is bound when this returns. Raises NoPort."""
        return self.ports.advertise(address, node_id, local_host)

    def state_failed(self) -> None:
        """A file of the state directory could not be written."""
        self.tally.state_errors += 1

    def learn(self, frame: Buffer, version: int) -> None:
        """Read from a client's Metadata answer what shallow mirroring and the index need."""
        if self.settings.mode is not Mode.PLAIN or self.cluster.capture is not None:
            self.cluster.learn(read_metadata_response(frame, version))

    # -- connections -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Accept until `drain` is called; returns when the last connection has ended."""
        try:
            async with trio.open_nursery() as self._serving:
                async with trio.open_nursery() as accepting:
                    self.reception.tasks = accepting
                    accepting.start_soon(self.ports.accept)
                    if self.login is not None:
                        accepting.start_soon(self.login.prepare)
                    await self._draining.wait()
                    accepting.cancel_scope.cancel()
                self.ports.close()
                self._drain_connections()
        finally:
            self.close()  # connections use the path's files until they end

    def _drain_connections(self) -> None:
        for connection in list(self.connections):
            connection.drain()

    def drain(self) -> None:
        self._draining.set()

    def close(self) -> None:
        """All connections are closed."""
        self.ports.close()
        self.path.end()

    def spawn(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task for the path. A drained listener waits for it, as it does for connections."""
        assert self._serving is not None
        self._serving.start_soon(task)

    def _begin(self, bound_port: BoundPort, client: Client, guest: Guest) -> None:
        """Serve a client from its first request on."""
        assert self._serving is not None
        number = next(self._numbers)
        bound_port = self.ports.asked_for(bound_port, client.server_name)
        if self._raw_capture is not None:
            about = f"listener {self.name}: {bound_port}"
            client = replace(
                client, transport=self._raw_capture.tap(client.transport, number, bound_port.node_id, about)
            )
        connection = Connection(client, bound_port, self, number, guest)
        self.connections.add(connection)
        self._serving.start_soon(connection.run)

    def ended(self, connection: Connection, cause: CloseCause) -> None:
        """Both sockets of a connection are closed."""
        self.connections.discard(connection)
        connection.guest.ended(trio.current_time(), by_broker=cause is CloseCause.UPSTREAM_UNREACHABLE)
        if cause in REFUSALS:
            self.reception.refused(cause, f"{connection.peer} ({connection.detail})")
        if (what := self._early_ends.ended(connection, cause)) is not None:
            log.warning("%s", what)
        self.tally.closed[cause] += 1
        self.tally.traffic.add(connection.traffic())

    def demands_login(self) -> bool:
        """True if a client must log in before its first ordinary request: here, or at the brokers."""
        return self.settings.sasl is not None or self.cluster.demands_login

    def tick(self, now: float) -> None:
        """Called every second."""
        self.path.tick(now)
        self.reception.tick(now)
        if self.login is not None:
            self.login.tick(self.connections)

    def complain(self, what: str) -> None:
        """Log an error that may recur with every connection."""
        if self.throttle.is_news(what, COMPLAINT_SECONDS):
            log.error("listener %r: %s", self.name, what)

    def statistics(self) -> ListenerStatistics:
        traffic = Traffic()
        traffic.add(self.tally.traffic)
        for connection in self.connections:
            traffic.add(connection.traffic())
        return ListenerStatistics(
            name=self.name,
            opened=self.tally.opened,
            active=self.tally.active,
            closed=dict(self.tally.closed),
            traffic=traffic,
            ports={node_id: port.port for node_id, port in self.ports.bound.items() if node_id is not None},
            in_flight=sum(connection.unanswered for connection in self.connections),
            state_errors=self.tally.state_errors,
            path=self.path.statistics(),
        )


def _context(settings: ListenerSettings, tls: ListenerTls, names: ServerNames | None) -> TlsContext:
    """Raises OperatorError."""
    from shoal.proxy.net.tls.contexts import TlsContext
    from shoal.proxy.net.tls.handshake import note_asked_name

    prepare = note_asked_name if names is None else partial(note_asked_name, is_known=names.knows)
    return TlsContext(tls, f"listener {settings.name!r}", names=settings.client_names, prepare=prepare)
