"""Clients with old versions: the APIs that each legacy client uses, logged once, so that operators can upgrade it.

Clients are those of the table of all clients (connection/clients.py). One is logged some seconds after its first
translated request, when it has used most of its APIs; it is logged again if it shows a newer release later.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from math import inf
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import trio

from shoal.protocol.legacy.errors import Release, spoken_since
from shoal.protocol.legacy.versions import UPSTREAM_VERSION
from shoal.protocol.schema.api import API
from shoal.protocol.schema.used_versions import members
from shoal.proxy.events.logs import event

if TYPE_CHECKING:
    from shoal.proxy.connection.clients import ClientEntry
    from shoal.proxy.connection.connection import Connection

__all__ = ["LegacyClients"]

log = logging.getLogger("shoal.legacy")

_LISTEN_SECONDS = 5.0
_MOST_SHOWN = 1000
_MOST_LINES = 5  # in a second: a client may send another client id each time
_SETS_REMEMBERED = 256  # clients of one release use the same versions


@dataclass(slots=True)
class _Translated:
    since: float  # the first request that was translated
    logged: Release | None = None


class LegacyClients:
    def __init__(self, listener: str) -> None:
        self._listener = listener
        self._clients: WeakKeyDictionary[ClientEntry, _Translated] = WeakKeyDictionary()  # while the table has them

    def shown(self, connection: Connection) -> Release:
        """The oldest possible release of this connection's client, judged by its requests so far."""
        return _release(connection.first_uses.used)

    def translated(self, connection: Connection) -> None:
        """Note that a request is translated."""
        entry = connection.first_uses.entry
        if entry is not None and entry not in self._clients and entry is not connection.listener.clients.others:
            self._clients[entry] = _Translated(trio.current_time())

    def tick(self, now: float) -> None:
        """Log clients that were observed long enough, some in each second; at the end, with `inf`, all."""
        due = (
            (entry, translated, release)
            for entry, translated in self._clients.items()
            if translated.since + _LISTEN_SECONDS <= now and translated.logged != (release := _release(entry.used))
        )
        for entry, translated, release in islice(due, None if now == inf else _MOST_LINES):
            translated.logged = release
            self._log_client(entry, release)

    def status(self) -> list[dict[str, object]]:
        """The clients whose requests are translated, the latest last; at most `_MOST_SHOWN`."""
        return [
            {
                "host": entry.name.host,
                "client_id": entry.name.client_id,
                "like": str(_release(entry.used)),
                "translated": _translated(entry.used),
            }
            for entry in list(self._clients)[-_MOST_SHOWN:]
        ]

    def _log_client(self, entry: ClientEntry, release: Release) -> None:
        host, client_id = entry.name.host, entry.name.client_id
        translated = _translated(entry.used)
        text = (
            f"listener {self._listener!r}: legacy client {_named(client_id)} at {host} uses the protocol of Kafka "
            f"{release}, which brokers of Kafka 4 do not support: {translated} are translated; upgrade it"
        )
        values = event(
            text, listener=self._listener, client_id=client_id, host=host, like=str(release), versions=translated
        )
        log.info("legacy-client", extra=values)


@lru_cache(_SETS_REMEMBERED)
def _release(used: int) -> Release:
    """The oldest one that uses these versions."""
    found = (spoken_since(key, version) for key, version in members(used))
    return max((release for release in found if release is not None), default=Release.V0_8_2)


def _translated(used: int) -> str:
    translated = (
        (key, version)
        for key, version in members(used)
        if version < UPSTREAM_VERSION.get(key, 0) and spoken_since(key, version) is not None
    )
    return ", ".join(f"{API[key].name} v{version}" for key, version in translated)


def _named(client_id: str | None) -> str:
    return "without a client id" if client_id is None else repr(client_id)
