"""Which broker of a listener has which port: stable while the process runs, and across restarts with a state file.

A node keeps its port; a new node of a range gets the lowest unused port; a
port of another program is skipped and never offered again. A `PortMap` is used exactly as the operator wrote it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from shoal.proxy.config.settings import Address, PortMap, PortRange

if TYPE_CHECKING:
    from shoal.proxy.config.settings import NodePorts

__all__ = ["NoPort", "Nodes", "PortAssignments", "SavedPorts"]

Nodes = dict[int, tuple[int, Address | None]]
"""Node id -> (listening port, the broker's own address as last seen)."""


class NoPort(Exception):
    """A broker has no port here, so an answer with its address cannot be passed on."""


class SavedPorts(NamedTuple):
    """`cluster`: the id of the brokers' cluster; None: unknown."""

    nodes: Nodes
    cluster: str | None = None


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
