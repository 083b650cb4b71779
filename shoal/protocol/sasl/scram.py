"""Client tokens of SCRAM (RFC 5802, 7677)."""

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Callable, Generator
from typing import Final, TypeAlias

from shoal.protocol.wire.errors import RemoteProtocolError

__all__ = ["DIGESTS", "LEAST_ITERATIONS", "MOST_ITERATIONS", "Exchange", "derive", "scram_tokens"]

Exchange: TypeAlias = Generator[bytes, bytes, None]
"""Yields the client's tokens; send it the server's."""

DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
LEAST_ITERATIONS: Final = 4096  # RFC 7677: fewer would let a false server find the password from our proof
_MOST_BYTES: Final = 4096  # of a server's token: two nonces and a salt
MOST_ITERATIONS: Final = 100_000  # bounds the time that a server can cost us; Kafka allows 16384 at most


def derive(digest: str, password: str, salt: bytes, iterations: int) -> bytes:
    """The salted password: milliseconds of work."""
    return hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)


def scram_tokens(
    mechanism: str,
    username: str,
    password: str,
    nonce: str,
    salted: Callable[[str, str, bytes, int], bytes] = derive,
) -> Exchange:
    """Raises RemoteProtocolError."""
    digest = DIGESTS[mechanism]
    name = username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}".encode()
    challenge = yield b"n,," + first
    server_nonce, salt, iterations = _challenge(challenge, nonce.encode())
    key = salted(digest, password, salt, iterations)
    last = b"c=biws,r=" + server_nonce
    signed = b",".join((first, challenge, last))
    client_key = hmac.digest(key, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    final = yield last + b",p=" + b64encode(proof)
    expected = b"v=" + b64encode(hmac.digest(hmac.digest(key, b"Server Key", digest), signed, digest))
    if not hmac.compare_digest(final[:_MOST_BYTES].split(b",")[0], expected):
        raise RemoteProtocolError("the server's SCRAM signature is wrong: it does not know the password")


def _challenge(challenge: bytes, nonce: bytes) -> tuple[bytes, bytes, int]:
    """The whole nonce, the salt and the number of iterations; RemoteProtocolError unless they continue our `nonce`."""
    if len(challenge) > _MOST_BYTES:
        raise RemoteProtocolError(f"the server's SCRAM challenge has {len(challenge)} bytes")
    fields = dict(part.split(b"=", 1) for part in challenge.split(b",") if b"=" in part)
    try:
        server_nonce, salt, iterations = fields[b"r"], b64decode(fields[b"s"], validate=True), int(fields[b"i"])
    except (KeyError, ValueError, BadBase64):
        raise RemoteProtocolError("the server's SCRAM challenge cannot be read") from None
    if not server_nonce.startswith(nonce) or len(server_nonce) == len(nonce):
        raise RemoteProtocolError("the server's SCRAM challenge is not an answer to ours")
    if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise RemoteProtocolError(
            f"the server demands {iterations} SCRAM iterations: only {LEAST_ITERATIONS} to {MOST_ITERATIONS} are safe"
        )
    return server_nonce, salt, iterations
