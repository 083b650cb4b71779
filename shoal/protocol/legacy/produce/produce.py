"""Produce v0-v2: read and convert requests, write them for the broker as v3, write its responses in the client's
version.

Version notes:
    v0    Kafka 0.8                     v1  0.9: a throttle time in the response
    v2    0.10: magic 1, and the log append time in the response (KIP-32)
    v3    for the broker: magic 2, a transactional id (null here), ONE batch per partition (KIP-98)

A set that cannot be converted is refused for its partition only, as in a broker; the request's other partitions go on.
A partition without messages is no error and appends nothing, as before v3 (a broker would now refuse the empty batch).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from shoal.protocol.legacy.produce.up_conversion import UpConverted, up_convert
from shoal.protocol.legacy.reading import Room
from shoal.protocol.messages.produce import ProducePartition, ProduceRequest, encode_partition, encode_plain_produce
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.decomposer import MAX_ELEMENTS
from shoal.protocol.schema.headers import RequestHeader, response_body, write_response_header
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Rows, Walkers
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.errors import RemoteProtocolError, TooLarge
from shoal.protocol.wire.types import Buffer, TopicPartition, write_int32, write_string

__all__ = [
    "UPSTREAM",
    "Produced",
    "Refused",
    "convert",
    "encode_for_broker",
    "encode_for_client",
    "read_legacy_answer",
    "read_legacy_produce",
]

UPSTREAM: Final = 3
_NEWEST: Final = 2
_THROTTLE_FROM: Final = 1
_LOG_APPEND_TIME_FROM: Final = 2

_OLD_ROW = Struct(">ihq")  # index, error code, base offset
_ROW = Struct(">ihqq")  # and log append time


class Refused(NamedTuple):
    """The error for a partition whose set was not converted."""

    error_code: int
    reason: str


class Produced(NamedTuple):
    """The result for a partition: offset -1 = none; log append time (ms) -1 = the producer's timestamps are kept."""

    error_code: int
    base_offset: int = -1
    log_append_time: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    throttle_ms: int
    places: Mapping[TopicPartition, Produced]


_REQUEST = Walkers(
    MESSAGES["ProduceRequest"],
    ("Acks", "TimeoutMs"),
    Rows("TopicData.PartitionData", ("Name", "Index", "start Records", "end Records"), ProducePartition),
)
_ANSWER = Walkers(
    MESSAGES["ProduceResponse"],
    ("ThrottleTimeMs",),
    Rows("Responses.PartitionResponses", ("Name", "Index", "ErrorCode", "BaseOffset", "LogAppendTimeMs"), tuple),
    oldest=UPSTREAM,
)


def read_legacy_produce(frame: Buffer, header: RequestHeader) -> ProduceRequest:
    """A whole frame of v0-v2.

    Raises RemoteProtocolError if a partition occurs twice (Kafka would lose the first), or for more than MAX_ELEMENTS
    of them.
    """
    if not 0 <= header.api_version <= _NEWEST:
        raise RemoteProtocolError(f"Produce v{header.api_version} is not one of v0-v{_NEWEST}")
    acks, timeout_ms, partitions = _REQUEST[header.api_version](frame, header.body, len(frame))
    if len(partitions) > MAX_ELEMENTS:
        raise RemoteProtocolError(
            f"a produce request of {len(partitions)} partitions; at most {MAX_ELEMENTS} are taken"
        )
    if len({(row.topic, row.partition) for row in partitions}) != len(partitions):
        raise RemoteProtocolError("a produce request has a partition twice")
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=timeout_ms, partitions=tuple(partitions))


def convert(frame: Buffer, request: ProduceRequest, *, limit: int) -> dict[TopicPartition, UpConverted | Refused]:
    """The converted set, or the error, of every partition, in the request's order.

    `limit`: decompressed bytes of all wrappers together; partitions above it are refused. Takes about 4 us per message:
    convert large requests in a thread.
    """
    room = Room(limit)
    return {
        TopicPartition(str(topic), partition): _converted(frame, start, end, room)
        for topic, partition, start, end in request.partitions
    }


def _converted(frame: Buffer, start: int, end: int, room: Room) -> UpConverted | Refused:
    try:
        return up_convert(frame, start, end, room)
    except TooLarge as error:
        return Refused(ErrorCode.MESSAGE_TOO_LARGE, str(error))
    except RemoteProtocolError as error:
        return Refused(ErrorCode.CORRUPT_MESSAGE, str(error))


def encode_for_broker(
    header: RequestHeader, request: ProduceRequest, sets: Mapping[TopicPartition, Sequence[Buffer]]
) -> bytes:
    """A v3 request with the ids, acks and timeout of `request`."""
    topics: dict[str, list[bytes]] = {}
    for place, parts in sets.items():
        topics.setdefault(place.topic, []).append(encode_partition(UPSTREAM, place.partition, parts))
    return encode_plain_produce(
        UPSTREAM, header.correlation_id, header.client_id, request.acks, request.timeout_ms, list(topics.items())
    )


def read_legacy_answer(frame: Buffer) -> Answer:
    """The broker's whole response to such a request."""
    throttle_ms, rows = _ANSWER[UPSTREAM](frame, response_body(frame, ApiKey.PRODUCE, UPSTREAM), len(frame))
    places = {TopicPartition(topic, partition): Produced(*said) for topic, partition, *said in rows}
    return Answer(throttle_ms=throttle_ms, places=places)


def encode_for_client(
    version: int, correlation_id: int, places: Iterable[tuple[TopicPartition, Produced]], *, throttle_ms: int = 0
) -> bytes:
    """A whole response of v0-v2."""
    topics: dict[str, list[bytes]] = {}
    for (topic, partition), said in places:
        row = _ROW.pack(partition, *said)
        topics.setdefault(topic, []).append(row if version >= _LOG_APPEND_TIME_FROM else row[: _OLD_ROW.size])
    pieces = [write_response_header(ApiKey.PRODUCE, version, correlation_id), write_int32(len(topics))]
    for topic, rows in topics.items():
        pieces += (write_string(topic), write_int32(len(rows)), *rows)
    if version >= _THROTTLE_FROM:
        pieces.append(write_int32(throttle_ms))
    return write_int32(sum(map(len, pieces))) + b"".join(pieces)
