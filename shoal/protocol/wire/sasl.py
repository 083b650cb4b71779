"""Client tokens of SASL PLAIN (RFC 4616) and SCRAM (RFC 5802, 7677), for Shoal's own log-in.

Names and passwords are used unchanged: Kafka does not prepare them either (`ScramFormatter.normalize`).
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final

from shoal.protocol.wire.errors import RemoteProtocolError

__all__ = ["MECHANISMS", "TOKEN_ROUNDS", "Credentials", "tokens"]

_DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS: Final = ("PLAIN", *_DIGESTS)
TOKEN_ROUNDS: Final = {"PLAIN": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2, "OAUTHBEARER": 1}
"""Frames without a Kafka header that each side sends after SaslHandshake v0 (RFC 4616, 5802, 7628). GSSAPI has no fixed
number."""
_MOST_ITERATIONS: Final = 100_000  # bounds the time that a server can cost us; Kafka allows 16384 at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    mechanism: str
    username: str
    password: str = field(repr=False)


def tokens(credentials: Credentials, nonce: str) -> Generator[bytes, bytes, None]:
    """Yields the client's tokens; send it the server's. `nonce`: printable, without a comma, random.

    Raises RemoteProtocolError if the server does not prove that it knows the password, or its tokens cannot be read.
    """
    if credentials.mechanism == "PLAIN":
        yield f"\0{credentials.username}\0{credentials.password}".encode()
        return
    yield from _scram(credentials, nonce, _DIGESTS[credentials.mechanism])


def _scram(credentials: Credentials, nonce: str, digest: str) -> Generator[bytes, bytes, None]:
    name = credentials.username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}".encode()
    challenge = yield b"n,," + first
    server_nonce, salt, iterations = _challenge(challenge, nonce.encode())
    salted = hashlib.pbkdf2_hmac(digest, credentials.password.encode(), salt, iterations)
    last = b"c=biws,r=" + server_nonce
    signed = b",".join((first, challenge, last))
    client_key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    final = yield last + b",p=" + b64encode(proof)
    expected = b"v=" + b64encode(hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest))
    if not hmac.compare_digest(final.split(b",")[0], expected):
        raise RemoteProtocolError("the server's SCRAM signature is wrong: it does not know the password")


def _challenge(challenge: bytes, nonce: bytes) -> tuple[bytes, bytes, int]:
    """The whole nonce, the salt and the number of iterations; RemoteProtocolError unless they continue our `nonce`."""
    fields = dict(part.split(b"=", 1) for part in challenge.split(b",") if b"=" in part)
    try:
        server_nonce, salt, iterations = fields[b"r"], b64decode(fields[b"s"], validate=True), int(fields[b"i"])
    except (KeyError, ValueError, BadBase64):
        raise RemoteProtocolError("the server's SCRAM challenge cannot be read") from None
    if not server_nonce.startswith(nonce) or not 1 <= iterations <= _MOST_ITERATIONS:
        raise RemoteProtocolError("the server's SCRAM challenge is not an answer to ours")
    return server_nonce, salt, iterations
