"""The ports of one listener: the bootstrap port, one for each broker, and the addresses that clients get for them.

    a broker in an answer   ->  `advertise`  ->  its port, bound now if it is new  ->  the address for the client
    a client of a port      ->  `asked_for`  ->  the broker that it means

Ports are bound synchronously: the port of a new broker is open before the answer with its address is sent. Ports of the
state file and of an explicit map are bound at start-up, so that a client with cached metadata can reconnect to any of
them after a restart of Shoal. With `routing = "sni"` all brokers share the bootstrap port, and have a name each.

`cluster.ports` decides which port a broker gets, and reads and writes the state file. Here they are bound.
"""

from __future__ import annotations

import errno
import logging
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from shoal.proxy.cluster.bound_port import BoundPort
from shoal.proxy.cluster.cluster import NotLearned, NotReached
from shoal.proxy.cluster.ports import CorruptState, NoPort, PortAssignments, SavedPorts, read_state, write_state
from shoal.proxy.cluster.state_files import NotOurs, set_aside
from shoal.proxy.config.settings import WILDCARDS, Address, PortMap, PortRange
from shoal.proxy.errors import OperatorError
from shoal.proxy.net.transport import make_reset

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shoal.proxy.cluster.cluster import Cluster
    from shoal.proxy.config.settings import ListenerSettings
    from shoal.proxy.listener.server_names import ServerNames

__all__ = ["BrokerPorts"]

log = logging.getLogger("shoal.listener")

_BACKLOG = 4096  # the kernel's own limit (net.core.somaxconn): a flood fills a shorter queue, and good clients wait


class BrokerPorts:
    """`names`: with routing by SNI. `welcome` gets each client's socket and host. `state_failed` counts."""

    def __init__(
        self,
        settings: ListenerSettings,
        cluster: Cluster,
        names: ServerNames | None,
        *,
        welcome: Callable[[BoundPort, int, str], None],
        complain: Callable[[str], None],
        state_failed: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._name = settings.name
        self._cluster = cluster
        self._names = names
        self._welcome = welcome
        self._complain = complain
        self._state_failed = state_failed
        self._accepting: trio.Nursery | None = None
        self._family, self._host = _resolve(settings)
        self._saved_state = _read_state(settings)
        self._assignments = PortAssignments(settings.name, settings.nodes, self._saved_state.nodes)
        self.bound: dict[int | None, BoundPort] = {}
        cluster.when_identified.append(self._identified)

    @property
    def port(self) -> int:
        """The bootstrap port."""
        return self.bound[None].port

    def bind(self) -> None:
        """Bind the bootstrap port and those of all known brokers. Raises OperatorError."""
        self._bind_known(None, self._settings.port)
        for node_id, (port, address) in sorted(self._assignments.nodes.items()):
            if address is not None:
                self._cluster.brokers.setdefault(node_id, address)
            self._bind_known(node_id, port)

    async def accept(self) -> None:
        """Accept clients on all ports, also on those of new brokers. Runs until cancelled."""
        try:
            async with trio.open_nursery() as self._accepting:
                for bound_port in self.bound.values():
                    self._accepting.start_soon(bound_port.accept, self._welcome)
        finally:
            self._accepting = None

    def close(self) -> None:
        for bound_port in self.bound.values():
            bound_port.close()

    def _bind_known(self, node_id: int | None, port: int) -> None:
        try:
            self._open(node_id, port)
        except OSError as error:
            if node_id is not None and isinstance(self._settings.nodes, PortRange) and error.errno == errno.EADDRINUSE:
                log.warning(
                    "listener %r: port %d of broker %d is taken: it will get another one",
                    self._name,
                    port,
                    node_id,
                )
                self._assignments.refuse(port)
                return
            which = "" if node_id is None else f" of broker {node_id}"
            setting = "listen" if node_id is None else "ports"
            raise OperatorError.of(
                f"listener {self._name!r}",
                f"cannot listen on {Address(self._host, port)}{which}: {error.strerror}: choose another with {setting}",
            ) from error

    def _open(self, node_id: int | None, port: int) -> BoundPort:
        sock = socket.socket(self._family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setblocking(False)
            sock.bind((self._host, port))
            make_reset(sock)
            sock.listen(_BACKLOG)
        except OSError:
            sock.close()
            raise
        bound_port = self.bound[node_id] = self._port_of(node_id, sock)
        if self._accepting is not None:
            self._accepting.start_soon(bound_port.accept, self._welcome)
        return bound_port

    def _port_of(self, node_id: int | None, sock: socket.socket, *, accepts: bool = True) -> BoundPort:
        return BoundPort(
            node_id,
            sock,
            self._cluster,
            ask_for_brokers=self.ask_for_brokers,
            complain=self._complain,
            accepts=accepts,
        )

    def _named_port(self, node_id: int) -> BoundPort:
        """With routing by SNI: a broker behind the bootstrap port."""
        return self._port_of(node_id, self.bound[None].sock, accepts=False)

    def advertise(self, address: Address, node_id: int, local_host: str) -> tuple[str, int]:
        """The address at which a client reaches the broker; its port is bound when this returns. Raises NoPort."""
        if self._names is not None:
            return self._advertise_name(self._names, address, node_id)
        bound_port = self.bound.get(node_id) or self._open_for(node_id, address)
        self._cluster.brokers[node_id] = address
        if self._assignments.assign(node_id, bound_port.port, address):
            self._save()
        return self._advertised_host(local_host), bound_port.port

    def _advertise_name(self, names: ServerNames, address: Address, node_id: int) -> tuple[str, int]:
        advertised = Address(names.host(node_id), self._settings.advertised_port or self.port)
        if node_id not in self.bound:
            self.bound[node_id] = self._named_port(node_id)
            log.info("listener %r: broker %d (%s) is %s", self._name, node_id, address, advertised)
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
            if self._cluster.first_question is not None:
                self._cluster.first_question.set()

    async def _ask_for_brokers(self) -> None:
        try:
            metadata = await self._cluster.ask_metadata()
        except NotReached as error:
            log.warning("cluster %r: %s; retried on each client connection", self._cluster.name, error)
            return
        except NotLearned as error:
            log.info(
                "cluster %r: broker discovery failed (%s); using clients' metadata instead",
                self._cluster.name,
                error,
            )
            return
        for broker in metadata.brokers:
            with suppress(NoPort):  # `advertise` has logged it
                self.advertise(Address(broker.host, broker.port), broker.node_id, self._settings.host)

    def _advertised_host(self, local_host: str) -> str:
        host = self._settings.advertised_host or self._settings.host
        return local_host if host in WILDCARDS else host

    def _open_for(self, node_id: int, address: Address) -> BoundPort:
        while True:
            try:
                port = self._assignments.offer(node_id, address)
            except NoPort as error:
                self._complain(str(error))
                raise
            try:
                bound_port = self._open(node_id, port)
            except OSError as error:
                if isinstance(self._settings.nodes, PortMap):
                    raise NoPort(f"cannot listen on port {port} of broker {node_id}: {error.strerror}") from error
                self._assignments.refuse(port)
            else:
                log.info("listener %r: broker %d (%s) is on port %d", self._name, node_id, address, bound_port.port)
                return bound_port

    def _save(self) -> None:
        nodes = self._settings.nodes
        if isinstance(nodes, PortRange) and nodes.state_file is not None:
            try:
                write_state(nodes.state_file, self._name, self._assignments.nodes, self._saved_state.cluster)
            except OSError as error:
                self._state_failed()
                self._complain(
                    f"cannot write {nodes.state_file} ({error.strerror}): Shoal goes on, and brokers may get other "
                    "ports after a restart. Make room, or choose another state-dir, and restart Shoal"
                )

    def _identified(self, cluster: str) -> None:
        """The state file may belong to another cluster."""
        known = self._saved_state.cluster
        self._saved_state = self._saved_state._replace(cluster=cluster)
        if known not in (None, cluster):
            for node_id, (_, address) in self._saved_state.nodes.items():
                if self._cluster.brokers.get(node_id) == address:
                    self._cluster.brokers.pop(node_id, None)
            self._assignments.forget_addresses()
            nodes = self._settings.nodes
            if isinstance(nodes, PortRange) and nodes.state_file is not None:
                with suppress(OSError):  # then it is overwritten: the file is Shoal's
                    _discard(self._settings, nodes.state_file, f"of cluster {known}, and this is {cluster}")
        if known != cluster and self._assignments.nodes:
            self._save()


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


def _read_state(settings: ListenerSettings) -> SavedPorts:
    """Raises OperatorError."""
    state_file: Path | None = settings.nodes.state_file if isinstance(settings.nodes, PortRange) else None
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


def _discard(settings: ListenerSettings, state_file: Path, why: str) -> None:
    """Raises OSError."""
    aside = set_aside(state_file)
    what = "listener %r: discarded %s (%s), kept as %s: brokers may get other ports"
    log.warning(what, settings.name, state_file, why, aside.name)
