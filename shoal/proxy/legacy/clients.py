"""Clients with old versions: the APIs that each legacy client uses, logged once, so that operators can upgrade it.

A client is identified by client id and address. It is logged some seconds after its first old request, when it has used
most of its APIs; it is logged again if it shows a newer release later.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import trio

from shoal.protocol.legacy.errors import Release, spoken_since
from shoal.protocol.legacy.versions import UPSTREAM_VERSION
from shoal.protocol.schema.api import API
from shoal.proxy.logs import event

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.proxy.connection.connection import Connection

__all__ = ["LegacyClients"]

log = logging.getLogger("shoal.legacy")

_LISTEN_SECONDS = 5.0
_MAX_CLIENTS = 10_000  # the least recently seen are forgotten, and logged again when they return


@dataclass(slots=True)
class _Client:
    since: float  # its first request that was translated; inf: none so far
    spoken: set[tuple[int, int]] = field(default_factory=set)  # API key, version
    release: Release = Release.V0_8_2
    told: bool = False


class LegacyClients:
    def __init__(self, listener: str) -> None:
        self._listener = listener
        self._clients: OrderedDict[tuple[str, str | None], _Client] = OrderedDict()
        self._shown: WeakKeyDictionary[Connection, Release] = WeakKeyDictionary()  # some never log in

    def shown(self, connection: Connection) -> Release:
        """The oldest possible release of this connection's client, judged by its requests so far."""
        return self._shown.get(connection, Release.V0_8_2)

    def asked(self, connection: Connection, api_key: int, version: int) -> None:
        """Note a request in a version of legacy clients."""
        since = spoken_since(api_key, version)
        if since is not None and since > self.shown(connection):
            self._shown[connection] = since
        client = self._client(connection)
        spoken = api_key, version
        if spoken in client.spoken:
            return
        client.spoken.add(spoken)
        if since is not None and since > client.release:
            client.release, client.told = since, False
        if client.since > (now := trio.current_time()) and version < UPSTREAM_VERSION.get(api_key, 0):
            client.since = now

    def _client(self, connection: Connection) -> _Client:
        name = connection.peer.host, connection.client_id
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = _Client(float("inf"))
            if len(self._clients) > _MAX_CLIENTS:
                self._clients.popitem(last=False)
        else:
            self._clients.move_to_end(name)
        return client

    def closed(self, connection: Connection) -> None:
        self._shown.pop(connection, None)

    def tick(self, now: float) -> None:
        """Log the clients that were observed long enough; at the end, with `inf`, all."""
        for (host, client_id), client in self._clients.items():
            if not client.told and client.since < now and client.since + _LISTEN_SECONDS <= now:
                client.told = True
                self._log_client(host, client_id, client)

    def _log_client(self, host: str, client_id: str | None, client: _Client) -> None:
        translated = _versions(one for one in client.spoken if one[1] < UPSTREAM_VERSION.get(one[0], 0))
        text = (
            f"listener {self._listener!r}: legacy client {client_id!r} at {host} uses the protocol of Kafka "
            f"{client.release}, which brokers of Kafka 4 do not support: {translated} are translated; upgrade it"
        )
        names = event(
            text, listener=self._listener, client_id=client_id, host=host, like=str(client.release), versions=translated
        )
        log.info("legacy client", extra=names)


def _versions(spoken: Iterable[tuple[int, int]]) -> str:
    return ", ".join(f"{API[key].name} v{version}" for key, version in sorted(spoken))
