"""Clients that log in at Shoal: their requests, and tokens of every mechanism."""

from contextlib import suppress

from shoal.protocol.sasl.answers import read_authenticate, read_handshake
from shoal.protocol.sasl.server import (
    Accepted,
    OAuthBearerServer,
    PasswordCheck,
    PlainServer,
    ScramServer,
    ServerExchange,
    TokenCheck,
)
from shoal.protocol.sasl.signed_token import BadToken, read_signed_token
from shoal.protocol.sasl.users import BadUsers, Users, hash_password, read_users, write_users
from shoal.protocol.schema.headers import read_request_header
from tests.fuzz.target import Target

__all__ = ["TARGETS"]

_SCRAM = "SCRAM-SHA-256"
_USERS = Users(seed=bytes(32), hashes={"u": {_SCRAM: hash_password(_SCRAM, "p", b"salt", 4096)}})
_MOST = 4  # tokens


def _exchange(first: bytes) -> ServerExchange:
    if first == b"p":
        return PlainServer()
    return OAuthBearerServer() if first == b"o" else ScramServer(_SCRAM, _USERS, "nonce")


def _tokens(data: bytes) -> None:
    """The mechanism, then tokens that are separated by line ends. Nothing raises, and no client gets in by chance."""
    server = _exchange(data[:1])
    for token in data[1:].split(b"\n")[:_MOST]:
        result = server.step(token)
        if isinstance(result, PasswordCheck | TokenCheck):
            result = server.checked("no")
        assert not isinstance(result, Accepted)


def _requests(data: bytes) -> None:
    header = read_request_header(data)
    read = read_handshake if header.api_key == 17 else read_authenticate
    read(data, header)


def _signed_token(data: bytes) -> None:
    with suppress(BadToken):
        read_signed_token(data.decode(errors="replace")).claims()


def _users(data: bytes) -> None:
    with suppress(BadUsers):
        text = data.decode(errors="replace")
        assert read_users(write_users(read_users(text))) == read_users(text)


_HANDSHAKE = b"\x00\x00\x00\x14\x00\x11\x00\x01\x00\x00\x00\x01\x00\x01c\x00\x05PLAIN"
_AUTHENTICATE = b"\x00\x00\x00\x14\x00\x24\x00\x02\x00\x00\x00\x01\x00\x01c\x00\x05\x00u\x00p\x00"

TARGETS = [
    Target(
        "sasl.server",
        _tokens,
        lambda: [
            b"p\0u\0wrong",
            b"sn,,n=u,r=client\nc=biws,r=clientnonce,p=AAAA",
            b"on,,\x01auth=Bearer a.b.c\x01\x01\n\x01",
        ],
    ),
    Target("sasl.requests", _requests, lambda: [_HANDSHAKE, _AUTHENTICATE]),
    Target("sasl.signed_token", _signed_token, lambda: [b"eyJhbGciOiJSUzI1NiIsImtpZCI6ImsifQ.eyJzdWIiOiJ4In0.AAAA"]),
    Target("sasl.users", _users, lambda: [write_users(_USERS).encode()]),
]
