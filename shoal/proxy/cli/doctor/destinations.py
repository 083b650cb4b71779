"""The entries of a bootstrap list, and whether each is a listener of Shoal."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from shoal.proxy.config.parse import LOOPBACK, parse_address
from shoal.proxy.config.settings import WILDCARDS, Address, ListenerSettings, PortRange
from shoal.proxy.listener.server_names import names_of

if TYPE_CHECKING:
    from collections.abc import Container

    from shoal.proxy.config.settings import ClusterSettings

__all__ = ["Destination", "ShoalListeners", "client_address"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9_]*://")  # Kafka's clients ignore it (Utils.getHost)


class Destination(StrEnum):
    WRAP = "wrap"
    UNWRAP = "unwrap"
    PLAIN = "plain"
    DIRECT = "direct"  # to a broker, or to another program
    UNKNOWN = "unknown"  # not an address: the ${...} of a config provider, for example


@dataclass(frozen=True, slots=True, kw_only=True)
class ShoalListeners:
    """The pair of listeners for the mirror, all other listeners, and the clusters, as far as known."""

    wrap: ListenerSettings
    unwrap: ListenerSettings
    others: tuple[ListenerSettings, ...] = ()
    clusters: tuple[ClusterSettings, ...] = ()

    def cluster_of(self, listener: ListenerSettings) -> ClusterSettings | None:
        return next((cluster for cluster in self.clusters if cluster.name == listener.cluster), None)

    def destinations(self, bootstrap: str) -> dict[str, Destination]:
        """Entry of a bootstrap list -> its destination."""
        return {entry.strip(): self._destination(entry.strip()) for entry in bootstrap.split(",") if entry.strip()}

    def _destination(self, entry: str) -> Destination:
        try:
            address = parse_address(_SCHEME.sub("", entry))
        except ValueError:
            return Destination.UNKNOWN
        listeners = (self.wrap, self.unwrap, *self.others)
        return next((Destination(x.mode.value) for x in listeners if _reaches(address, x)), Destination.DIRECT)


def _reaches(address: Address, listener: ListenerSettings) -> bool:
    hosts = {listener.host, listener.advertised_host or listener.host}
    if address.port not in (listener.port, listener.advertised_port) and address.port not in _broker_ports(listener):
        return False
    if (names := names_of(listener)) is not None and names.knows(address.host):
        return True
    either_loopback = address.host in LOOPBACK and not hosts.isdisjoint(LOOPBACK)
    return address.host in hosts or either_loopback or listener.host in WILDCARDS


def _broker_ports(listener: ListenerSettings) -> Container[int]:
    nodes = listener.nodes
    return range(nodes.first, nodes.last + 1) if isinstance(nodes, PortRange) else nodes.ports.values()


def client_address(listener: ListenerSettings) -> str:
    """The listener's address for a bootstrap list: the advertised host, or its address on this machine."""
    host = listener.advertised_host or ("127.0.0.1" if listener.host in WILDCARDS else listener.host)
    return str(Address(host, listener.advertised_port or listener.port))
