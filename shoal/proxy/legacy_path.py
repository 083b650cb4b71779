"""What a listener with `legacy = true` plugs in: clients of Kafka 0.8-0.10 on brokers that no longer know their requests (KIP-896).

    Fetch v0-v3              -> legacy_fetch.py: fetched as v11, converted piece by piece (KIP-283)
    Produce v0-v2            -> legacy_produce.py: converted to v2 batches, produced as v3
    ListOffsets v0, ...      -> legacy_translated.py: the same question in the oldest version that the broker takes
    everything else          -> the path below: plain, or coalescing

Newer versions of these APIs pass as they do on the listener below, so old and new clients may share one. Requests behind one
that is translated wait until it is answered: a broker works on the requests of a connection one after the other, too.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from shoal.protocol.api import ApiKey
from shoal.proxy import legacy_fetch, legacy_produce
from shoal.proxy.plain_path import PlainPath
from shoal.proxy.routes import Route, Verdict, table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shoal.protocol.headers import RequestHeader
    from shoal.proxy.connection import Connection
    from shoal.proxy.in_flight import Answer
    from shoal.proxy.listeners import Listener
    from shoal.proxy.plain_path import Path
    from shoal.proxy.routes import RouteTable

__all__ = ["LegacyPath"]

_VERSION = Struct(">h").unpack_from
_VERSION_AT = 6

FETCH_AS_IT_IS = 4  # the first version whose record sets are those of the log
PRODUCE_AS_IT_IS = 3


class LegacyPath:
    """`base` (by default the plain path) serves what needs no translation; `settings` are those of `[listener.legacy-options]`."""

    def __init__(self, listener: Listener, base: Path | None = None) -> None:
        self.listener = listener
        self.base: Path = base or PlainPath(listener)
        self.settings = listener.settings.legacy_options
        self.routes: RouteTable = table({**self.base.routes, **self._own_routes()})

    def _own_routes(self) -> dict[int, Route]:
        return {
            ApiKey.FETCH: self._older(ApiKey.FETCH, FETCH_AS_IT_IS, legacy_fetch.handle),
            ApiKey.PRODUCE: self._older(ApiKey.PRODUCE, PRODUCE_AS_IT_IS, legacy_produce.handle),
        }

    def _older(
        self, key: int, newer: int, handle: Callable[[Connection, bytearray, RequestHeader], Awaitable[None]]
    ) -> Route:
        """Versions below `newer` are held for `handle`; the others go the way of the base."""
        below = self.base.routes.get(key) or Route()

        def decide(connection: Connection, first: memoryview) -> Answer | Verdict | None:
            (version,) = _VERSION(first, _VERSION_AT)
            if version >= newer and version < below.since:
                return None
            decision = below.decide(connection, first) if below.decide is not None else below.answer
            if version >= newer:
                return decision
            return decision if decision is Verdict.WAIT or decision is Verdict.MORE else Verdict.HOLD

        return Route(decide=decide, handle=handle, takes=below.takes)

    def opened(self, connection: Connection) -> None:
        self.base.opened(connection)
        legacy_fetch.opened(connection)

    def closed(self, connection: Connection) -> None:
        legacy_fetch.closed(connection)
        self.base.closed(connection)

    def end(self) -> None:
        self.base.end()
