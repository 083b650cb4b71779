"""The clients of all listeners: one entry for each, with the APIs that it uses.

A connection reports each (API, version) when it uses it for the first time (`RequestPump` knows: it has no route for it
yet), so that a request costs nothing here. Its traffic is counted by its pumps, and added to the entry at its end.

Clients choose their names. So the table is bounded, and names are cut; the clients of the past that were not seen for
the longest time are forgotten first, and their sums go to `others`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import trio

from shoal.protocol.messages.api_versions import Software, read_software
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import SIZE_BYTES, has_client_id, peek_client_id, read_request_prefix
from shoal.protocol.schema.used_versions import as_set
from shoal.proxy.statistics import Traffic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.protocol.wire.types import Buffer
    from shoal.proxy.config.settings import Address

__all__ = ["MOST_CLIENTS", "ClientEntry", "ClientName", "Clients", "FirstUses", "may_be_read"]

MOST_CLIENTS: Final = 10_000  # some 2 KiB each
_MOST_CHARACTERS: Final = 256  # of a client id, and of each other name; longer ones end in "..."
_MOST_VERSIONS_REQUEST: Final = 4096  # bytes of an ApiVersions request that is waited for; usual ones have 60


class ClientName(NamedTuple):
    """What tells clients apart. A new release of a client is another one: it may use other versions."""

    listener: str
    host: str
    client_id: str | None
    principal: str | None  # of a certificate, or of a login at Shoal
    software: Software | None


class ClientEntry:
    """`used`: a set of `protocol.schema.used_versions`. Times are trio's; `traffic`: of closed connections."""

    __slots__ = ("__weakref__", "connections", "first_seen", "last_seen", "name", "opened", "traffic", "used")

    def __init__(self, name: ClientName, now: float) -> None:
        self.name = name
        self.used = 0
        self.first_seen = self.last_seen = now
        self.opened = 0
        self.connections: set[ClientConnection] = set()
        self.traffic = Traffic()

    def total(self) -> Traffic:
        """With the open connections."""
        found = Traffic()
        found.add(self.traffic)
        for connection in self.connections:
            found.add(connection.traffic())
        return found

    def seen(self) -> float:
        """When the client has last sent something, to a second."""
        return max([self.last_seen, *(connection.timeouts.heard_at for connection in self.connections)])


class Heard(Protocol):
    heard_at: float


class ClientConnection(Protocol):
    """A connection, for this table."""

    client_id: str | None
    first_uses: FirstUses

    @property
    def peer(self) -> Address: ...
    @property
    def principal(self) -> str | None: ...
    @property
    def timeouts(self) -> Heard: ...
    def traffic(self) -> Traffic: ...


class FirstUses:
    """What one connection has used so far."""

    __slots__ = ("entry", "software", "used")

    def __init__(self) -> None:
        self.used = 0
        self.software: Software | None = None
        self.entry: ClientEntry | None = None  # None: not in the table yet


def may_be_read(first: Buffer) -> bool:
    """True if enough of a request has arrived for `Clients.first_use`."""
    size, key, _, _ = read_request_prefix(first)
    whole = SIZE_BYTES + size
    if len(first) >= whole:
        return True
    return has_client_id(first) and (key != ApiKey.API_VERSIONS or whole > _MOST_VERSIONS_REQUEST)


class Clients:
    """Those of all listeners. `most`: entries."""

    def __init__(self, most: int = MOST_CLIENTS) -> None:
        self._most = most
        self._connected: dict[ClientName, ClientEntry] = {}
        self._gone: OrderedDict[ClientName, ClientEntry] = OrderedDict()  # without a connection, the oldest first
        self.others = ClientEntry(ClientName("", "", None, None, None), 0.0)
        self.forgotten = 0  # clients in `others`; one that returns counts again

    def __iter__(self) -> Iterator[ClientEntry]:
        """Without `others`."""
        yield from self._connected.values()
        yield from reversed(self._gone.values())

    def __len__(self) -> int:
        return len(self._connected) + len(self._gone)

    @staticmethod
    def read(connection: ClientConnection, first: Buffer) -> None:
        """Note a request, without an entry: the client has yet to log in."""
        _, key, version, _ = read_request_prefix(first)
        uses = connection.first_uses
        uses.used |= as_set(key, version)
        if connection.client_id is None:
            connection.client_id = peek_client_id(first)
        if key == ApiKey.API_VERSIONS and (found := read_software(first)) is not None:
            uses.software = Software(_cut(found.name), _cut(found.version))

    def first_use(self, connection: ClientConnection, listener: str, first: Buffer) -> None:
        """Note a request of an API and version that this connection has not used before. See `may_be_read`."""
        self.read(connection, first)
        uses = connection.first_uses
        if uses.entry is None or uses.entry.name.software != uses.software:
            self._enter(connection, self._name(connection, listener))
        assert uses.entry is not None
        uses.entry.used |= uses.used

    @staticmethod
    def _name(connection: ClientConnection, listener: str) -> ClientName:
        client_id, principal = connection.client_id, connection.principal
        return ClientName(
            listener,
            connection.peer.host,
            None if client_id is None else _cut(client_id),
            None if principal is None else _cut(principal),
            connection.first_uses.software,
        )

    def _enter(self, connection: ClientConnection, name: ClientName) -> None:
        former, now = connection.first_uses.entry, trio.current_time()
        if former is not None:  # its software was not known before
            former.opened -= 1
            self._leave(connection, former, now)
        entry = self._connected.get(name) or self._gone.pop(name, None) or self._new(name, now)
        if entry is not self.others:
            self._connected[name] = entry
        entry.opened += 1
        entry.connections.add(connection)
        connection.first_uses.entry = entry

    def _new(self, name: ClientName, now: float) -> ClientEntry:
        if len(self) >= self._most:
            self.forgotten += 1
            if not self._gone:
                return self.others
            _, oldest = self._gone.popitem(last=False)
            self._add_to_others(oldest)
        return ClientEntry(name, now)

    def _add_to_others(self, entry: ClientEntry) -> None:
        others = self.others
        others.used |= entry.used
        others.opened += entry.opened
        others.last_seen = max(others.last_seen, entry.last_seen)
        others.traffic.add(entry.traffic)

    def ended(self, connection: ClientConnection) -> None:
        """Its sockets are closed."""
        entry = connection.first_uses.entry
        if entry is not None:
            entry.traffic.add(connection.traffic())
            self._leave(connection, entry, connection.timeouts.heard_at)

    def _leave(self, connection: ClientConnection, entry: ClientEntry, heard_at: float) -> None:
        entry.connections.discard(connection)
        entry.last_seen = max(entry.last_seen, heard_at)
        if entry is self.others or entry.connections:
            return
        del self._connected[entry.name]
        if entry.opened:
            self._gone[entry.name] = entry


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."
