"""Tokens of OAUTHBEARER: JWTs (RFC 7519), checked as RFC 8725 advises: signature, issuer, audience, times.

The algorithm must be one that the key is for, and asymmetric: with `none` or a shared secret, anyone could make tokens.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from shoal.protocol.sasl.server import Verified
from shoal.protocol.sasl.signed_token import BadToken, read_signed_token
from shoal.protocol.sasl.users import check_name
from shoal.proxy.listener.login.key_set import ALGORITHMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.protocol.sasl.signed_token import SignedToken
    from shoal.proxy.config.reread import Outcome
    from shoal.proxy.config.security import ListenerSasl
    from shoal.proxy.listener.login.key_set import Key, KeySet

__all__ = ["SKEW_SECONDS", "BearerTokens"]

SKEW_SECONDS: Final = 60.0  # between the issuer's clock and ours
_LATEST: Final = 1e12


class BearerTokens:
    """`clock`: seconds since 1970."""

    def __init__(self, settings: ListenerSasl, keys: KeySet, *, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._keys = keys
        self._now = clock

    async def keep_fresh(self) -> None:
        await self._keys.keep_fresh()

    async def reread(self) -> Outcome:
        return await self._keys.reread()

    async def verify(self, token: str) -> Verified | str:
        """Whom the token is of, or why it is not valid (for the log: no part of the token)."""
        try:
            signed = read_signed_token(token)
        except BadToken as error:
            return str(error)
        if signed.algorithm not in ALGORITHMS:
            return "its algorithm is not an asymmetric one"
        key = await self._keys.find(signed.key_id, signed.algorithm)
        if key is None:
            return "the issuer has no key of this id and algorithm"
        if not _is_signed_by(key, signed):
            return "its signature is wrong"
        try:
            return self._content(signed.claims())
        except BadToken as error:
            return str(error)

    def _content(self, claims: dict[str, Any]) -> Verified | str:
        audience = claims.get("aud")
        if claims.get("iss") != self._settings.issuer:
            return "it is of another issuer (iss)"
        if self._settings.audience not in (audience if isinstance(audience, list) else [audience]):
            return "it is for another audience (aud)"
        try:
            now, expires, begins = self._now(), _time(claims.get("exp")), _time(claims.get("nbf", 0))
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


def _is_signed_by(key: Key, signed: SignedToken) -> bool:
    """PyJWT reads whole tokens, too, but in Python, character by character, before it looks at the signature."""
    import jwt  # loads slowly

    try:
        return jwt.get_algorithm_by_name(signed.algorithm).verify(signed.signed, key.key, signed.signature)
    except (jwt.PyJWTError, ValueError, TypeError):  # a signature that is none of this key
        return False


def _time(written: object) -> float:
    """Raises ValueError."""
    if isinstance(written, int | float) and not isinstance(written, bool) and abs(written) < _LATEST:
        return float(written)
    raise ValueError("not a time")
