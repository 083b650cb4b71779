"""The probe of a mirror topic: a batch without records that only the agent takes, and never appends.

Its base offset is 1, and a broker without the agent demands 0 of every producer: it answers INVALID_RECORD and appends
nothing. The agent knows the batch by its partition leader epoch, which no producer and no log uses.

Version notes: Produce v9, which brokers of Kafka 3.9 to 4.3 have, names topics by name and has error messages (v8).
"""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from shoal.protocol.records.batch import encode_batch
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.frames import request_frame
from shoal.protocol.schema.headers import response_body
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Rows, Walkers
from shoal.protocol.wire.error_codes import ErrorCode, error_name
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import Buffer, TopicPartition

__all__ = ["PROBE_BATCH", "ProbeAnswer", "State", "encode_probe", "read_probe_answers"]

PROBE_EPOCH: Final = -(2**31) + 1
PROBE_BATCH: Final = encode_batch(
    (), base_offset=1, leader_epoch=PROBE_EPOCH, base_timestamp=-1, max_timestamp=-1, last_offset_delta=0
)

_VERSION: Final = 9
_ACKS_OF_LEADER: Final = 1
_TIMEOUT_MS: Final = 5_000
_PROMOTED: Final = " was promoted: "  # in the text of the agent (MirrorTopics.java)

_PASSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)


class State(Enum):
    """A partition on its leader."""

    MIRROR = "a mirror topic, not promoted yet"
    PROMOTED = "promoted"
    ORDINARY = "not a mirror topic"
    PASSING = "in transition"  # a leader change: ask again
    REFUSED = "refused"


class ProbeAnswer(NamedTuple):
    """`log_end` and `log_start` are -1 unless the state is MIRROR."""

    error_code: int
    log_end: int
    log_start: int
    message: str | None

    @property
    def state(self) -> State:
        match self.error_code:
            case ErrorCode.NONE:
                return State.MIRROR
            case ErrorCode.POLICY_VIOLATION if _PROMOTED in (self.message or ""):
                return State.PROMOTED
            case ErrorCode.INVALID_RECORD:
                return State.ORDINARY
            case code:
                return State.PASSING if code in _PASSING else State.REFUSED

    def __str__(self) -> str:
        """What the broker says, for the operator."""
        if self.state in (State.MIRROR, State.PROMOTED):
            return str(self.state.value)
        return error_name(self.error_code) + (f": {self.message}" if self.message else "")


_RESPONSE = Walkers(
    MESSAGES["ProduceResponse"],
    (),
    Rows(
        "Responses.PartitionResponses",
        ("Name", "Index", "ErrorCode", "BaseOffset", "LogStartOffset", "ErrorMessage"),
    ),
)


def encode_probe(client_id: str, partitions: Iterable[TopicPartition]) -> bytes:
    """One request frame for partitions with the same leader; no partition may be in it twice."""
    topics: dict[str, list[Mapping[str, Any]]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append({"Index": partition, "Records": PROBE_BATCH})
    values = {
        "TransactionalId": None,
        "Acks": _ACKS_OF_LEADER,
        "TimeoutMs": _TIMEOUT_MS,
        "TopicData": [{"Name": topic, "PartitionData": rows} for topic, rows in topics.items()],
    }
    return request_frame(ApiKey.PRODUCE, _VERSION, 0, client_id, values)


def read_probe_answers(frame: Buffer, asked: Collection[TopicPartition]) -> dict[TopicPartition, ProbeAnswer]:
    """A whole answer frame: each partition of `asked` once. Raises RemoteProtocolError."""
    (rows,) = _RESPONSE[_VERSION](frame, response_body(frame, ApiKey.PRODUCE, _VERSION), len(frame))
    answers = {
        TopicPartition(topic, partition): ProbeAnswer(error_code, log_end, log_start, message)
        for topic, partition, error_code, log_end, log_start, message in rows
    }
    if len(rows) != len(answers) or answers.keys() != set(asked):
        raise RemoteProtocolError(f"an answer for {len(rows)} partitions, {len(asked)} others were asked for")
    for (topic, partition), answer in answers.items():
        if answer.state is State.MIRROR and not 0 <= answer.log_start <= answer.log_end:
            what = f"offsets {answer.log_start} to {answer.log_end}"
            raise RemoteProtocolError(f"the answer to the probe of {topic}-{partition} has {what}")
    return answers
