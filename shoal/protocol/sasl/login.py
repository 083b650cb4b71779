"""The login of one connection to a broker: ApiVersions, SaslHandshake v1, SaslAuthenticate v0-v2.

A session has a lifetime if the broker says so (KIP-368). Then the connection logs in again, without ApiVersions.
"""

from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, TypeAlias

from shoal.protocol.messages.api_versions import offered
from shoal.protocol.sasl.oauth import TokenRefused
from shoal.protocol.sasl.scram import Exchange
from shoal.protocol.schema.api import API, ApiKey
from shoal.protocol.schema.composer import Values
from shoal.protocol.schema.frames import request_frame
from shoal.protocol.schema.headers import peek_correlation_id, response_body
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Rows, Walkers
from shoal.protocol.wire.error_codes import ErrorCode, error_name
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import Buffer

__all__ = ["Granted", "LoginRefused", "Refusal", "Talk", "log_in", "log_in_again"]

_HANDSHAKE: Final = Walkers(MESSAGES["SaslHandshakeResponse"], ("ErrorCode",), Rows("Mechanisms", ("*",)))
_AUTHENTICATE: Final = Walkers(
    MESSAGES["SaslAuthenticateResponse"],
    ("ErrorCode", "ErrorMessage", "start AuthBytes", "end AuthBytes", "SessionLifetimeMs = 0"),
)
_HANDSHAKE_VERSION: Final = 1
_NEWEST_AUTHENTICATE: Final = 2
_MOST_TOKENS: Final = 20  # of one login: GSSAPI may need three or four


class Refusal(Enum):
    """Why a broker refuses a login."""

    CREDENTIALS = auto()
    MECHANISM = auto()  # it offers others
    NO_SASL = auto()
    OTHER = auto()


class LoginRefused(Exception):
    """The message is the broker's, in our words. `mechanisms`: what it offers."""

    def __init__(self, refusal: Refusal, why: str, mechanisms: tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.refusal = refusal
        self.mechanisms = mechanisms


@dataclass(frozen=True, slots=True)
class Granted:
    """`session_ms`: how long the broker accepts requests; 0: forever. `version`: of SaslAuthenticate."""

    session_ms: int
    version: int


Talk: TypeAlias = Generator[bytes, Buffer, Granted]


def log_in(mechanism: str, exchange: Exchange, client_id: str) -> Talk:
    """The first requests of a connection. Yields request frames, and is sent the answers.

    Raises LoginRefused, RemoteProtocolError, and what `exchange` raises.
    """
    asking = _Requests(client_id)
    apis = offered((yield from asking.ask(ApiKey.API_VERSIONS, 0, {})), 0)
    version = min(apis.get(ApiKey.SASL_AUTHENTICATE, -1), _NEWEST_AUTHENTICATE)
    if apis.get(ApiKey.SASL_HANDSHAKE, 0) < _HANDSHAKE_VERSION or version < 0:
        raise LoginRefused(Refusal.OTHER, "the broker is older than Kafka 1.0, or has no SASL at all")
    return (yield from _authenticate(asking, version, mechanism, exchange))


def log_in_again(before: Granted, mechanism: str, exchange: Exchange, client_id: str) -> Talk:
    """On a connection whose session ends. Raises as `log_in`."""
    return (yield from _authenticate(_Requests(client_id), before.version, mechanism, exchange))


class _Requests:
    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._count = 0

    def ask(self, key: int, version: int, values: Values) -> Generator[bytes, Buffer, Buffer]:
        self._count += 1
        answer = yield request_frame(key, version, self._count, self._client_id, values)
        answered = peek_correlation_id(answer)
        if answered != self._count:
            raise RemoteProtocolError(
                f"correlation id {answered} in the answer to request {self._count} ({API[key].name})"
            )
        return answer


def _authenticate(asking: _Requests, version: int, mechanism: str, exchange: Exchange) -> Talk:
    yield from _handshake(asking, mechanism)
    token, session_ms = next(exchange), 0
    for _ in range(_MOST_TOKENS):
        answer, session_ms = yield from _send_token(asking, version, token)
        try:
            token = exchange.send(answer)
        except StopIteration:
            return Granted(session_ms, version)
        except TokenRefused as error:
            raise LoginRefused(Refusal.CREDENTIALS, f"the broker refuses the token: {error}") from None
    raise RemoteProtocolError(f"the broker asks for more than {_MOST_TOKENS} SASL tokens")


def _handshake(asking: _Requests, mechanism: str) -> Generator[bytes, Buffer, None]:
    key = ApiKey.SASL_HANDSHAKE
    answer = yield from asking.ask(key, _HANDSHAKE_VERSION, {"Mechanism": mechanism})
    error_code, rows = _read(_HANDSHAKE, key, _HANDSHAKE_VERSION, answer)
    if not error_code:
        return
    mechanisms = tuple(name for (name,) in rows)
    text = f"the broker does not take SASL {mechanism} here: {error_name(error_code)}; it offers "
    if mechanisms:
        raise LoginRefused(Refusal.MECHANISM, text + ", ".join(mechanisms), mechanisms)
    is_plain = error_code == ErrorCode.ILLEGAL_SASL_STATE
    raise LoginRefused(Refusal.NO_SASL if is_plain else Refusal.OTHER, f"{text}no SASL on this port")


def _send_token(asking: _Requests, version: int, token: bytes) -> Generator[bytes, Buffer, tuple[bytes, int]]:
    key = ApiKey.SASL_AUTHENTICATE
    answer = yield from asking.ask(key, version, {"AuthBytes": token})
    error_code, text, start, end, session_ms = _read(_AUTHENTICATE, key, version, answer)
    if error_code:
        is_credentials = error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        why = f"the broker does not let the user in: {error_name(error_code)}: {text or 'no reason given'}"
        raise LoginRefused(Refusal.CREDENTIALS if is_credentials else Refusal.OTHER, why)
    return bytes(answer[start:end]), session_ms


def _read(walkers: Walkers, key: int, version: int, frame: Buffer) -> tuple[Any, ...]:
    return walkers[version](frame, response_body(frame, key, version), len(frame))
