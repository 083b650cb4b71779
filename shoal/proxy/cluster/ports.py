"""Which broker of a listener has which port: stable while the process runs, and across restarts with a state file.

Pure, except `read_state` and `write_state`. A node keeps its port; a new node of a range gets the lowest unused port; a
port of another program is skipped and never offered again. A `PortMap` is used exactly as the operator wrote it.

The state file also has each broker's address. So a client with cached metadata can reconnect to a broker's port and
reach that broker right after a start of Shoal, before Shoal has read any metadata.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from shoal.proxy.cluster.state_files import NotOurs
from shoal.proxy.config.settings import Address, PortMap, PortRange

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from shoal.proxy.config.settings import NodePorts

__all__ = ["CorruptState", "NoPort", "Nodes", "PortAssignments", "SavedPorts", "read_state", "write_state"]

_STATE_VERSION = 2
_READABLE = (1, _STATE_VERSION)  # 1 had no cluster
_BEGINNING = '{\n "version": '  # of every state file that Shoal writes

Nodes = dict[int, tuple[int, Address | None]]
"""Node id -> (listening port, the broker's own address as last seen)."""


class NoPort(Exception):
    """A broker has no port here, so an answer with its address cannot be passed on."""


class SavedPorts(NamedTuple):
    """`cluster`: the id of the brokers' cluster; None: unknown."""

    nodes: Nodes
    cluster: str | None = None


class CorruptState(Exception):
    """A state file of Shoal that cannot be used; the message says why."""


class PortAssignments:
    """The ports of one listener. Nothing is bound here: `offer`, try to bind, then `assign` or `refuse`."""

    def __init__(self, listener: str, ports: NodePorts, known: Nodes | None = None) -> None:
        self._listener = listener
        self._ports = ports
        self._refused: set[int] = set()
        self.nodes: Nodes = {}
        if isinstance(ports, PortMap):
            self.nodes = {node_id: (port, None) for node_id, port in ports.ports.items()}
        for node_id, (port, address) in (known or {}).items():
            if isinstance(ports, PortRange) and ports.first <= port <= ports.last:
                self.nodes[node_id] = (port, address)
            elif node_id in self.nodes:
                self.nodes[node_id] = (self.nodes[node_id][0], address)

    def port(self, node_id: int) -> int | None:
        node = self.nodes.get(node_id)
        return node[0] if node else None

    def address(self, node_id: int) -> Address | None:
        node = self.nodes.get(node_id)
        return node[1] if node else None

    def offer(self, node_id: int, address: Address) -> int:
        """The port to bind for a node that has none bound yet. Raises NoPort."""
        port = self.port(node_id)
        if port is not None and port not in self._refused:
            return port
        if isinstance(self._ports, PortMap):
            raise NoPort(self._unmapped(node_id, address) if port is None else self._map_taken(node_id, port))
        taken = {node_port for node_port, _ in self.nodes.values()} | self._refused
        for candidate in range(self._ports.first, self._ports.last + 1):
            if candidate not in taken:
                return candidate
        raise NoPort(
            f"no port is left for broker {node_id} at {address} in "
            f"{self._ports.first}-{self._ports.last}: set a larger range"
        )

    def assign(self, node_id: int, port: int, address: Address | None) -> bool:
        """-> whether this is a change."""
        new = (port, address)
        changed = self.nodes.get(node_id) != new
        self.nodes[node_id] = new
        return changed

    def forget_addresses(self) -> None:
        """The nodes were of another cluster; their ports are kept."""
        self.nodes = {node_id: (port, None) for node_id, (port, _) in self.nodes.items()}

    def refuse(self, port: int) -> None:
        """Another program uses this port."""
        self._refused.add(port)

    def _unmapped(self, node_id: int, address: Address) -> str:
        known = ", ".join(f"{node} = {port}" for node, (port, _) in sorted(self.nodes.items()))
        return (
            f"broker {node_id} at {address} has no port in the listener's ports "
            f"({known or 'empty'}): add one for {node_id}"
        )

    def _map_taken(self, node_id: int, port: int) -> str:
        return (
            f"listener {self._listener!r}: port {port} of broker {node_id} is taken by another program: set another one"
        )


def read_state(path: Path, listener: str) -> SavedPorts:
    """The state from `write_state`; empty if there is no such file. Raises NotOurs, CorruptState, or OSError."""
    try:
        text = path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return SavedPorts({})
    try:
        state = json.loads(text)
        version, owner = state["version"], state["listener"]
    except (ValueError, KeyError, TypeError) as error:
        if text and not text.startswith(_BEGINNING):
            raise NotOurs(path, f"a state file of listener {listener!r}") from None
        raise CorruptState(f"it is not whole: {error}" if text else "it is empty") from None
    if owner != listener:
        raise NotOurs(path, f"a state file of listener {listener!r}, but of {owner!r}")
    if version not in _READABLE:
        raise CorruptState(f"it is of version {version!r}, and this Shoal writes {_STATE_VERSION}")
    try:
        cluster = state.get("cluster")
        return SavedPorts(dict(_parse(state)), cluster if isinstance(cluster, str) else None)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptState(f"it is damaged: {error}") from None


def _parse(state: Mapping[str, object]) -> Iterator[tuple[int, tuple[int, Address | None]]]:
    nodes = state["nodes"]
    if not isinstance(nodes, dict):
        raise ValueError("nodes is not a table")
    seen: set[int] = set()
    for node_id, node in nodes.items():
        port, host, upstream_port = node["port"], node["host"], node["upstream_port"]
        if not (
            isinstance(port, int) and 0 < port < 65536 and isinstance(host, str) and isinstance(upstream_port, int)
        ):
            raise ValueError(f"node {node_id} is {node!r}")
        if port in seen:
            raise ValueError(f"two nodes have port {port}")
        seen.add(port)
        yield int(node_id), (port, Address(host, upstream_port) if host else None)


def write_state(path: Path, listener: str, nodes: Nodes, cluster: str | None = None) -> None:
    """Replace the file atomically. Raises OSError."""
    state = {
        "version": _STATE_VERSION,
        "listener": listener,
        "cluster": cluster,
        "nodes": {
            str(node_id): {
                "port": port,
                "host": address.host if address else "",
                "upstream_port": address.port if address else 0,
            }
            for node_id, (port, address) in sorted(nodes.items())
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with temporary.open("w") as file:
            file.write(json.dumps(state, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())  # otherwise a machine crash may leave an empty file
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
