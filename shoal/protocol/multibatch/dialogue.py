"""A sequence of requests without I/O: a dialogue is a generator that yields requests and is sent the responses.

Rejected: a state table. A probe is a straight line with early exits, and reads best as one.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from shoal.protocol.multibatch.messages import CLIENT_ID, ApiRange, common_version, read_api_versions
from shoal.protocol.multibatch.proof import Proof, Result
from shoal.protocol.schema.api import API, ApiKey
from shoal.protocol.schema.composer import Values
from shoal.protocol.schema.frames import request_frame
from shoal.protocol.schema.headers import peek_correlation_id
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import Buffer

__all__ = ["PASSING", "Ask", "ConnectionEnded", "Dialogue", "DialogueEnded", "Talk", "unproven"]

T = TypeVar("T")


class Ask(NamedTuple):
    """Send `frame` after `pause` seconds."""

    frame: bytes
    pause: float = 0.0


Talk: TypeAlias = Generator[Ask, Buffer, T]


class ConnectionEnded(Exception):
    """Thrown into a dialogue: no response will arrive."""


class DialogueEnded(Exception):
    """The dialogue has an early result."""

    def __init__(self, proof: Proof) -> None:
        super().__init__(proof.why)
        self.proof = proof


def unproven(why: str, remedy: str = "", *, closed: bool = False) -> DialogueEnded:
    return DialogueEnded(Proof(result=Result.UNKNOWN, why=why, remedy=remedy, closed=closed))


PASSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Errors of a new topic or broker, or after a leader change."""

_PAUSES: Final = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5)
"""Seconds before each attempt."""


class Dialogue:
    """The requests of one connection. `asked` is the API name of the last one."""

    def __init__(self) -> None:
        self.asked = ""
        self.ranges: dict[int, ApiRange] = {ApiKey.API_VERSIONS: ApiRange(ApiKey.API_VERSIONS, 0, 0)}
        self._requests = 0

    def learn_versions(self) -> Talk[tuple[ApiRange, ...]]:
        """The first request of a connection."""
        frame, _ = yield from self.ask(ApiKey.API_VERSIONS, {})
        apis = read_api_versions(frame)
        self.ranges |= {api.api_key: api for api in apis}
        return apis

    def ask(self, key: int, values: Values, pause: float = 0.0) -> Talk[tuple[Buffer, int]]:
        """Returns the response and its version. Raises DialogueEnded if the broker does not offer the API."""
        version = common_version(key, self.ranges)
        self.asked = API[key].name
        if version is None:
            raise unproven(f"the broker offers no version of {self.asked} that Shoal knows")
        self._requests += 1
        number = self._requests
        frame = yield Ask(request_frame(key, version, number, CLIENT_ID, values), pause)
        got = peek_correlation_id(frame)
        if got != number:
            raise RemoteProtocolError(f"correlation id {got} in the response to request {number} ({self.asked})")
        return frame, version

    def insist(self, key: int, values: Values, read: Callable[[Buffer, int], Sequence[Any]]) -> Talk[Sequence[Any]]:
        """Retry for some four seconds while the error code, the first item that `read` returns, is a transient one."""
        result: Sequence[Any] = ()
        for pause in _PAUSES:
            frame, version = yield from self.ask(key, values, pause)
            result = read(frame, version)
            if result[0] not in PASSING:
                break
        return result
