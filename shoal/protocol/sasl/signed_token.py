"""Signed tokens (JWT, RFC 7519) in their compact form, as a server reads them before it knows who made them.

    header "." claims "." signature      each as base64url without padding (RFC 7515, 7.1)

Any stranger may send one, so that reading is cheap: the header is small, and the claims are not read before the
signature is checked. What a header says of keys (`jku`, `jwk`, `x5u`, `x5c`) has no effect: keys come from the issuer.
"""

import json
import re
from base64 import urlsafe_b64decode
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["BadToken", "SignedToken", "read_signed_token"]

_MOST_HEADER: Final = 16 * 1024  # characters; one with a chain of certificates has some 6 KiB
_SEGMENT: Final = re.compile(r"[-_A-Za-z0-9]*", re.ASCII)


class BadToken(ValueError):
    """The message has no part of the token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedToken:
    """Nothing of it is proven until `signature` is checked over `signed`."""

    algorithm: str
    key_id: str | None
    signed: bytes = field(repr=False)
    signature: bytes = field(repr=False)
    _claims: str = field(repr=False)

    def claims(self) -> dict[str, Any]:
        """Raises BadToken."""
        return _json_object(self._claims, "claims")


def read_signed_token(text: str) -> SignedToken:
    """Raises BadToken."""
    parts = text.split(".", 3)
    if len(parts) != 3:
        raise BadToken(f"it is not a signed JWT: {len(parts) - 1} dots, not 2")
    head, claims, signature = parts
    if len(head) > _MOST_HEADER:
        raise BadToken(f"its header has {len(head)} characters: at most {_MOST_HEADER} are allowed")
    header = _json_object(head, "header")
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or not isinstance(key_id, str | None):
        raise BadToken("its header names no algorithm, or its key by something else than a text")
    if "crit" in header or "b64" in header:
        raise BadToken("its header has extensions that change its meaning (crit, b64)")  # RFC 7515, 4.1.11; RFC 7797
    return SignedToken(
        algorithm=algorithm,
        key_id=key_id,
        signed=f"{head}.{claims}".encode(),
        signature=_decoded(signature, "signature"),
        _claims=claims,
    )


def _json_object(segment: str, what: str) -> dict[str, Any]:
    content = _decoded(segment, what)
    try:
        found = json.loads(content.decode())
    except (ValueError, RecursionError):
        raise BadToken(f"its {what} cannot be read") from None
    if not isinstance(found, dict):
        raise BadToken(f"its {what} is not a JSON object")
    return found


def _decoded(segment: str, what: str) -> bytes:
    """`urlsafe_b64decode` ignores characters that are not base64: two texts would be the same token."""
    if len(segment) % 4 == 1 or not _SEGMENT.fullmatch(segment):
        raise BadToken(f"its {what} is not base64url")
    return urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
