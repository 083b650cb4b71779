"""Client tokens of OAUTHBEARER (RFC 7628; KIP-255, extensions of KIP-342), and what a signed token says of itself.

Nothing here checks a signature: the claims only explain to the operator why a broker refused a token.
"""

import json
import math
import re
from base64 import urlsafe_b64decode
from binascii import Error as BadBase64
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from shoal.protocol.sasl.scram import Exchange

__all__ = ["TokenRefused", "bad_extension", "claims", "expiry", "is_token", "oauth_tokens", "token_faults"]

_SEPARATOR: Final = "\x01"
_DUMMY: Final = b"\x01"  # answers the server's error, which then ends the exchange (RFC 7628, 3.2.3)
_TOKEN: Final = re.compile(r"[-_.~+/A-Za-z0-9]+=*")  # RFC 6750, 2.1
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_SKEW_S: Final = 5.0  # clocks differ that much, and no harm is done


class TokenRefused(Exception):
    """The server's error: usually a JSON text with a status."""


def oauth_tokens(token: str, extensions: Mapping[str, str] | None = None) -> Exchange:
    """The exchange raises TokenRefused."""
    further = "".join(f"{name}={value}{_SEPARATOR}" for name, value in (extensions or {}).items())
    challenge = yield f"n,,{_SEPARATOR}auth=Bearer {token}{_SEPARATOR}{further}{_SEPARATOR}".encode()
    if challenge:
        yield _DUMMY
        raise TokenRefused(challenge.decode(errors="replace"))


def is_token(text: str) -> bool:
    return _TOKEN.fullmatch(text) is not None


def bad_extension(name: str, value: str) -> str | None:
    """What is wrong with an extension; None if nothing is."""
    if name == "auth" or not _EXTENSION_NAME.fullmatch(name):
        return f"{name!r} is no name of an extension: letters only, and not auth"
    return None if _EXTENSION_VALUE.fullmatch(value) else f"the value of {name!r} is empty or not printable"


def claims(token: str) -> dict[str, Any]:
    """The claims of a signed token (a JWT); {} for any other token."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        found = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, BadBase64, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def expiry(token: str) -> float | None:
    """When a signed token expires, in seconds since 1970; None if it does not say."""
    return _number(claims(token), "exp")


def token_faults(token: str, now: float) -> Iterator[str]:
    """Why a broker may refuse this token. `now`: seconds since 1970."""
    said = claims(token)
    expires, begins, issued = (_number(said, name) for name in ("exp", "nbf", "iat"))
    if expires is not None and expires <= now:
        yield f"the token expired at {_utc(expires)} by this machine's clock"
    begin = max((at for at in (begins, issued) if at is not None), default=now)
    if begin > now + _SKEW_S:
        yield f"the token is valid only from {_utc(begin)} on: the clocks of its issuer and of this machine differ"


def _utc(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{at:.0f}"


def _number(said: Mapping[str, Any], name: str) -> float | None:
    value = said.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
