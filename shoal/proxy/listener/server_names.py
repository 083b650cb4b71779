"""`routing = "sni"`: which broker a TLS client means, by the name that it asks for in its hello.

shoal.example           the bootstrap server (`advertise`)
broker-7.shoal.example  broker 7 (`broker-host = "broker-{node}.shoal.example"`)
no name                 the bootstrap server: a client that connects to an address sends no name
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shoal.proxy.config.security import Routing

if TYPE_CHECKING:
    from shoal.proxy.config.settings import ListenerSettings

__all__ = ["ServerNames", "UnknownName", "names_of"]

_LARGEST_NODE = (1 << 31) - 1


class UnknownName(Exception):
    """The message has the names that are known."""


class ServerNames:
    def __init__(self, bootstrap: str, broker_host: str) -> None:
        self._bootstrap = _normal(bootstrap)
        self._broker_host = broker_host
        before, _, after = _normal(broker_host).partition("{node}")
        self._broker = re.compile(rf"{re.escape(before)}(0|[1-9]\d{{0,9}}){re.escape(after)}", re.ASCII)

    def host(self, node_id: int) -> str:
        return self._broker_host.replace("{node}", str(node_id))

    def knows(self, name: str | None) -> bool:
        try:
            self.node(name)
        except UnknownName:
            return False
        return True

    def node(self, name: str | None) -> int | None:
        """The broker's id; None: the bootstrap server. Raises UnknownName."""
        if name is None or _normal(name) == self._bootstrap:
            return None
        match = self._broker.fullmatch(_normal(name))
        if match is None or int(match[1]) > _LARGEST_NODE:
            raise UnknownName(
                f"the client asks for the name {name!r}, and known are {self._bootstrap} (advertise) and "
                f"{self._broker_host} (broker-host): correct the client's bootstrap.servers, or these settings"
            )
        return int(match[1])


def names_of(settings: ListenerSettings) -> ServerNames | None:
    """None: each broker has a port."""
    if settings.routing is not Routing.SNI or settings.advertised_host is None or settings.broker_host is None:
        return None
    return ServerNames(settings.advertised_host, settings.broker_host)


def _normal(name: str) -> str:
    return name.lower().removesuffix(".")
