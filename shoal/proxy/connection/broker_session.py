"""Shoal's session at the broker ends after some time, and Shoal logs in again before that (KIP-368).

It does so over the same connection. A broker closes a connection that sends an ordinary request after the end of its
session or in the middle of a login. So a login has the connection for itself, and what wants to send waits for it:

    the client's next request    is not read before the login, which waits until all answers have passed
    a handler's own request      logs in before it, unless answers are due: then it is one more of the same burst
    a keep-alive                 is not needed: the login is sent instead

The session has a reserve for that burst (`net/auth` sets `due_at` well before its end). If a login fails, the
connection ends as it does when the broker closes it.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import trio

from shoal.proxy.net.upstream import LoginFailed, UpstreamLost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shoal.proxy.net.upstream import Session

__all__ = ["SessionRenewal"]


class Requests(Protocol):
    """The request pump, for a session."""

    def log_in_at(self, due: float | None) -> None:
        """None: never."""


class SessionRenewal:
    """The session of one connection at its broker, where Shoal has logged in.

    `ask` sends a request and waits for its answer. `fail` is called if a login fails.
    """

    def __init__(
        self,
        session: Session,
        requests: Requests,
        ask: Callable[[bytes], Awaitable[bytearray]],
        fail: Callable[[str], None],
    ) -> None:
        self._session = session
        self._requests = requests
        self._ask = ask
        self._fail = fail
        self._turn = trio.Lock()
        self._due_at: float | None = None
        self._schedule()

    def _schedule(self) -> None:
        due_at = self._session.due_at
        self._due_at = due_at if due_at < math.inf else None
        self._requests.log_in_at(self._due_at)

    @property
    def is_due(self) -> bool:
        return self._due_at is not None and trio.current_time() >= self._due_at

    async def before_request(self, *, answers_are_due: bool) -> None:
        """Where answers are due, the request belongs to those before it, and goes at once. Raises UpstreamLost."""
        if self._turn.locked() or not answers_are_due:
            await self.renew()

    async def while_idle(self) -> None:
        with suppress(UpstreamLost):  # the response pump ends the connection
            await self.renew()

    async def renew(self) -> None:
        """Raises UpstreamLost."""
        async with self._turn:
            if not self.is_due:
                return  # another task has done it meanwhile
            try:
                await self._session.renew(self._ask)
            except LoginFailed as error:
                self._fail(str(error))
                raise UpstreamLost(str(error)) from error
            self._schedule()
