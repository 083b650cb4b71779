"""A path that holds the answers to requests of one API, as a feature that reads them does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from shoal.proxy.connection.pending import Hold
from shoal.proxy.connection.routes import Route, table
from shoal.proxy.listener.plain import PlainPath

if TYPE_CHECKING:
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.pending import PendingAnswer
    from shoal.proxy.listener.listener import Listener

__all__ = ["HeldAnswers"]


class HeldAnswers:
    """Until `go_on` is set; then they pass unchanged. What is behind a held answer is not read."""

    def __init__(self, key: int) -> None:
        self.go_on, self.is_held = trio.Event(), trio.Event()
        self._key = key

    def path(self, listener: Listener) -> PlainPath:
        made = PlainPath(listener)
        made.routes = table({self._key: Route(answer=Hold(self._wait))})
        return made

    async def _wait(self, connection: Connection, entry: PendingAnswer, frame: bytearray) -> list[bytearray]:
        self.is_held.set()
        await self.go_on.wait()
        return [frame]
