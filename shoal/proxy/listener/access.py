"""Which clients may use a listener by their client id, and how fast (`client-ids` and `client-bytes-per-second`).

The id is known with the first request, so a connection begins with routes that look at it, whatever the API: then it
gets its own routes, or ends.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from shoal.protocol.schema.headers import has_client_id, peek_client_id
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.connection.routes import ANY_VERSION, Decision, Route, Wait
from shoal.proxy.listener.addresses import Networks
from shoal.proxy.statistics import CloseCause

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.proxy.config.security import AccessSettings
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.routes import RouteTable

__all__ = ["first_routes", "still_allowed"]


def first_routes(settings: AccessSettings) -> RouteTable[Connection] | None:
    """The first routes of a connection. None: its client id does not matter."""
    if not settings.client_ids and settings.client_bytes_per_second is None:
        return None
    return _FirstRoutes(_ClientIds(settings.client_ids or (".*",)))


def still_allowed(settings: AccessSettings) -> Callable[[Connection], bool]:
    """Whether an open connection would be let in. What is not known of it yet is checked later, by the same settings
    (`Connection.use_first_routes`)."""
    networks, ids = Networks(settings.addresses), _ClientIds(settings.client_ids or (".*",))

    def allowed(connection: Connection) -> bool:
        session = connection.session
        return (
            (not networks or connection.peer.host in networks)
            and (session is None or not settings.principals or session.principal in settings.principals)
            and (not connection.knows_client_id or ids.allows(connection.client_id))
        )

    return allowed


class _ClientIds:
    def __init__(self, expressions: Sequence[str]) -> None:
        self._allowed = re.compile("|".join(f"(?:{expression})" for expression in expressions), re.DOTALL)

    def allows(self, client_id: str | None) -> bool:
        return self._allowed.fullmatch(client_id or "") is not None

    def decide(self, connection: Connection, first: memoryview) -> Decision | Wait:
        if not has_client_id(first):
            return Decision.MORE
        client_id = connection.client_id = peek_client_id(first)
        if not self.allows(client_id):
            connection.note(CloseCause.CLIENT_ID_REFUSED, "none" if client_id is None else repr(client_id))
            raise RemoteProtocolError(f"client id {client_id!r}")
        if connection.pace is not None:
            connection.pace.belongs_to(client_id)
        connection.client_id_allowed()
        return Wait(_at_once)  # then the request is scanned again


async def _at_once() -> None:
    pass


class _FirstRoutes(dict[int, Route[Any]]):
    """The same route for every API."""

    def __init__(self, client_ids: _ClientIds) -> None:
        super().__init__()
        self._route: Route[Any] = Route(since=ANY_VERSION, decide=client_ids.decide)

    def get(self, key: int, default: object = None) -> Route[Any]:
        return self._route
