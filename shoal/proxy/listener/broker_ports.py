"""The ports of one listener: the bootstrap port, one for each broker, and the addresses that clients get for them.

    a broker in an answer   ->  `advertise`  ->  its port, bound now if it is new  ->  the address for the client
    a client of a port      ->  `asked_for`  ->  the broker that it means

Ports are bound synchronously: the port of a new broker is open before the answer with its address is sent. Ports of the
state file and of an explicit map are bound at start-up, so that a client with cached metadata can reconnect to any of
them after a restart of Shoal. With `routing = "sni"` all brokers share the bootstrap port, and have a name each.

`cluster.ports` decides which port a broker gets; `cluster.ports_file` keeps it across restarts. Here they are bound.
"""

from __future__ import annotations

import errno
import logging
import socket
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import trio

from shoal.proxy.cluster.bound_port import BoundPort
from shoal.proxy.cluster.cluster import NotLearned, NotReached
from shoal.proxy.cluster.ports import NoPort, PortAssignments, SavedPorts
from shoal.proxy.cluster.ports_file import PortsFile
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.settings import WILDCARDS, Address, PortMap, PortRange
from shoal.proxy.events.logs import event, more_of_this_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shoal.proxy.cluster.cluster import Cluster
    from shoal.proxy.cluster.ports import Nodes
    from shoal.proxy.config.settings import ListenerSettings
    from shoal.proxy.events.logs import Complain
    from shoal.proxy.listener.server_names import ServerNames
    from shoal.proxy.listener.sockets import BindAddress, ListeningSockets

__all__ = ["BrokerPorts"]

log = logging.getLogger("shoal.listener")

_OF_OTHERS = frozenset({errno.EADDRINUSE, errno.EACCES})  # ports that Shoal cannot have, now or later


class _Ports(NamedTuple):
    """The ports with one form of the settings."""

    settings: ListenerSettings
    family: int
    host: str  # numeric
    assignments: PortAssignments
    bound: dict[int | None, BoundPort]

    def place(self, node_id: int | None) -> BindAddress:
        return self.host, self.settings.port if node_id is None else self.bound[node_id].port


class BrokerPorts:
    """`names`: with routing by SNI. `welcome` gets each client's socket and host. `state_failed` counts.

    `former`: those of the listener that this one replaces: its brokers keep their ports.
    """

    def __init__(
        self,
        settings: ListenerSettings,
        cluster: Cluster,
        names: ServerNames | None,
        *,
        sockets: ListeningSockets,
        former: BrokerPorts | None = None,
        welcome: Callable[[BoundPort, int, str], None],
        complain: Complain,
        state_failed: Callable[[], None],
    ) -> None:
        self._name = settings.name
        self._cluster = cluster
        self._names = names
        self._welcome = welcome
        self._complain = complain
        self._accepting: trio.Nursery | None = None
        self.prepared: _Ports | None = None
        self._was_open = False
        self._is_closed = False
        self._sockets = sockets
        self._file = PortsFile(settings.name, is_ours=sockets.opens_ports, complain=complain, failed=state_failed)
        if former is None:
            self._saved_state = self._sockets.saved(settings.name) or self._file.load(settings.nodes)
        else:
            self._saved_state = former.state()
        self._ports = self._plan(settings, self._saved_state.nodes)
        cluster.when_identified.append(self._identified)

    @property
    def port(self) -> int:
        """The bootstrap port."""
        return self.bound[None].port

    @property
    def bound(self) -> dict[int | None, BoundPort]:
        """By node id; None: the bootstrap port."""
        return self._ports.bound

    @property
    def _settings(self) -> ListenerSettings:
        return self._ports.settings

    @property
    def _assignments(self) -> PortAssignments:
        return self._ports.assignments

    def state(self) -> SavedPorts:
        return SavedPorts(dict(self._assignments.nodes), self._saved_state.cluster)

    def _plan(self, settings: ListenerSettings, known: Nodes) -> _Ports:
        """Raises OperatorError."""
        family, host = _resolve(settings)
        return _Ports(settings, family, host, PortAssignments(settings.name, settings.nodes, known), {})

    def bind(self) -> None:
        """Bind the bootstrap port and those of all known brokers. Raises OperatorError."""
        for node_id, (_, address) in self._assignments.nodes.items():
            if address is not None:
                self._cluster.brokers.setdefault(node_id, address)
        self._bind_all(self._ports)

    def _bind_all(self, ports: _Ports) -> None:
        self._bind_known(ports, None, ports.settings.port)
        for node_id, (port, _) in sorted(ports.assignments.nodes.items()):
            self._bind_known(ports, node_id, port)

    # -- another Shoal takes over --------------------------------------------------------------------------------------

    def listening(self) -> list[socket.socket]:
        return [bound_port.sock for bound_port in self.bound.values() if bound_port.accepts]

    def freeze(self, *, frozen: bool) -> None:
        """While another Shoal takes over, the ports are those that it has got, and the state file is its own."""
        if self._file.freeze(frozen=frozen):
            self._save()

    # -- other ports, while it runs ----------------------------------------------------------------------------------

    def offer(self) -> None:
        """Another listener, or this one, may take its sockets over."""
        self._sockets.offer(self.places(), self._ports.settings.mode)

    def places(self) -> Iterator[tuple[BindAddress, socket.socket]]:
        """The sockets that listen, each with its address as it is configured."""
        ports = self._ports
        return ((ports.place(node_id), x.sock) for node_id, x in ports.bound.items() if x.accepts)

    def prepare(self, settings: ListenerSettings) -> Callable[[], Sequence[BoundPort]]:
        """Bind what is new with other settings; -> what applies them, and returns the ports that are no more.

        Raises OperatorError. `undo` is for a reload that fails elsewhere.
        """
        self.prepared = ports = self._plan(settings, self._assignments.nodes)
        if self._names is None:
            for node_id, (port, _) in self._assignments.nodes.items():
                if node_id in self.bound and ports.assignments.port(node_id) == port == self.bound[node_id].port:
                    self._keep(ports, node_id)
        if settings.port == self._settings.port:
            self._keep(ports, None)
        self._bind_all(ports)
        return partial(self._apply, ports)

    def _keep(self, ports: _Ports, node_id: int | None) -> None:
        if (ports.family, ports.host) == (self._ports.family, self._ports.host):
            ports.bound[node_id] = self.bound[node_id]

    def undo(self) -> None:
        """What `prepare` has bound is closed."""
        if self.prepared is not None:
            for bound_port in self.prepared.bound.values():
                if bound_port not in self.bound.values():
                    bound_port.close()
        self.prepared = None

    def _apply(self, ports: _Ports) -> Sequence[BoundPort]:
        former, self._ports, self.prepared = self._ports, ports, None
        if self._names is not None and ports.bound[None] is former.bound[None]:
            ports.bound.update(former.bound)  # brokers behind the same port
        for bound_port in ports.bound.values():
            if self._accepting is not None and bound_port not in former.bound.values():
                self._accepting.start_soon(bound_port.accept, self._welcome)
        gone = [bound_port for bound_port in former.bound.values() if bound_port not in ports.bound.values()]
        for bound_port in gone:
            bound_port.close()
            self._sockets.gave_up(bound_port.port, former.settings.mode)
        if ports.assignments.nodes != former.assignments.nodes:
            self._save()
        return gone

    async def accept(self) -> None:
        """Accept clients on all ports, also on those of new brokers. Runs until cancelled."""
        self._was_open = True
        async with trio.open_nursery() as accepting:
            for bound_port in self.bound.values():
                accepting.start_soon(bound_port.accept, self._welcome)
            self._accepting = accepting
            try:
                await trio.sleep_forever()
            finally:
                self._accepting = None  # at once: a nursery that has ended takes no more tasks

    def close(self) -> None:
        self._is_closed = True
        for bound_port in self.bound.values():
            self._close(bound_port)
        with suppress(ValueError):
            self._cluster.when_identified.remove(self._identified)

    def _bind_known(self, ports: _Ports, node_id: int | None, port: int) -> None:
        if node_id in ports.bound:
            return
        try:
            self._open(ports, node_id, port)
        except OSError as error:
            nodes = ports.settings.nodes
            if node_id is not None and isinstance(nodes, PortRange) and error.errno == errno.EADDRINUSE:
                text = f"listener {self._name!r}: port {port} of broker {node_id} is taken: it will get another one"
                log.warning("broker-port-taken", extra=event(text, listener=self._name, node_id=node_id, port=port))
                ports.assignments.refuse(port)
                return
            which = "" if node_id is None else f" of broker {node_id}"
            setting = "listen" if node_id is None else "ports"
            raise OperatorError.of(
                f"listener {self._name!r}",
                f"cannot listen on {Address(ports.host, port)}{which}: {error.strerror}: choose another with {setting}",
            ) from error

    def _open(self, ports: _Ports, node_id: int | None, port: int) -> BoundPort:
        sock = self._sockets.open(ports.family, (ports.host, port), ports.settings.mode)
        bound_port = ports.bound[node_id] = self._port_of(node_id, sock, sock.getsockname()[1])
        if self._accepting is not None and ports is self._ports:
            self._accepting.start_soon(bound_port.accept, self._welcome)
        if self._is_closed:  # an answer that came while it drains: refused there, as at all its ports
            self._close(bound_port)
        return bound_port

    def _close(self, bound_port: BoundPort) -> None:
        bound_port.close()
        if self._was_open:
            self._sockets.gave_up(bound_port.port, self._settings.mode)

    def _port_of(self, node_id: int | None, sock: socket.socket, port: int, *, accepts: bool = True) -> BoundPort:
        return BoundPort(
            node_id,
            sock,
            port,
            self._cluster,
            ask_for_brokers=self.ask_for_brokers,
            complain=self._complain,
            accepts=accepts,
            turns=self._sockets.turns(port),
        )

    def _named_port(self, node_id: int) -> BoundPort:
        """With routing by SNI: a broker behind the bootstrap port."""
        return self._port_of(node_id, self.bound[None].sock, self.port, accepts=False)

    def advertise(self, address: Address, node_id: int, local_host: str) -> tuple[str, int]:
        """The address at which a client reaches the broker; its port is bound when this returns. Raises NoPort."""
        if self._names is not None:
            return self._advertise_name(self._names, address, node_id)
        bound_port = self.bound.get(node_id) or self._open_for(node_id, address)
        self._cluster.brokers[node_id] = address
        if self._assignments.assign(node_id, bound_port.port, address):
            self._sockets.changed(self._name, node_id, bound_port.port, address)
            self._save()
        return self._advertised_host(local_host), bound_port.port

    def learn(self, node_id: int, port: int, address: Address) -> None:
        """Another worker has learned of a broker. Raises OSError."""
        if self._names is None and node_id not in self.bound:
            self._open(self._ports, node_id, port)
        self._cluster.brokers[node_id] = address
        self._assignments.assign(node_id, port, address)

    def _advertise_name(self, names: ServerNames, address: Address, node_id: int) -> tuple[str, int]:
        advertised = Address(names.host(node_id), self._settings.advertised_port or self.port)
        if node_id not in self.bound:
            self.bound[node_id] = self._named_port(node_id)
            self._log_broker(node_id, address, str(advertised), advertised.port)
        self._cluster.brokers[node_id] = address
        return advertised

    def asked_for(self, bound_port: BoundPort, name: str | None) -> BoundPort:
        """With routing by SNI: the broker whose name a client has asked for, known or not."""
        if self._names is None:
            return bound_port
        node_id = self._names.node(name)
        if node_id is None:
            return bound_port
        return self.bound.get(node_id) or self._named_port(node_id)

    async def ask_for_brokers(self) -> None:
        """Ask the cluster, and give each broker its port. A cluster with SASL or TLS does not answer."""
        try:
            await self._ask_for_brokers()
        finally:
            if self._cluster.first_metadata is not None:
                self._cluster.first_metadata.set()

    async def _ask_for_brokers(self) -> None:
        try:
            metadata = await self._cluster.ask_metadata()
        except NotReached as error:
            return self._log_unreachable(str(error))
        except NotLearned as error:
            return self._log_not_learned(str(error))
        for broker in metadata.brokers:
            with suppress(NoPort):  # `advertise` has logged it
                self.advertise(Address(broker.host, broker.port), broker.node_id, self._settings.host)

    def _log_unreachable(self, why: str) -> None:
        cluster = self._cluster
        if (left_out := cluster.throttle.admit("cluster-unreachable", self._name, why)) is not None:
            text = f"cluster {cluster.name!r}: {why}; retried on each client connection{more_of_this_kind(left_out)}"
            values = event(text, cluster=cluster.name, error=why, left_out=left_out or None)
            log.warning("cluster-unreachable", extra=values)

    def _log_not_learned(self, why: str) -> None:
        cluster = self._cluster
        if (left_out := cluster.throttle.admit("brokers-not-learned", self._name, why)) is not None:
            text = (
                f"cluster {cluster.name!r}: broker discovery failed ({why}); using clients' metadata "
                f"instead{more_of_this_kind(left_out)}"
            )
            values = event(text, cluster=cluster.name, error=why, left_out=left_out or None)
            log.info("brokers-not-learned", extra=values)

    def _advertised_host(self, local_host: str) -> str:
        host = self._settings.advertised_host or self._settings.host
        return local_host if host in WILDCARDS else host

    def _open_for(self, node_id: int, address: Address) -> BoundPort:
        if self._file.is_frozen:
            raise NoPort(f"listener {self._name!r}: another Shoal takes over, and binds a port for broker {node_id}")
        assigned = self._sockets.assigned(self._name, node_id, address)
        if assigned is not None:
            return self._open_assigned(node_id, assigned)
        while True:
            try:
                port = self._assignments.offer(node_id, address)
            except NoPort as error:
                self._complain("broker-has-no-port", str(error), node_id=node_id, broker=str(address))
                raise
            try:
                bound_port = self._open(self._ports, node_id, port)
            except OSError as error:
                if isinstance(self._settings.nodes, PortMap) or error.errno not in _OF_OTHERS:
                    raise NoPort(f"cannot listen on port {port} of broker {node_id}: {error.strerror}") from error
                self._assignments.refuse(port)
            else:
                self._log_broker(node_id, address, f"on port {bound_port.port}", bound_port.port)
                return bound_port

    def _open_assigned(self, node_id: int, port: int) -> BoundPort:
        """The supervisor has opened it for all workers, and logged it."""
        try:
            return self._open(self._ports, node_id, port)
        except OSError as error:
            raise NoPort(f"cannot listen on port {port} of broker {node_id}: {error.strerror}") from error

    def _log_broker(self, node_id: int, address: Address, where: str, port: int) -> None:
        text = f"listener {self._name!r}: broker {node_id} ({address}) is {where}"
        values = event(text, listener=self._name, node_id=node_id, broker=str(address), port=port)
        log.info("broker-port", extra=values)

    def _save(self) -> None:
        self._file.save(self._settings.nodes, self.state())

    def _identified(self, cluster: str) -> None:
        """The state file may belong to another cluster."""
        known = self._saved_state.cluster
        self._saved_state = self._saved_state._replace(cluster=cluster)
        if known not in (None, cluster):
            for node_id, (_, address) in self._saved_state.nodes.items():
                if self._cluster.brokers.get(node_id) == address:
                    self._cluster.brokers.pop(node_id, None)
            self._assignments.forget_addresses()
            self._file.discard(self._settings.nodes, f"of cluster {known}, and this is {cluster}")
        if known != cluster and self._assignments.nodes:
            self._save()


def _resolve(settings: ListenerSettings) -> tuple[int, str]:
    """-> address family and numeric host. Raises OperatorError."""
    try:
        found = socket.getaddrinfo(
            settings.host or None, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        what = f"host {settings.host!r}: {error.strerror}: choose an address of this machine with listen"
        raise OperatorError.of(f"listener {settings.name!r}", what) from error
    family, _, _, _, address = found[0]
    return family, str(address[0])
