"""The server's part of SASL: one state machine for each login, tokens in, results out.

    PLAIN         RFC 4616        token ──> PasswordCheck ── checked ──> Accepted | Refused
    SCRAM         RFC 5802, 7677  first ──> Challenge; last ──> Accepted | Refused
    OAUTHBEARER   RFC 7628        token ──> TokenCheck ── checked ──> Accepted, or Challenge; then 0x01 ──> Refused

`step` takes a token of the client. A `PasswordCheck` and a `TokenCheck` take the caller's time (a slow hash, the keys
of an issuer): the caller gives their result to `checked`. A wrong token is `Refused`, and nothing raises. `why` is for
the log; the client gets the same words for every reason (`REFUSAL`), and an unknown user the same tokens as a known one
with a wrong password. An authorization id must be empty or the name itself, as at a broker.
"""

import hashlib
import hmac
import json
import re
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from shoal.protocol.sasl.scram import DIGESTS
from shoal.protocol.sasl.users import ScramHash, Users

__all__ = [
    "MOST_TOKEN_BYTES",
    "REFUSAL",
    "Accepted",
    "Challenge",
    "OAuthBearerServer",
    "PasswordCheck",
    "PlainServer",
    "Refused",
    "Result",
    "ScramServer",
    "ServerExchange",
    "TokenCheck",
    "Verified",
]

MOST_TOKEN_BYTES: Final = 128 * 1024  # a JWT with many groups has some 20 KiB
REFUSAL: Final = "Authentication failed: the credentials are invalid"
_MOST_SCRAM_BYTES: Final = 4096  # two nonces, a name, a proof


@dataclass(frozen=True, slots=True)
class Challenge:
    token: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    principal: str
    token: bytes = field(default=b"", repr=False)
    expires_at: float | None = None  # seconds since 1970
    hashes: Mapping[str, ScramHash] | None = field(default=None, repr=False)  # the user's; None: a token's principal


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    why: str
    name: str | None = None  # as the client claims


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordCheck:
    """`Users.accepts` says whether it is right."""

    name: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCheck:
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Whom a valid token or password belongs to; the fields as in `Accepted`."""

    principal: str
    expires_at: float | None = None
    hashes: Mapping[str, ScramHash] | None = field(default=None, repr=False)


Result: TypeAlias = Challenge | Accepted | Refused | PasswordCheck | TokenCheck


class _Malformed(Exception):
    """The token is not what is due here."""


class ServerExchange(ABC):
    """`most`: bytes of one token."""

    most: int = MOST_TOKEN_BYTES

    def __init__(self, first: Callable[[bytes], Result]) -> None:
        self._next: Callable[[bytes], Result] | None = first
        self.name: str | None = None  # as the client claims

    def step(self, token: bytes) -> Result:
        turn, self._next = self._next, None
        if turn is None:
            return self.refused("a token after the last one")
        if len(token) > self.most:
            return self.refused(f"a token of {len(token)} bytes")
        try:
            return turn(token)
        except _Malformed as error:
            return self.refused(f"malformed token: {error}")

    def refused(self, why: str) -> Refused:
        return Refused(why=why, name=self.name)

    @abstractmethod
    def checked(self, result: Verified | str) -> Result:
        """The result of a check: what is valid, or why it is not."""


def _text(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise _Malformed("it is not UTF-8") from None


class PlainServer(ServerExchange):
    most = _MOST_SCRAM_BYTES

    def __init__(self) -> None:
        super().__init__(self._first)

    def _first(self, token: bytes) -> Result:
        parts = _text(token).split("\0")
        if len(parts) != 3:
            raise _Malformed(f"{len(parts)} parts, not 3")
        authorization, self.name, password = parts
        if not self.name or not password:
            raise _Malformed("an empty name or password")
        if authorization not in ("", self.name):
            return self.refused("an authorization id that is not the name")
        return PasswordCheck(name=self.name, password=password)

    def checked(self, result: Verified | str) -> Result:
        if isinstance(result, Verified):
            return Accepted(principal=result.principal, hashes=result.hashes)
        return self.refused(result)


_FIRST = re.compile(r"([ny]|p=[^,]*),(?:a=([^,]*))?,(n=([^,]*),r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?)", re.DOTALL)
_LAST = re.compile(r"(c=([^,]*),r=([\x21-\x2b\x2d-\x7e]+)(?:,[a-zA-Z]=[^,]*)*),p=([^,]+)")


class ScramServer(ServerExchange):
    """`nonce`: printable ASCII without a comma, random, new for each login."""

    most = _MOST_SCRAM_BYTES

    def __init__(self, mechanism: str, users: Users, nonce: str) -> None:
        super().__init__(self._first)
        self._mechanism = mechanism
        self._digest = DIGESTS[mechanism]
        self._users = users
        self._nonce = nonce
        self._gs2 = self._bare = self._sent = ""
        self._found: tuple[ScramHash, bool] | None = None

    def _first(self, token: bytes) -> Result:
        match = _FIRST.fullmatch(_text(token))
        if match is None:
            raise _Malformed("it is not the first of SCRAM")
        binding, authorization, self._bare, name, nonce = match.groups()
        self.name = _unescaped(name)
        if binding.startswith("p"):
            return self.refused("channel binding is not offered")
        if authorization and _unescaped(authorization) != self.name:
            return self.refused("an authorization id that is not the name")
        self._gs2 = match[0][: match.start(3)]
        self._nonce = nonce + self._nonce
        self._found = self._users.find(self.name, self._mechanism)
        salt = b64encode(self._found[0].salt).decode()
        self._sent = f"r={self._nonce},s={salt},i={self._found[0].iterations}"
        self._next = self._last
        return Challenge(self._sent.encode())

    def _last(self, token: bytes) -> Result:
        match = _LAST.fullmatch(_text(token))
        if match is None:
            raise _Malformed("it is not the last of SCRAM")
        without_proof, binding, nonce, written = match.groups()
        if _decoded(binding) != self._gs2.encode() or nonce != self._nonce:
            return self.refused("another channel binding or nonce than before")
        assert self._found is not None
        known, is_user = self._found
        signed = ",".join((self._bare, self._sent, without_proof)).encode()
        signature = hmac.digest(known.stored_key, signed, self._digest)
        proof = _decoded(written)
        if len(proof) != len(signature):
            raise _Malformed("a proof of another size")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        fits = hmac.compare_digest(hashlib.new(self._digest, client_key).digest(), known.stored_key)
        answer = b"v=" + b64encode(hmac.digest(known.server_key, signed, self._digest))
        if not (fits and is_user):
            return self.refused("wrong password" if is_user else "no such user")
        name = self.name or ""
        return Accepted(principal=name, token=answer, hashes=self._users.hashes[name])

    def checked(self, result: Verified | str) -> Result:
        return self.refused("nothing was to be checked")


def _unescaped(name: str) -> str:
    if not name or re.search(r"=(?!2C|3D)", name):
        raise _Malformed("the name is empty, or not escaped")
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(written: str) -> bytes:
    try:
        return b64decode(written, validate=True)
    except ValueError:
        raise _Malformed("invalid base64") from None


_BEARER = re.compile(r"[ny],(?:a=([^,]*))?,\x01((?:[A-Za-z]+=[^\x01]*\x01)+)\x01", re.DOTALL)
_MOST_PAIRS: Final = 100  # auth, and some extensions: any stranger may send them
_CREDENTIALS = re.compile(r"(?i:bearer) +([A-Za-z0-9._~+/=-]+)")


class OAuthBearerServer(ServerExchange):
    """Extensions (KIP-342) other than `auth` are ignored, as a broker does by default."""

    def __init__(self) -> None:
        super().__init__(self._first)
        self._authorization = ""
        self._why = ""

    def _first(self, token: bytes) -> Result:
        text = _text(token)
        match = _BEARER.fullmatch(text) if text.count("\x01") <= _MOST_PAIRS else None
        if match is None:
            raise _Malformed("it is not one of OAUTHBEARER")
        self._authorization = _unescaped(match[1]) if match[1] else ""
        self.name = self._authorization or None
        pairs = dict(pair.split("=", 1) for pair in match[2].split("\x01") if pair)
        credentials = _CREDENTIALS.fullmatch(pairs.get("auth", "").strip())
        if credentials is None:
            raise _Malformed("no bearer token in it")
        return TokenCheck(token=credentials[1])

    def checked(self, result: Verified | str) -> Result:
        if isinstance(result, Verified):
            self.name = self.name or result.principal
            if self._authorization in ("", result.principal):
                return Accepted(principal=result.principal, expires_at=result.expires_at)
            result = "an authorization id that is not the principal"
        self._why = result
        self._next = self._after_error
        return Challenge(json.dumps({"status": "invalid_token"}).encode())

    def _after_error(self, token: bytes) -> Result:
        """RFC 7628, 3.2.3: the client answers an error with 0x01; then the server fails the login."""
        return self.refused(self._why)
