"""One named listener: its ports, its path, and the connections of its clients.

    ports (broker_ports) -> reception: who is let in -> `Connection`, which the listener counts until it has ended

`drain` ends in this order: nothing more is accepted, the ports are closed, each connection answers what it has read.

In a reload, a listener gets new settings by `prepare`; or another one takes over its ports, its name and its counters,
while this one drains.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import trio

from shoal.protocol.messages.metadata import read_metadata_response
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.settings import Address, Mode
from shoal.proxy.connection.clients import Clients
from shoal.proxy.connection.connection import Connection
from shoal.proxy.connection.life import COMPLAINT_SECONDS, serve
from shoal.proxy.connection.meter import ApiTable
from shoal.proxy.connection.pace import Pacing
from shoal.proxy.events.logs import LogThrottle, event, more_of_this_kind
from shoal.proxy.listener.access import first_routes, still_allowed
from shoal.proxy.listener.admission import REFUSALS, Strangers
from shoal.proxy.listener.broker_ports import BrokerPorts
from shoal.proxy.listener.early_ends import EarlyEnds
from shoal.proxy.listener.login.login import ClientLogin
from shoal.proxy.listener.reception import Reception
from shoal.proxy.listener.refuse_login import REFUSED_LOGINS
from shoal.proxy.listener.refuse_tokens import REFUSED_TOKENS
from shoal.proxy.listener.server_names import names_of
from shoal.proxy.listener.sockets import ListeningSockets
from shoal.proxy.statistics import CloseCause, ListenerStatistics, Tally, Traffic, with_earlier

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from shoal.proxy.capture.frames import FrameCapture
    from shoal.proxy.cluster.bound_port import BoundPort
    from shoal.proxy.cluster.cluster import Cluster
    from shoal.proxy.config.security import ListenerTls
    from shoal.proxy.config.settings import Limits, ListenerSettings
    from shoal.proxy.connection.listener_api import Path
    from shoal.proxy.connection.routes import RouteTable
    from shoal.proxy.listener.admission import Guest
    from shoal.proxy.listener.server_names import ServerNames
    from shoal.proxy.net.client import Client
    from shoal.proxy.net.tls.contexts import TlsContext
    from shoal.proxy.net.transport import Buffer
    from shoal.proxy.statistics import PathStatistics

__all__ = ["Listener", "Shared"]

log = logging.getLogger("shoal.listener")


def _raise(error: OperatorError) -> None:
    raise error


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all listeners of a server share. `numbers`: of client connections, in both captures.

    `accepts` False: other processes accept at their ports.
    """

    strangers: Strangers
    sockets: ListeningSockets = field(default_factory=ListeningSockets)
    numbers: Iterator[int] = field(default_factory=partial(count, 1))
    clients: Clients = field(default_factory=Clients)
    raw_capture: FrameCapture | None = None
    accepts: bool = True


class Listener:
    """`fail` ends the server. `former`: the listener that this one replaces; an unwrapping one hands its path on,
    because what it knows of appended batches is in use until its last connection has ended.
    """

    def __init__(
        self,
        settings: ListenerSettings,
        cluster: Cluster,
        limits: Limits,
        path: Callable[[Listener], Path[Connection]],
        shared: Shared,
        *,
        former: Listener | None = None,
        counts_apis: bool = False,
        fail: Callable[[OperatorError], None] = _raise,
    ) -> None:
        self.settings = settings
        self.name = settings.name
        self.cluster = cluster
        self.limits = limits
        self.fail = fail
        self._shared = shared
        self.clients = shared.clients
        self._former = former
        self._earlier: tuple[PathStatistics, ...] = ()  # of paths of former listeners that have ended
        self.tally: Tally = Tally() if former is None else former.tally
        self.apis: ApiTable | None = (ApiTable() if former is None else former.apis) if counts_apis else None
        self.connections: set[Connection] = set()
        self.throttle = LogThrottle()
        self._names = names_of(settings)
        self.tls = None if settings.tls is None else _context(settings, settings.tls, self._names)
        self.first_routes = first_routes(settings.access)
        self.pacing = Pacing(settings.access.bytes_per_second, settings.access.client_bytes_per_second)
        self.reception = Reception(
            settings,
            limits,
            shared.strangers,
            tally=self.tally,
            throttle=self.throttle,
            demands_login=self.demands_login,
            begin=self._begin,
            sockets=lambda: [bound_port.sock for bound_port in self.ports.bound.values()],
            tls=self.tls,
        )
        self.ports: BrokerPorts = BrokerPorts(
            settings,
            cluster,
            self._names,
            sockets=shared.sockets,
            former=None if former is None else former.ports,
            welcome=self.reception.welcome,
            complain=self.complain,
            state_failed=self.state_failed,
        )
        self._early_ends = EarlyEnds(cluster, self.throttle)
        self._serving: trio.Nursery | None = None
        self._draining = trio.Event()
        self.closed = trio.Event()
        self._scope = trio.CancelScope()
        self._owns_path = former is None or settings.mode is not Mode.UNWRAP
        try:
            self.path: Path[Connection] = path(self) if former is None or self._owns_path else former.path
        except BaseException:
            self.ports.close()
            raise
        self.routes: RouteTable[Connection] = {}
        self._choose_routes()
        try:
            self.login = None if settings.sasl is None else ClientLogin(settings.sasl, self)
        except BaseException:
            self.close()
            raise

    def _choose_routes(self) -> None:
        self.routes.clear()
        self.routes.update(self.path.routes)
        if self.settings.sasl is not None or self.settings.principals or self.cluster.has_principal:
            self.routes.update(REFUSED_TOKENS)
        if self.settings.sasl is None and (self.cluster.logs_in or self.settings.principals):
            self.routes.update(REFUSED_LOGINS)

    @property
    def port(self) -> int:
        """The bootstrap port."""
        return self.ports.port

    # -- ports -----------------------------------------------------------------------------------------------------

    def bind(self, *, begin: bool = True) -> None:
        """Bind the bootstrap port and those of all known brokers. `begin`: else the path begins later.

        Raises OperatorError.
        """
        try:
            if begin:
                self.path.begin()
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
            with self._scope:
                await self._serve()
        finally:
            self.close()  # connections use the path's files until they end

    async def _serve(self) -> None:
        async with trio.open_nursery() as self._serving:
            async with trio.open_nursery() as accepting:
                self.reception.tasks = accepting
                if self._shared.accepts:
                    accepting.start_soon(self.ports.accept)
                if self._shared.accepts and self.login is not None:
                    accepting.start_soon(self.login.keep_fresh)
                await self._draining.wait()
                accepting.cancel_scope.cancel()
                self._drain_connections()
            self._drain_connections()  # those whose greeting ended meanwhile

    def _drain_connections(self) -> None:
        for connection in list(self.connections):
            connection.drain()

    def drain(self, within: float = math.inf) -> None:
        """`within`: seconds, after which what is left ends."""
        self._draining.set()
        self.reception.end()
        self.ports.close()
        self._scope.deadline = min(self._scope.deadline, trio.current_time() + within)

    def close(self) -> None:
        """All connections are closed. Only once: then another process may have the path's files."""
        if self.closed.is_set():
            return
        self.closed.set()
        self.ports.close()
        if self._owns_path:
            self.path.end()

    # -- reload ------------------------------------------------------------------------------------------------------

    def prepare(self, settings: ListenerSettings, limits: Limits) -> Callable[[], None]:
        """Bind and read what other settings need; -> what applies them, and cannot fail. Raises OperatorError."""
        tls = self.tls
        if settings.tls is not None and settings.tls != self.settings.tls:
            tls = _context(settings, settings.tls, self._names)
        ports = self.ports.prepare(settings)
        return partial(self._apply, settings, limits, tls, ports)

    def _apply(
        self,
        settings: ListenerSettings,
        limits: Limits,
        tls: TlsContext | None,
        ports: Callable[[], Sequence[BoundPort]],
    ) -> None:
        self.settings, self.limits, self.tls = settings, limits, tls
        self.first_routes = first_routes(settings.access)
        self.pacing.use(settings.access.bytes_per_second, settings.access.client_bytes_per_second)
        self.reception.use(settings, limits, tls)
        self.path.use(settings)
        closed, stays = set(ports()), still_allowed(settings.access)
        for connection in list(self.connections):
            connection.use_first_routes(self.first_routes)
            if connection.bound_port in closed or not stays(connection):
                connection.drain_within(limits.drain_seconds)

    def succeed(self) -> None:
        """The reload is applied: this listener is in use, instead of the former one of its name."""
        self._choose_routes()  # the cluster may have other settings now
        self._owns_path = True
        if self._former is not None and self._former.path is self.path:
            self._former._owns_path = False

    @property
    def may_spawn(self) -> bool:
        """False before it serves, and from the drain on."""
        return self._serving is not None and not self._draining.is_set()

    def spawn(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task for the path. A drained listener waits for it, as it does for connections."""
        assert self._serving is not None
        self._serving.start_soon(task)

    def _begin(self, bound_port: BoundPort, client: Client, guest: Guest) -> None:
        """Serve a client from its first request on."""
        assert self._serving is not None
        number, capture = next(self._shared.numbers), self._shared.raw_capture
        bound_port = self.ports.asked_for(bound_port, client.server_name)
        if capture is not None:
            about = f"listener {self.name}: {bound_port}"
            client = replace(client, transport=capture.tap(client.transport, number, bound_port.node_id, about))
        connection = Connection(client, bound_port, self, number, guest)
        self.connections.add(connection)
        self._serving.start_soon(serve, connection, name="a connection")  # else trio writes a name for each

    def ended(self, connection: Connection, cause: CloseCause) -> None:
        """Both sockets of a connection are closed."""
        self.connections.discard(connection)
        connection.guest.ended(trio.current_time(), by_broker=cause is CloseCause.UPSTREAM_UNREACHABLE)
        if cause in REFUSALS:
            self.reception.refused(cause, f"{connection.peer} ({connection.detail})")
        self._early_ends.ended(connection, cause)
        self.tally.closed[cause] += 1
        self.tally.traffic.add(connection.traffic())

    def demands_login(self) -> bool:
        """True if a client must log in before its first ordinary request: here, or at the brokers."""
        return self.settings.sasl is not None or self.cluster.demands_login

    def count_apis(self, *, counted: bool) -> None:
        """For connections that begin from now on."""
        if not counted:
            self.apis = None
        elif self.apis is None:
            self.apis = ApiTable()

    def tick(self, now: float) -> None:
        """Called every second."""
        self.path.tick(now)
        if self.apis is not None:
            self.apis.tick()
        self.reception.tick(now)
        if self.login is not None:
            self.login.tick(self.connections)

    def complain(self, event_id: str, text: str, /, **values: object) -> None:
        """Log an error that may recur with every connection, and in which a client may have chosen some of the text."""
        if self.throttle.is_news((event_id, text), COMPLAINT_SECONDS, (self.name, event_id)):
            left_out = self.throttle.left_out((self.name, event_id))
            text = f"listener {self.name!r}: {text}{more_of_this_kind(left_out)}"
            log.error(event_id, extra=event(text, listener=self.name, **values, left_out=left_out or None))

    def statistics(self) -> ListenerStatistics:
        traffic = Traffic()
        traffic.add(self.tally.traffic)
        connections = self.all_connections()
        for connection in connections:
            traffic.add(connection.traffic())
        return ListenerStatistics(
            name=self.name,
            opened=self.tally.opened,
            active=self.tally.active,
            closed=dict(self.tally.closed),
            traffic=traffic,
            ports={node_id: port.port for node_id, port in self.ports.bound.items() if node_id is not None},
            in_flight=sum(connection.unanswered for connection in connections),
            state_errors=self.tally.state_errors,
            path=self._path_statistics(),
            states=self._states(),
            handshakes=self._handshakes(),
            gauges=self.path.gauges(),
            apis={} if self.apis is None else self.apis.named(),
        )

    def _states(self) -> Counter[str]:
        """Connections by state; those that are accepted and not greeted yet have none."""
        states = Counter(connection.state.name.lower() for connection in self.all_connections())
        states["greeting"] = self.tally.active - sum(states.values())
        return states

    def _handshakes(self) -> Mapping[str, int]:
        if self.tls is None:
            return {}
        return {"done": self.tally.handshakes, "refused": self.tally.closed[CloseCause.HANDSHAKE_FAILED]}

    @property
    def is_bound(self) -> bool:
        """It accepts clients at its bootstrap port."""
        return not self._draining.is_set() and None in self.ports.bound

    def status(self) -> dict[str, object]:
        """For the admin listener: facts as JSON values."""
        settings = self.settings
        return {
            "name": self.name,
            "mode": settings.mode.value,
            "cluster": settings.cluster,
            "pair": settings.pair,
            "address": str(Address(settings.host, self.port)),
            "advertise": settings.advertised_host,
            "tls": self.tls is not None,
            "login": settings.sasl is not None,
            "coalesce": settings.coalesce,
            "legacy": settings.legacy,
            "ports": {
                str(node): port.port
                for node, port in sorted((n, p) for n, p in self.ports.bound.items() if n is not None)
            },
            "states": self._states(),
            **self.path.status(),
        }

    def all_connections(self) -> list[Connection]:
        """Those of the listener, and of former ones of its name that drain."""
        former = [] if self._former is None else self._former.all_connections()
        return [*self.connections, *former]

    def _path_statistics(self) -> tuple[PathStatistics, ...]:
        former = self._former
        if former is None:
            return with_earlier(self.path.statistics(), self._earlier)
        if former.path is self.path:
            return self.path.statistics()
        return with_earlier(self.path.statistics(), former._path_statistics())

    def former_ended(self, former: Listener) -> None:
        """Only its counters are kept."""
        if self._former is former:
            self._earlier = () if former.path is self.path else former._path_statistics()
            self._former = former._former
        elif self._former is not None:
            self._former.former_ended(former)


def _context(settings: ListenerSettings, tls: ListenerTls, names: ServerNames | None) -> TlsContext:
    """Raises OperatorError."""
    from shoal.proxy.net.tls.contexts import TlsContext
    from shoal.proxy.net.tls.handshake import note_asked_name

    prepare = note_asked_name if names is None else partial(note_asked_name, is_known=names.knows)
    return TlsContext(tls, f"listener {settings.name!r}", names=settings.client_names, prepare=prepare)
