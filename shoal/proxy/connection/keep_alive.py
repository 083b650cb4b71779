"""A broker closes a connection that is idle for connections.max.idle.ms (10 minutes). So a feature that leaves a
client's own connection without requests sends a small one from time to time, and does not wait for its answer:

    `stay`   from a route's handler, which may hold an answer for minutes
    `tick`   every second, between two requests of a client whose requests take another connection
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.frames import request_frame
from shoal.proxy.net.upstream import UpstreamLost

if TYPE_CHECKING:
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.pending import OwnRequest

__all__ = ["KeepAlive"]

_VERSION: Final = 0  # of ApiVersions, which every broker accepts, without authentication


class KeepAlive:
    """Keep-alive of one connection to a broker: a request after every `quiet` seconds without use."""

    def __init__(self, connection: Connection, *, quiet: float) -> None:
        self._connection = connection
        self._quiet = quiet
        self._used_at = trio.current_time()
        self._received = -1  # bytes; `tick` has not seen the connection yet
        self._asked: OwnRequest | None = None

    async def stay(self) -> None:
        """Used: when the handler last sent a request. The next real request notices a lost broker."""
        now = trio.current_time()
        if self._is_due(now) and (self._asked is None or self._asked.is_answered):
            self._used_at = now
            with suppress(UpstreamLost):
                self._asked = await self._connection.broker.post([self._request()])

    async def until_answered(self) -> None:
        """Before another request of the handler: wait until no keep-alive is in flight. Raises UpstreamLost."""
        asked, self._asked = self._asked, None
        if asked is not None:
            await asked.frame()
        self._used_at = trio.current_time()

    def tick(self, now: float) -> None:
        """Used: when the broker last sent something."""
        connection = self._connection
        received = connection.responses.received
        if received != self._received:
            self._received, self._used_at = received, now
        elif self._is_due(now) and connection.is_between_requests:
            self._used_at = now
            connection.keep_alive(self._request())

    def _is_due(self, now: float) -> bool:
        return now - self._used_at >= self._quiet

    def _request(self) -> bytes:
        return request_frame(ApiKey.API_VERSIONS, _VERSION, 0, self._connection.client_id, {})
