"""Client tokens of the mechanisms with a name and a password: PLAIN (RFC 4616) and SCRAM."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from shoal.protocol.sasl.scram import Exchange, derive, scram_tokens

__all__ = ["TOKEN_ROUNDS", "Credentials", "Exchange", "plain_tokens", "tokens"]

TOKEN_ROUNDS: Final = {"PLAIN": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2, "OAUTHBEARER": 1}
"""Frames without a Kafka header that each side sends after SaslHandshake v0 (RFC 4616, 5802, 7628). GSSAPI has no fixed
number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    mechanism: str
    username: str
    password: str = field(repr=False)


def tokens(credentials: Credentials, nonce: str, salted: Callable[[str, str, bytes, int], bytes] = derive) -> Exchange:
    """`nonce`: printable, without a comma, random. `salted`: `scram.derive`, or a cache in front of it.

    The exchange raises RemoteProtocolError if the server does not prove that it knows the password, or its tokens
    cannot be read.
    """
    if credentials.mechanism == "PLAIN":
        return plain_tokens(credentials.username, credentials.password)
    return scram_tokens(credentials.mechanism, credentials.username, credentials.password, nonce, salted)


def plain_tokens(username: str, password: str) -> Exchange:
    yield f"\0{username}\0{password}".encode()
