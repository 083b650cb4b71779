"""A broker closes a connection that is idle for connections.max.idle.ms (10 minutes). A slow client may take longer to
read an answer that Shoal holds. So Shoal sends a small request from time to time, and does not wait for its answer.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import write_request_header
from shoal.protocol.wire.types import write_int32
from shoal.proxy.errors import UpstreamLost

if TYPE_CHECKING:
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.pending import OwnRequest

__all__ = ["KeepAlive"]

_QUIET_SECONDS = 60.0  # load balancers may close idle connections earlier than brokers
_VERSION: Final = 0  # of ApiVersions, which every broker accepts, without authentication


class KeepAlive:
    """Keep-alive of one connection to a broker."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._asked_at = trio.current_time()
        self._asked: OwnRequest | None = None

    async def stay(self) -> None:
        """From a handler: send a request if the connection is idle. The next real request notices a lost broker."""
        now = trio.current_time()
        if now - self._asked_at < _QUIET_SECONDS or (self._asked is not None and not self._asked.is_answered):
            return
        self._asked_at = now
        header = write_request_header(ApiKey.API_VERSIONS, _VERSION, 0, self._connection.client_id)
        with suppress(UpstreamLost):
            self._asked = await self._connection.post([write_int32(len(header)) + header])

    async def asking(self) -> None:
        """Before another request: wait until no keep-alive is in flight. Raises UpstreamLost."""
        asked, self._asked = self._asked, None
        if asked is not None:
            await asked.frame()
        self._asked_at = trio.current_time()
