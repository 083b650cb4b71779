"""SaslHandshake v0-v1 and SaslAuthenticate v0-v2, as a server reads and answers them.

Version notes:
    SaslHandshake     v0  tokens follow as frames without a Kafka header      v1  they follow in SaslAuthenticate
    SaslAuthenticate  v1  the session's lifetime, which announces that the client may authenticate again (KIP-368)
                      v2  flexible
"""

from collections.abc import Sequence
from typing import Final

from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.composer import Values
from shoal.protocol.schema.frames import response_frame
from shoal.protocol.schema.headers import RequestHeader, response_body
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Walkers
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.errors import UnsupportedVersion
from shoal.protocol.wire.types import Buffer

__all__ = [
    "MOST_LIFETIME_MS",
    "accepted_token",
    "answer_authenticate",
    "answer_handshake",
    "read_authenticate",
    "read_handshake",
]

MOST_LIFETIME_MS: Final = 1 << 40  # 35 years: a client adds it to its clock
_HANDSHAKE: Final = Walkers(MESSAGES["SaslHandshakeRequest"], ("Mechanism",))
_AUTHENTICATED: Final = Walkers(MESSAGES["SaslAuthenticateResponse"], ("start AuthBytes", "end AuthBytes"))
_AUTHENTICATE: Final = Walkers(MESSAGES["SaslAuthenticateRequest"], ("start AuthBytes", "end AuthBytes"))


def read_handshake(frame: Buffer, header: RequestHeader) -> str:
    """The mechanism. Raises RemoteProtocolError, or UnsupportedVersion."""
    (mechanism,) = _HANDSHAKE[header.api_version](frame, header.body, len(frame))
    return str(mechanism)


def read_authenticate(frame: Buffer, header: RequestHeader) -> bytes:
    """The token. Raises RemoteProtocolError, or UnsupportedVersion."""
    start, end = _AUTHENTICATE[header.api_version](frame, header.body, len(frame))
    return bytes(frame[start:end])


def accepted_token(frame: Buffer, version: int) -> bytes | None:
    """The server's token in a SaslAuthenticate answer; None: it refuses the client. Raises RemoteProtocolError.

    Empty where the version is newer than the tables: the error code is first in all of them.
    """
    body = response_body(frame, ApiKey.SASL_AUTHENTICATE, version)
    if any(frame[body : body + 2]):
        return None
    try:
        start, end = _AUTHENTICATED[version](frame, body, len(frame))
    except UnsupportedVersion:
        return b""
    return bytes(frame[start:end])


def answer_handshake(header: RequestHeader, error: ErrorCode, mechanisms: Sequence[str]) -> bytes:
    return _answer(header, {"ErrorCode": error, "Mechanisms": list(mechanisms)})


def answer_authenticate(
    header: RequestHeader,
    *,
    token: bytes = b"",
    error: ErrorCode = ErrorCode.NONE,
    why: str | None = None,
    lifetime_ms: int = 0,
) -> bytes:
    """`lifetime_ms`: 0 if the session does not end."""
    fields: Values = {
        "ErrorCode": error,
        "ErrorMessage": why,
        "AuthBytes": token,
        "SessionLifetimeMs": min(lifetime_ms, MOST_LIFETIME_MS),
    }
    return _answer(header, fields)


def _answer(header: RequestHeader, fields: Values) -> bytes:
    return response_frame(header.api_key, header.api_version, header.correlation_id, fields)
