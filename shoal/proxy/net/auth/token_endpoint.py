"""A token of an issuer, for client credentials (RFC 6749, 4.4): one POST, in a thread."""

from __future__ import annotations

import json
import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from shoal.protocol.sasl.oauth import expiry, is_token
from shoal.proxy.config.secret import shown_url
from shoal.proxy.net.auth.identity import NoCredentials, in_thread
from shoal.proxy.net.auth.token_cache import FreshToken

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from shoal.proxy.net.auth.identity import SaslTable

__all__ = ["TokenEndpoint", "token_from_endpoint"]

_LARGEST = 64 * 1024
_REDIRECT, _ERROR = 300, 400  # the first HTTP status of each
_WORDS = 200  # characters of the issuer's message in an error


class TokenEndpoint(NamedTuple):
    url: str
    client_id: str
    scope: str | None
    ca: Path | None
    where: SaslTable  # the settings, for errors

    @property
    def setting(self) -> str:
        return f"{self.where.key('token-endpoint')} ({shown_url(self.url)})"


async def token_from_endpoint(endpoint: TokenEndpoint, secret: str, seconds: float) -> FreshToken:
    """Raises NoCredentials; its message has no secret and no token."""
    try:
        with trio.fail_after(seconds):  # the timeout of a socket is for each read only
            return await in_thread(partial(_fetch, endpoint, secret, seconds))
    except trio.TooSlowError:
        raise NoCredentials(f"{endpoint.setting} did not answer within {seconds:g} s") from None


def _fetch(endpoint: TokenEndpoint, secret: str, seconds: float) -> FreshToken:
    from http.client import HTTPException
    from urllib.error import URLError
    from urllib.parse import urlencode
    from urllib.request import Request

    from shoal.proxy.net.web import exchange

    form = {"grant_type": "client_credentials"} | ({"scope": endpoint.scope} if endpoint.scope else {})
    headers = {
        "Authorization": f"Basic {_basic(endpoint, secret)}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    request = Request(endpoint.url, urlencode(form).encode(), headers)
    try:
        status, body = exchange(request, _context(endpoint), seconds=seconds, most=_LARGEST)
    except URLError as error:
        raise NoCredentials(f"{endpoint.setting} cannot be reached: {_reason(error.reason)}") from None
    except (OSError, HTTPException) as error:
        raise NoCredentials(f"{endpoint.setting} cannot be reached: {_reason(error)}") from None
    if status >= _REDIRECT:
        raise NoCredentials(_refusal(endpoint, status, body, secret))
    return _token(endpoint, body)


def _context(endpoint: TokenEndpoint) -> ssl.SSLContext:
    import ssl

    try:
        return ssl.create_default_context(cafile=endpoint.ca)
    except OSError as error:  # an SSLError, too
        what = f"{endpoint.where.key('token-endpoint-ca')}: {endpoint.ca} cannot be used: {error.strerror or error}"
        raise NoCredentials(what) from None


def _reason(error: object) -> str:
    verify = getattr(error, "verify_message", None)
    if verify:
        return f"its certificate is refused: {verify}: set token-endpoint-ca"
    return str(getattr(error, "strerror", None) or error) or type(error).__name__


def _refusal(endpoint: TokenEndpoint, status: int, body: bytes, secret: str) -> str:
    """RFC 6749, 5.2: the error is a word, and a text for people."""
    if status < _ERROR:
        return f"{endpoint.setting} answers with a redirect ({status}), which is not followed: set the final URL"
    said = _json(body)
    words = ": ".join(str(said[key]) for key in ("error", "error_description") if said.get(key))
    words = "".join(c for c in words if c.isprintable())
    for hidden in _forms(endpoint, secret):  # some issuers repeat the request
        words = words.replace(hidden, "(...)")
    words = words[:_WORDS]
    way_out = "check client-id and client-secret" if status in (400, 401, 403) else "check the URL"
    return f"{endpoint.setting} answers HTTP {status}{': ' if words else ''}{words}: {way_out}"


def _forms(endpoint: TokenEndpoint, secret: str) -> tuple[str, ...]:
    """How the secret is written in a request."""
    from urllib.parse import quote_plus

    return _basic(endpoint, secret), secret, quote_plus(secret)


def _basic(endpoint: TokenEndpoint, secret: str) -> str:
    from base64 import b64encode
    from urllib.parse import quote_plus

    return b64encode(f"{quote_plus(endpoint.client_id)}:{quote_plus(secret)}".encode()).decode()


def _token(endpoint: TokenEndpoint, body: bytes) -> FreshToken:
    said = _json(body)
    token, lifetime = said.get("access_token"), said.get("expires_in")
    if len(body) > _LARGEST or not isinstance(token, str) or not is_token(token):
        raise NoCredentials(f"{endpoint.setting} answers without an access_token: is it the URL of the token endpoint?")
    lifetimes = [seconds] if (seconds := _seconds(lifetime)) is not None else []
    expires = expiry(token)
    lifetimes += [] if expires is None else [expires - time.time()]
    return FreshToken(token, min(lifetimes, default=None))


def _seconds(written: object) -> float | None:
    """Some issuers write a number as a text."""
    if not isinstance(written, int | float | str) or isinstance(written, bool):
        return None
    try:
        number = float(written)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _json(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
