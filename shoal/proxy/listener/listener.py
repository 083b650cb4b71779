"""One named listener: a bootstrap port, a port for every broker of its cluster, and their connections.

Ports are bound synchronously: the port of a new broker is open before the answer with its address is sent. Ports of the
state file and of an explicit map are bound at start-up, so that a client with cached metadata can reconnect to any of
them after a restart of Shoal.
"""

from __future__ import annotations

import errno
import logging
import socket
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import trio

from shoal.protocol.messages.metadata import read_metadata_response
from shoal.proxy.cluster.bound_port import BoundPort
from shoal.proxy.cluster.cluster import NotLearned, NotReached
from shoal.proxy.cluster.ports import CorruptState, NoPort, PortAssignments, SavedPorts, read_state, write_state
from shoal.proxy.cluster.state_files import NotOurs, set_aside
from shoal.proxy.config.settings import Address, Mode, PortMap, PortRange
from shoal.proxy.connection.connection import COMPLAINT_SECONDS, Connection
from shoal.proxy.connection.pace import Pacing
from shoal.proxy.errors import OperatorError
from shoal.proxy.listener.access import first_routes
from shoal.proxy.listener.admission import REFUSALS, Strangers
from shoal.proxy.listener.reception import Reception
from shoal.proxy.listener.refuse_login import REFUSED_LOGINS
from shoal.proxy.listener.server_names import names_of
from shoal.proxy.login.login import ClientLogin
from shoal.proxy.logs import LogThrottle
from shoal.proxy.net.tls.certificates import covers
from shoal.proxy.statistics import CloseCause, ListenerStatistics, Tally, Traffic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path as FilePath

    from shoal.proxy.capture.frames import FrameCapture
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

_BACKLOG = 4096  # the kernel's own limit (net.core.somaxconn): a flood fills a shorter queue, and good clients wait
_WILDCARDS = frozenset({"", "0.0.0.0", "::"})


class Listener:
    def __init__(
        self,
        settings: ListenerSettings,
        cluster: Cluster,
        limits: Limits,
        path: Callable[[Listener], Path[Connection]],
        strangers: Strangers | None = None,
    ) -> None:
        self.settings = settings
        self.name = settings.name
        self.cluster = cluster
        self.limits = limits
        self.raw_capture: FrameCapture | None = None
        self.fail: Callable[[OperatorError], None] = _raise  # ends the server
        self.numbers: Iterator[int] = count(1)  # of client connections; the server gives one for all listeners
        self.tally = Tally()
        self.connections: set[Connection] = set()
        self.bound_ports: dict[int | None, BoundPort] = {}
        self.throttle = LogThrottle()
        self._names = names_of(settings)
        self.tls = None if settings.tls is None else _context(settings.name, settings.tls, self._names)
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
            tls=self.tls,
        )
        self._accepting: trio.Nursery | None = None
        self._serving: trio.Nursery | None = None
        self._draining = trio.Event()
        self._family, self._host = _resolve(settings)
        self._saved_state = _read_state(settings)
        self.endpoints = PortAssignments(settings.name, settings.nodes, self._saved_state.nodes)
        cluster.when_identified.append(self._identified)
        self.path: Path[Connection] = path(self)
        self.login = None if settings.sasl is None else ClientLogin(settings.sasl, self)
        if self.login is None and (cluster.logs_in or settings.principals):
            self.path.routes.update(REFUSED_LOGINS)

    @property
    def port(self) -> int:
        return self.bound_ports[None].port

    # -- ports -----------------------------------------------------------------------------------------------------

    def bind(self) -> None:
        """Bind the bootstrap port and those of all known brokers. Raises OperatorError."""
        self._check_names()
        self._bind_known(None, self.settings.port)
        for node_id, (port, address) in sorted(self.endpoints.nodes.items()):
            if address is not None:
                self.cluster.brokers.setdefault(node_id, address)
            self._bind_known(node_id, port)

    def _check_names(self) -> None:
        """Clients compare the name that they connect to with the certificate."""
        advertised = self.settings.advertised_host
        if self.tls is None or self.tls.loaded.own is None or advertised is None:
            return
        own = self.tls.loaded.own
        wanted = [advertised] if self._names is None else [self._names.bootstrap, self._names.host(1)]
        if missing := [name for name in wanted if not covers(own.certificate, name)]:
            log.warning(
                "listener %r: the certificate %s of %s is not for %s, where clients connect: they refuse it, unless "
                "they verify no names. Add the name to the certificate, or correct advertise and broker-host",
                self.name,
                own.certificate,
                own.file,
                " and ".join(missing),
            )

    def _bind_known(self, node_id: int | None, port: int) -> None:
        try:
            self._open(node_id, port)
        except OSError as error:
            if node_id is not None and isinstance(self.settings.nodes, PortRange) and error.errno == errno.EADDRINUSE:
                log.warning(
                    "listener %r: port %d of broker %d is taken: it will get another one", self.name, port, node_id
                )
                self.endpoints.refuse(port)
                return
            self.close()
            which = "" if node_id is None else f" of broker {node_id}"
            setting = "listen" if node_id is None else "ports"
            raise OperatorError.of(
                f"listener {self.name!r}",
                f"cannot listen on {Address(self._host, port)}{which}: {error.strerror}: choose another with {setting}",
            ) from error

    def _open(self, node_id: int | None, port: int) -> BoundPort:
        sock = socket.socket(self._family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setblocking(False)
            sock.bind((self._host, port))
            sock.listen(_BACKLOG)
        except OSError:
            sock.close()
            raise
        bound_port = self.bound_ports[node_id] = self._port_of(node_id, sock)
        if self._accepting is not None:
            self._accepting.start_soon(bound_port.accept, self.reception.welcome)
        return bound_port

    def _port_of(self, node_id: int | None, sock: socket.socket, *, accepts: bool = True) -> BoundPort:
        return BoundPort(
            node_id,
            sock,
            self.cluster,
            ask_for_brokers=self.ask_for_brokers,
            complain=self.complain,
            accepts=accepts,
        )

    def _named_port(self, node_id: int) -> BoundPort:
        """With routing by SNI: a broker behind the bootstrap port."""
        return self._port_of(node_id, self.bound_ports[None].sock, accepts=False)

    def advertise(self, address: Address, node_id: int, local_host: str) -> tuple[str, int]:
        """The address at which a client reaches the broker; its port is bound when this returns. Raises NoPort."""
        if self._names is not None:
            return self._advertise_name(self._names, address, node_id)
        bound_port = self.bound_ports.get(node_id) or self._open_for(node_id, address)
        self.cluster.brokers[node_id] = address
        if self.endpoints.assign(node_id, bound_port.port, address):
            self._save()
        return self._advertised_host(local_host), bound_port.port

    def _advertise_name(self, names: ServerNames, address: Address, node_id: int) -> tuple[str, int]:
        advertised = Address(names.host(node_id), self.settings.advertised_port or self.port)
        if node_id not in self.bound_ports:
            self.bound_ports[node_id] = self._named_port(node_id)
            log.info("listener %r: broker %d (%s) is %s", self.name, node_id, address, advertised)
        self.cluster.brokers[node_id] = address
        return advertised

    def _asked_for(self, bound_port: BoundPort, client: Client) -> BoundPort:
        """With routing by SNI: the broker whose name the client has asked for, known or not."""
        if self._names is None:
            return bound_port
        node_id = self._names.node(client.server_name)
        if node_id is None:
            return bound_port
        return self.bound_ports.get(node_id) or self._named_port(node_id)

    async def ask_for_brokers(self) -> None:
        """Ask the cluster, and give each broker its port. A cluster with SASL or TLS does not answer."""
        try:
            await self._ask_for_brokers()
        finally:
            if self.cluster.first_question is not None:
                self.cluster.first_question.set()

    async def _ask_for_brokers(self) -> None:
        try:
            metadata = await self.cluster.ask_metadata()
        except NotReached as error:
            log.warning("cluster %r: %s; retried on each client connection", self.cluster.name, error)
            return
        except NotLearned as error:
            log.info(
                "cluster %r: broker discovery failed (%s); using clients' metadata instead",
                self.cluster.name,
                error,
            )
            return
        for broker in metadata.brokers:
            with suppress(NoPort):  # `advertise` has logged it
                self.advertise(Address(broker.host, broker.port), broker.node_id, self.settings.host)

    def _advertised_host(self, local_host: str) -> str:
        host = self.settings.advertised_host or self.settings.host
        return local_host if host in _WILDCARDS else host

    def _open_for(self, node_id: int, address: Address) -> BoundPort:
        while True:
            try:
                port = self.endpoints.offer(node_id, address)
            except NoPort as error:
                self.complain(str(error))
                raise
            try:
                bound_port = self._open(node_id, port)
            except OSError as error:
                if isinstance(self.settings.nodes, PortMap):
                    raise NoPort(f"cannot listen on port {port} of broker {node_id}: {error.strerror}") from error
                self.endpoints.refuse(port)
            else:
                log.info("listener %r: broker %d (%s) is on port %d", self.name, node_id, address, bound_port.port)
                return bound_port

    def _save(self) -> None:
        nodes = self.settings.nodes
        if isinstance(nodes, PortRange) and nodes.state_file is not None:
            try:
                write_state(nodes.state_file, self.name, self.endpoints.nodes, self._saved_state.cluster)
            except OSError as error:
                self.state_failed()
                self.complain(
                    f"cannot write {nodes.state_file} ({error.strerror}): Shoal goes on, and brokers may get other "
                    "ports after a restart. Make room, or choose another state-dir, and restart Shoal"
                )

    def _identified(self, cluster: str) -> None:
        """The state file may belong to another cluster."""
        known = self._saved_state.cluster
        self._saved_state = self._saved_state._replace(cluster=cluster)
        if known not in (None, cluster):
            for node_id, (_, address) in self._saved_state.nodes.items():
                if self.cluster.brokers.get(node_id) == address:
                    self.cluster.brokers.pop(node_id, None)
            self.endpoints.forget_addresses()
            nodes = self.settings.nodes
            if isinstance(nodes, PortRange) and nodes.state_file is not None:
                with suppress(OSError):  # then it is overwritten: the file is Shoal's
                    _discard(self.settings, nodes.state_file, f"of cluster {known}, and this is {cluster}")
        if known != cluster and self.endpoints.nodes:
            self._save()

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
                async with trio.open_nursery() as self._accepting:
                    self.reception.tasks = self._accepting
                    for bound_port in self.bound_ports.values():
                        self._accepting.start_soon(bound_port.accept, self.reception.welcome)
                    if self.login is not None:
                        self._accepting.start_soon(self.login.prepare)
                    await self._draining.wait()
                    self._accepting.cancel_scope.cancel()
                self._accepting = None
                self._close_ports()
                self._drain_connections()
        finally:
            self._accepting = None
            self.close()  # connections use the path's files until they end

    def _drain_connections(self) -> None:
        for connection in list(self.connections):
            connection.drain()

    def drain(self) -> None:
        self._draining.set()

    def _close_ports(self) -> None:
        for bound_port in self.bound_ports.values():
            bound_port.close()

    def close(self) -> None:
        """All connections are closed."""
        self._close_ports()
        self.path.end()

    def spawn(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task for the path. A drained listener waits for it, as it does for connections."""
        assert self._serving is not None
        self._serving.start_soon(task)

    def _begin(self, bound_port: BoundPort, client: Client, guest: Guest) -> None:
        """Serve a client from its first request on."""
        assert self._serving is not None
        number = next(self.numbers)
        bound_port = self._asked_for(bound_port, client)
        if self.raw_capture is not None:
            about = f"listener {self.name}: {bound_port}"
            client = replace(
                client, transport=self.raw_capture.tap(client.transport, number, bound_port.node_id, about)
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
        self.tally.closed[cause] += 1
        self.tally.traffic.add(connection.traffic())

    def demands_login(self) -> bool:
        """True if a client must log in before its first ordinary request: here, or at the brokers."""
        return self.settings.sasl is not None or self.cluster.demands_login

    def tick(self, now: float) -> None:
        """Called every second."""
        self.path.tick(now)
        self.reception.tick(now)

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
            ports={node_id: port.port for node_id, port in self.bound_ports.items() if node_id is not None},
            in_flight=sum(connection.unanswered for connection in self.connections),
            state_errors=self.tally.state_errors,
            path=self.path.statistics(),
        )


def _resolve(settings: ListenerSettings) -> tuple[int, str]:
    """-> address family and numeric host. Raises OperatorError."""
    try:
        found = socket.getaddrinfo(
            settings.host or None, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise OperatorError.of(f"listener {settings.name!r}", f"host {settings.host!r}: {error.strerror}") from error
    family, _, _, _, address = found[0]
    return family, str(address[0])


def _context(name: str, tls: ListenerTls, names: ServerNames | None) -> TlsContext:
    """Raises OperatorError."""
    from shoal.proxy.net.tls.contexts import TlsContext
    from shoal.proxy.net.tls.handshake import note_asked_name

    prepare = note_asked_name if names is None else partial(note_asked_name, is_known=names.knows)
    return TlsContext(tls, f"listener {name!r}", prepare=prepare)


def _raise(error: OperatorError) -> None:
    raise error


def _read_state(settings: ListenerSettings) -> SavedPorts:
    """Raises OperatorError."""
    state_file: FilePath | None = settings.nodes.state_file if isinstance(settings.nodes, PortRange) else None
    if state_file is None:
        return SavedPorts({})
    try:
        state = read_state(state_file, settings.name)
    except NotOurs as error:
        raise OperatorError.of(f"listener {settings.name!r}", str(error)) from error
    except CorruptState as error:
        try:
            _discard(settings, state_file, str(error))
        except OSError as failure:
            what = f"{state_file} is of no use ({error}) and cannot be renamed: {failure.strerror}: remove it"
            raise OperatorError.of(f"listener {settings.name!r}", what) from failure
        return SavedPorts({})
    except OSError as error:
        what = f"cannot read {state_file}: {error.strerror}: mend that, or choose another state-dir"
        raise OperatorError.of(f"listener {settings.name!r}", what) from error
    if state.nodes:
        log.info("listener %r: loaded %s: brokers keep their ports", settings.name, state_file)
    return state


def _discard(settings: ListenerSettings, state_file: FilePath, why: str) -> None:
    """Raises OSError."""
    aside = set_aside(state_file)
    what = "listener %r: discarded %s (%s), kept as %s: brokers may get other ports"
    log.warning(what, settings.name, state_file, why, aside.name)
