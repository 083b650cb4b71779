"""A broker closes a connection on which it hears nothing for connections.max.idle.ms (10 minutes). A slow client's answer may take longer, and
so may what is left over for its next questions: all of it lies here, the client reads all the time, and the broker knows nothing of
that. So it is asked something small now and then, for whose answer nobody waits.
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
    from shoal.proxy.connection.in_flight import OwnRequest

__all__ = ["KeepAlive"]

_QUIET_SECONDS = 60.0  # load balancers may have less patience than brokers
_VERSION: Final = 0  # of ApiVersions, which every broker takes from everybody


class KeepAlive:
    """Of one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._asked_at = trio.current_time()
        self._asked: OwnRequest | None = None

    async def stay(self) -> None:
        """From a handler: ask, if nothing was asked for long. That the broker has gone is told to who asks for something."""
        now = trio.current_time()
        if now - self._asked_at < _QUIET_SECONDS or (self._asked is not None and not self._asked.is_answered):
            return
        self._asked_at = now
        header = write_request_header(ApiKey.API_VERSIONS, _VERSION, 0, self._connection.client_id)
        with suppress(UpstreamLost):
            self._asked = await self._connection.post([write_int32(len(header)) + header])

    async def asking(self) -> None:
        """Something else is about to be asked: wait until nothing of this is under way. Raises UpstreamLost."""
        asked, self._asked = self._asked, None
        if asked is not None:
            await asked.frame()
        self._asked_at = trio.current_time()
