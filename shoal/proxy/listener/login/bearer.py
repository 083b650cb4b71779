"""Tokens of OAUTHBEARER: JWTs (RFC 7519), checked as RFC 8725 advises: signature, issuer, audience, times.

The algorithm must be one that the key is for, and asymmetric: with `none` or a shared secret, anyone could make tokens.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from shoal.protocol.sasl.server import Verified
from shoal.protocol.sasl.users import check_name
from shoal.proxy.listener.login.key_set import ALGORITHMS, KeySet

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.proxy.config.reread import Outcome
    from shoal.proxy.config.security import ListenerSasl

__all__ = ["SKEW_SECONDS", "BearerTokens"]

SKEW_SECONDS: Final = 60.0  # between the issuer's clock and ours
_LATEST: Final = 1e12
_ODD: Final = (ValueError, TypeError, LookupError, AttributeError, RecursionError)  # of strange JSON, out of PyJWT


class BearerTokens:
    """`clock`: seconds since 1970."""

    def __init__(self, settings: ListenerSasl, keys: KeySet, *, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._keys = keys
        self._now = clock

    async def prepare(self) -> None:
        await self._keys.prepare()

    async def reread(self) -> Outcome:
        return await self._keys.reread()

    async def verify(self, token: str) -> Verified | str:
        """What is in the token, or why it is not valid (for the log: no part of the token)."""
        import jwt  # loads slowly

        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, *_ODD):
            return "it is not a signed JWT"
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            return "its algorithm is not an asymmetric one"
        key = await self._keys.find(kid if isinstance(kid, str) else None, algorithm)
        if key is None:
            return "the issuer has no key of this id and algorithm"
        try:
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                options={"require": ["exp"], "verify_exp": False, "verify_nbf": False, "verify_iat": False},
            )
        except jwt.PyJWTError as error:
            return f"{type(error).__name__}"
        except _ODD:
            return "its signature cannot be checked"
        return self._content(claims)

    def _content(self, claims: dict[str, Any]) -> Verified | str:
        try:
            now, expires, begins = self._now(), _time(claims["exp"]), _time(claims.get("nbf", 0))
        except ValueError:
            return "exp or nbf is not a number"
        if now >= expires + SKEW_SECONDS:
            return f"it expired {now - expires:.0f} s ago"
        if now < begins - SKEW_SECONDS:
            return f"it is not valid for another {begins - now:.0f} s"
        principal = claims.get(self._settings.principal_claim)
        try:
            if isinstance(principal, str):
                return Verified(principal=check_name(principal), expires_at=expires)
        except ValueError:
            pass
        return f"its claim {self._settings.principal_claim!r} is not a name"


def _time(written: object) -> float:
    """Raises ValueError."""
    if isinstance(written, int | float) and not isinstance(written, bool) and abs(written) < _LATEST:
        return float(written)
    raise ValueError("not a time")
