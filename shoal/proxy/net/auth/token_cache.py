"""One token for all connections of an identity, renewed before it expires.

One renewal at a time. While it runs, others use the old token as long as that is valid. After a failure the old token
is used as long as it is valid, and the next renewal waits: 1 s, 2 s, 4 s, up to 30 s.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, NamedTuple

import trio

from shoal.proxy.events.logs import event
from shoal.proxy.net.auth.backoff import longer
from shoal.proxy.net.auth.identity import NoCredentials

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shoal.proxy.net.auth.identity import SaslTable

__all__ = ["FreshToken", "TokenCache"]

log = logging.getLogger("shoal.auth")

_RENEWED_AT = 0.8  # of its lifetime
_UNKNOWN_LIFETIME_S = 60.0


class FreshToken(NamedTuple):
    value: str
    lifetime: float | None  # seconds from now; None: unknown

    def __repr__(self) -> str:
        return f"FreshToken(..., lifetime={self.lifetime})"


class TokenCache:
    """`fetch` raises NoCredentials. `where`: the settings, for the log."""

    def __init__(
        self,
        fetch: Callable[[], Awaitable[FreshToken]],
        where: SaslTable,
        *,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self._fetch = fetch
        self._where = where
        self._now = clock
        self._value = ""
        self._renew_at = self._valid_until = self._retry_at = -math.inf
        self._failure = ""
        self._pause = 0.0
        self._lock = trio.Lock()

    async def get(self) -> str:
        """Raises NoCredentials."""
        if self._is_fresh or (self._is_valid and self._lock.locked()):
            return self._value
        async with self._lock:
            if not self._is_fresh:  # else another task has renewed it meanwhile
                await self._renew()
            return self._value

    def discard(self) -> None:
        """A broker refused the token."""
        self._renew_at = self._valid_until = -math.inf

    @property
    def _is_fresh(self) -> bool:
        return self._now() < self._renew_at

    @property
    def _is_valid(self) -> bool:
        return self._now() < self._valid_until

    async def _renew(self) -> None:
        began = self._now()
        if began < self._retry_at:
            if self._is_valid:
                return
            raise NoCredentials(self._failure)
        try:
            fresh = await self._fetch()
        except NoCredentials as error:
            self._failed(str(error))
            if not self._is_valid:
                raise
            text = f"{self._where}: the token is not renewed, the old one is used while it is valid: {error}"
            log.warning("token-not-renewed", extra=event(text, setting=str(self._where), error=str(error)))
            return
        self._value, self._pause, self._retry_at = fresh.value, 0.0, -math.inf
        lifetime = _UNKNOWN_LIFETIME_S if fresh.lifetime is None else fresh.lifetime
        self._renew_at, self._valid_until = began + lifetime * _RENEWED_AT, began + lifetime

    def _failed(self, why: str) -> None:
        self._failure = why
        self._pause = longer(self._pause)
        self._retry_at = self._now() + self._pause
