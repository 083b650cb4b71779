"""OAUTHBEARER: a token from a file or the environment for each login, or one that is kept and renewed."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from shoal.protocol.sasl.oauth import claims, oauth_tokens, token_faults
from shoal.proxy.config.secret import read_secret
from shoal.proxy.config.security import Mechanism
from shoal.proxy.net.auth.identity import NoCredentials, digest
from shoal.proxy.net.auth.msk import token_of_msk
from shoal.proxy.net.auth.token_cache import TokenCache
from shoal.proxy.net.auth.token_command import fresh_token, token_from_command
from shoal.proxy.net.auth.token_endpoint import TokenEndpoint, token_from_endpoint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shoal.protocol.sasl.login import LoginRefused
    from shoal.protocol.sasl.scram import Exchange
    from shoal.protocol.wire.types import Buffer
    from shoal.proxy.config.security import SaslSettings
    from shoal.proxy.config.settings import Address
    from shoal.proxy.net.auth.identity import SaslTable
    from shoal.proxy.net.auth.token_cache import FreshToken

__all__ = ["BearerIdentity"]

_EXPLAINING = ("iss", "aud", "sub", "scope")  # claims that explain a refusal


class BearerIdentity:
    """`seconds`: for a command or an issuer."""

    mechanism = "OAUTHBEARER"

    def __init__(self, settings: SaslSettings, where: SaslTable, seconds: float) -> None:
        self._settings = settings
        self._where = where
        fetch = _fetcher(settings, where, seconds)
        self._cache = None if fetch is None else TokenCache(fetch, where)
        self._token = ""  # the last one, to explain its refusal

    def blocks(self, answer: Buffer | None) -> bool:
        return False

    def material(self) -> bytes:
        return b"" if self._cache is not None else digest(self._read())

    async def exchange(self, address: Address) -> Exchange:
        if self._cache is not None:
            token = await self._cache.get()
        else:
            token = fresh_token(self._read(), self._where.key("token"), time.time()).value
        if faults := list(token_faults(token, time.time())):
            self._discard()
            raise NoCredentials(f"{self._where}: {'; '.join(faults)}")
        self._token = token
        return oauth_tokens(token, self._settings.extensions)

    def advice(self, error: LoginRefused) -> str:
        self._discard()
        said = claims(self._token)
        found = ", ".join(f"{name} {said[name]}" for name in _EXPLAINING if name in said)
        about = f" (its claims: {found})" if found else ""
        return f"check that the broker trusts the issuer of the token{about}, and check {self._where.named()}"

    def _discard(self) -> None:
        if self._cache is not None:
            self._cache.discard()

    def _read(self) -> str:
        """Raises OperatorError."""
        assert self._settings.token is not None
        return read_secret(self._settings.token, self._where.key("token")).strip()


def _fetcher(settings: SaslSettings, where: SaslTable, seconds: float) -> Callable[[], Awaitable[FreshToken]] | None:
    if settings.mechanism is Mechanism.AWS_MSK_IAM:
        return partial(token_of_msk, settings, where, seconds)
    if settings.token_command:
        return partial(token_from_command, settings.token_command, where, seconds)
    if settings.token_endpoint is not None:
        return partial(_from_endpoint, settings, where, seconds)
    return None


async def _from_endpoint(settings: SaslSettings, where: SaslTable, seconds: float) -> FreshToken:
    """Raises NoCredentials and OperatorError."""
    assert settings.token_endpoint is not None
    assert settings.client_id is not None
    assert settings.client_secret is not None
    endpoint = TokenEndpoint(
        settings.token_endpoint, settings.client_id, settings.scope, settings.token_endpoint_ca, where
    )
    return await token_from_endpoint(endpoint, read_secret(settings.client_secret, where.key("client-secret")), seconds)
