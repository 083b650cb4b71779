"""Matches the frames of one client connection: a request has its API, an answer only the request's correlation id.

Frames without a Kafka header are SASL tokens, after a SaslHandshake v0 whose mechanism the broker accepts. They are
expected from that request until the broker refuses, so a possible token is never read as a request.
"""

from collections import deque
from collections.abc import Iterator
from struct import Struct
from typing import Final, Generic, NamedTuple, TypeVar

from shoal.protocol.messages.produce import peek_acks
from shoal.protocol.sasl.client import TOKEN_ROUNDS
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import RequestHeader, peek_correlation_id, read_request_header, response_body
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import read_string

__all__ = ["TOKEN", "UNREADABLE", "ExchangeRequest", "Exchanges"]

TOKEN: Final = -1
"""Instead of an API key: a SASL token."""
UNREADABLE: Final = -2
"""A request whose header cannot be read."""
_NO_ANSWER: Final = 0  # acks
_ERROR: Final = Struct(">h")
_MANY: Final = 1 << 30

T = TypeVar("T")


class ExchangeRequest(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    is_answered: bool


class Exchanges(Generic[T]):
    """The exchanges of one connection. `waiting`: unanswered, each with the caller's data; the caller limits them."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[ExchangeRequest, T]] = deque()
        self._client_id = ""
        self._tokens = 0  # still expected from the client

    def request(self, frame: bytes) -> ExchangeRequest:
        """`frame` may be cut after its header. Never raises."""
        if self._tokens:
            self._tokens -= 1
            return ExchangeRequest(TOKEN, 0, 0, self._client_id, True)
        try:
            header = read_request_header(frame)
        except RemoteProtocolError:
            return ExchangeRequest(UNREADABLE, 0, 0, self._client_id, True)
        self._client_id = header.client_id or ""
        if header.api_key == ApiKey.SASL_HANDSHAKE and header.api_version == 0:
            self._tokens = _rounds(frame, header)
        is_answered = header.api_key != ApiKey.PRODUCE or _acks(frame) != _NO_ANSWER
        return ExchangeRequest(header.api_key, header.api_version, header.correlation_id, self._client_id, is_answered)

    def answer(self, frame: bytes) -> Iterator[tuple[ExchangeRequest, T]]:
        """The requests that this answer ends: skipped ones, then its own. None: its request is unknown."""
        position = self._position(frame)
        for _ in range(position + 1):
            asked, kept = self.waiting.popleft()
            if asked.api_key == ApiKey.SASL_HANDSHAKE and _is_refused(asked, frame):
                self._tokens = 0
            yield asked, kept

    def _position(self, frame: bytes) -> int:
        """Index in `waiting`; -1: not found. The answer to a token has no correlation id."""
        correlation_id = peek_correlation_id(frame)
        for position, (asked, _) in enumerate(self.waiting):
            if asked.api_key == TOKEN:
                return position if position == 0 else -1
            if asked.correlation_id == correlation_id and asked.api_key != UNREADABLE:
                return position
        return -1


def _rounds(frame: bytes, header: RequestHeader) -> int:
    try:
        mechanism, _ = read_string(frame, header.body, len(frame))
    except RemoteProtocolError:
        return _MANY
    return TOKEN_ROUNDS.get(mechanism or "", _MANY)


def _acks(frame: bytes) -> int | None:
    try:
        return peek_acks(frame)
    except RemoteProtocolError:
        return None


def _is_refused(asked: ExchangeRequest, frame: bytes) -> bool:
    error_at = response_body(frame, asked.api_key, asked.api_version)
    return asked.api_version == 0 and len(frame) >= error_at + 2 and _ERROR.unpack_from(frame, error_at)[0] != 0
