"""Produce v3-v13: find record sets in a request; build requests and responses from pieces.

Version notes:
    v0-v2    no transactional id; only `peek_acks` reads these (4.x brokers advertise and refuse them)
    v3-v8    record sets have an int32 length (BYTES); v9+ are flexible, with an unsigned varint of length + 1
    v5       log start offset in the response      v8   record errors and an error message (KIP-467)
    v10      NodeEndpoints (tag 0), current leader as a partition tag (KIP-951)
    v11-v12  same layout (KIP-890)                 v13  topics by id, not by name (KIP-516)

A request with acks = 0 gets no response. Since v3 a broker takes exactly one record batch per partition
(`ProduceRequest.validateRecords`), and each partition only once per request.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import (
    read_request_header,
    response_body,
    write_request_header,
    write_response_header,
)
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Rows, Walkers
from shoal.protocol.wire.errors import LocalProtocolError, RemoteProtocolError, UnsupportedVersion
from shoal.protocol.wire.types import (
    Buffer,
    Topic,
    write_compact_string,
    write_int16,
    write_int32,
    write_int64,
    write_string,
    write_tagged_fields,
    write_uuid,
    write_uvarint,
)

__all__ = [
    "ErrorText",
    "LikeAnswers",
    "ProducePartition",
    "ProduceRequest",
    "ProduceResponse",
    "ProduceTemplate",
    "ProducedPartition",
    "encode_partition",
    "encode_partition_error",
    "encode_plain_produce",
    "encode_produce_request",
    "encode_produce_response",
    "encode_single_produce_response",
    "peek_acks",
    "plain_produce_length",
    "read_error_texts",
    "read_produce_request",
    "read_produce_response",
]

OLDEST: Final = 3
_TEXTS_FROM: Final = 8
_COMPACT_FROM: Final = 9
_TOPIC_ID_FROM: Final = 13
_NO_TAGS: Final = write_tagged_fields()
_TAGS_OF_ONE: Final = 3 * _NO_TAGS  # behind the only partition: its own, its topic's, the request's
_NO_ID: Final = {False: write_string(None), True: write_compact_string(None)}  # a null transactional id
_INT64 = Struct(">q")
_AFTER_CORRELATION_ID: Final = 8
_COPIED: Final = 128  # bytes: copying so few costs less than another buffer for the kernel
_BEFORE_CLIENT_ID: Final = 12  # size, key, version, correlation id
_START: Final = Struct(">ii")  # size, correlation id
_ID_SIZE: Final = 4
_ID_AND_THROTTLE: Final = 8

Topics = Sequence[tuple[Topic, Sequence[tuple[int, Sequence[Buffer]]]]]
"""Topics with their partitions, each with its record set in pieces."""


class ProducePartition(NamedTuple):
    """`start`..`end` is the record set (empty when null)."""

    topic: Topic
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceRequest:
    """`acks`: -1 all replicas, 1 leader, 0 no response."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: tuple[ProducePartition, ...]


class ProducedPartition(NamedTuple):
    """A partition of a response: `start`..`end` is the whole element, `base_offset_at` the position of its int64."""

    topic: Topic
    partition: int
    error_code: int
    base_offset: int
    base_offset_at: int
    start: int
    end: int


class ErrorText(NamedTuple):
    """What a broker says about an error of a partition."""

    topic: Topic
    partition: int
    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceResponse:
    """`node_endpoints` is the content of that tagged field (v10+)."""

    throttle_ms: int
    partitions: tuple[ProducedPartition, ...]
    node_endpoints: tuple[int, int] | None


_REQUEST = Walkers(
    MESSAGES["ProduceRequest"],
    ("TransactionalId", "Acks", "TimeoutMs"),
    Rows("TopicData.PartitionData", ("Name | TopicId", "Index", "start Records", "end Records"), ProducePartition),
    oldest=OLDEST,
)

_RESPONSE = Walkers(
    MESSAGES["ProduceResponse"],
    ("ThrottleTimeMs", "start NodeEndpoints = None", "end NodeEndpoints = None"),
    Rows(
        "Responses.PartitionResponses",
        ("Name | TopicId", "Index", "ErrorCode", "BaseOffset", "at BaseOffset", "start *", "end *"),
        ProducedPartition,
    ),
    oldest=OLDEST,
)

_TEXTS = Walkers(
    MESSAGES["ProduceResponse"],
    (),
    Rows("Responses.PartitionResponses", ("Name | TopicId", "Index", "ErrorMessage"), ErrorText),
    oldest=_TEXTS_FROM,
)

_ACKS = Walkers(MESSAGES["ProduceRequest"], ("Acks",), to_end=False)


def read_produce_request(frame: Buffer, version: int) -> ProduceRequest:
    """A whole request frame. Raises RemoteProtocolError, or UnsupportedVersion outside v3-v13."""
    walk = _REQUEST[version]
    found = walk(frame, read_request_header(frame).body, len(frame))
    transactional_id, acks, timeout_ms, partitions = found
    return ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, partitions=tuple(partitions)
    )


PEEK_LIMIT: Final = 70_000
"""Bytes within which `peek_acks` finds acks: after two strings (client id, transactional id) with an int16 length each.
"""


def peek_acks(prefix: Buffer) -> int | None:
    """The acks of a Produce request of any version, from the frame's first bytes; None = more bytes are needed.

    Raises RemoteProtocolError when acks is not within the first `PEEK_LIMIT` bytes, UnsupportedVersion above v13.
    """
    try:
        header = read_request_header(prefix)
        acks: int = _ACKS[header.api_version](prefix, header.body, len(prefix))[0]
    except UnsupportedVersion:
        raise
    except RemoteProtocolError:
        if len(prefix) < PEEK_LIMIT:
            return None
        raise
    return acks


class ProduceTemplate:
    """Requests with the version, client id, transactional id, acks and timeout of `request`, which was read from
    `frame`.
    """

    def __init__(self, frame: Buffer, request: ProduceRequest, correlation_id: int) -> None:
        header = read_request_header(frame)
        self._version = version = header.api_version
        self._compact = version >= _COMPACT_FROM
        string = write_compact_string if self._compact else write_string
        self._head = write_request_header(ApiKey.PRODUCE, version, correlation_id, header.client_id)
        self._head += string(request.transactional_id) + write_int16(request.acks) + write_int32(request.timeout_ms)
        self._one = _count(1, self._compact)
        self._topics: dict[Topic, bytes] = {}
        self._before: dict[tuple[Topic, int], bytes] = {}

    def encode_one(self, topic: Topic, partition: int, record_set: Sequence[Buffer]) -> list[Buffer]:
        """`encode` for one record set, which nearly all requests of Shoal have. Raises LocalProtocolError."""
        head = self._before.get((topic, partition))
        if head is None:
            head = self._head + self._one + self._topic(topic) + self._one + write_int32(partition)
            self._before[topic, partition] = head
        size = sum(map(len, record_set))
        head += _count(size, self._compact)
        tail = _TAGS_OF_ONE if self._compact else b""
        head = write_int32(len(head) + size + len(tail)) + head
        pieces = list[Buffer]()
        for buffer in record_set:
            if len(buffer) <= _COPIED:
                head += buffer
            else:
                pieces += (head, buffer) if head else (buffer,)
                head = b""
        head += tail
        return [*pieces, head] if head else pieces

    def encode(self, topics: Topics) -> list[Buffer]:
        """A request for `topics`. Large buffers of record sets are not copied; what is between them is joined.

        Raises LocalProtocolError unless topics are names below v13, ids from v13.
        """
        if len(topics) == 1 and len(topics[0][1]) == 1:
            ((topic, ((partition, record_set),)),) = topics
            return self.encode_one(topic, partition, record_set)
        compact, one = self._compact, self._one
        tags = _NO_TAGS if compact else b""
        pieces = list[Buffer]()
        head = self._head + (one if len(topics) == 1 else _count(len(topics), compact))
        for topic, partitions in topics:
            head += self._topic(topic) + (one if len(partitions) == 1 else _count(len(partitions), compact))
            for partition, record_set in partitions:
                head += write_int32(partition) + _count(sum(map(len, record_set)), compact)
                for buffer in record_set:
                    if len(buffer) <= _COPIED:
                        head += buffer
                    else:
                        pieces += (head, buffer)
                        head = b""
                head += tags
            head += tags
        return _finish(pieces, head + tags)

    def _topic(self, topic: Topic) -> bytes:
        known = self._topics.get(topic)
        if known is None:
            known = self._topics[topic] = _topic(topic, self._version)
        return known


def encode_produce_request(frame: Buffer, request: ProduceRequest, correlation_id: int, topics: Topics) -> list[Buffer]:
    """One request of a `ProduceTemplate`."""
    return ProduceTemplate(frame, request, correlation_id).encode(topics)


def encode_plain_produce(
    version: int,
    correlation_id: int,
    client_id: str | None,
    acks: int,
    timeout_ms: int,
    topics: Sequence[tuple[Topic, Sequence[Buffer]]],
) -> bytes:
    """A request without a transactional id, in one buffer, from whole partitions (elements of PartitionData)."""
    compact = version >= _COMPACT_FROM
    tags = _NO_TAGS if compact else b""
    pieces: list[Buffer] = [
        write_request_header(ApiKey.PRODUCE, version, correlation_id, client_id),
        _NO_ID[compact],
        write_int16(acks) + write_int32(timeout_ms) + _count(len(topics), compact),
    ]
    for topic, partitions in topics:
        pieces += (_topic(topic, version) + _count(len(partitions), compact), *partitions, tags)
    return b"".join(_finish(pieces, tags))


def plain_produce_length(version: int, client_id: str | None, topics: Sequence[tuple[Topic, Sequence[int]]]) -> int:
    """The bytes that `encode_plain_produce` writes, from the lengths of its partitions."""
    compact = version >= _COMPACT_FROM
    tags = 2 if compact else 0
    size = _BEFORE_CLIENT_ID + len(write_string(client_id)) + len(_NO_ID[compact]) + 6 + tags
    size += len(_count(len(topics), compact))
    for topic, lengths in topics:
        size += len(_topic(topic, version)) + len(_count(len(lengths), compact)) + sum(lengths) + tags // 2
    return size


def encode_partition(version: int, partition: int, record_set: Sequence[Buffer]) -> bytes:
    """An element of PartitionData."""
    compact = version >= _COMPACT_FROM
    head = write_int32(partition) + _count(sum(map(len, record_set)), compact)
    return b"".join((head, *record_set, _NO_TAGS if compact else b""))


def _count(count: int, compact: bool) -> bytes:
    """The length of an array or of a record set, which are encoded alike."""
    return write_uvarint(count + 1) if compact else write_int32(count)


def _topic(topic: Topic, version: int) -> bytes:
    if isinstance(topic, bytes) != (version >= _TOPIC_ID_FROM):
        raise LocalProtocolError(f"Produce v{version} names topics by {'id' if version >= _TOPIC_ID_FROM else 'name'}")
    if isinstance(topic, bytes):
        return write_uuid(topic)
    return write_compact_string(topic) if version >= _COMPACT_FROM else write_string(topic)


def _finish(pieces: list[Buffer], tail: bytes) -> list[Buffer]:
    """The size and the header share the first buffer, so that the first buffer identifies the frame."""
    pieces = [piece for piece in pieces if len(piece)]
    pieces.append(tail)
    return [write_int32(sum(map(len, pieces))) + bytes(pieces[0]), *pieces[1:]]


def read_produce_response(frame: Buffer, version: int) -> ProduceResponse:
    """A whole response frame. Raises RemoteProtocolError, or UnsupportedVersion outside v3-v13."""
    walk = _RESPONSE[version]
    found = walk(frame, response_body(frame, ApiKey.PRODUCE, version), len(frame))
    throttle_ms, start, end, partitions = found
    return ProduceResponse(
        throttle_ms=throttle_ms,
        partitions=tuple(partitions),
        node_endpoints=None if start is None else (start, end),
    )


def read_error_texts(frame: Buffer, version: int) -> list[ErrorText]:
    """Those of all partitions of a whole response frame; none below v8. Raises RemoteProtocolError."""
    if version < _TEXTS_FROM:
        return []
    (rows,) = _TEXTS[version](frame, response_body(frame, ApiKey.PRODUCE, version), len(frame))
    return list(rows)


class LikeAnswers:
    """Reads answers that differ from an earlier one in nothing but base offsets and correlation id, without decoding
    them again. `base_offsets_at`: where the earlier one has them.
    """

    def __init__(self, frame: Buffer, base_offsets_at: Sequence[int]) -> None:
        starts = [_AFTER_CORRELATION_ID, *(at + _INT64.size for at in base_offsets_at)]
        between = [f"{end - start}s" for start, end in zip(starts, [*base_offsets_at, len(frame)], strict=True)]
        layout = Struct(f">4s4x{'q'.join(between)}")
        self.size = layout.size
        """Bytes of each."""
        self._unpack = layout.unpack
        size, *found = layout.unpack(frame)
        self._size, self._rest = size, found[::2]

    def base_offsets(self, frame: Buffer) -> Sequence[int] | None:
        """In the order of the earlier one's partitions. None: it is not such an answer."""
        if len(frame) != self.size:
            return None
        size, *found = self._unpack(frame)
        return found[1::2] if found[::2] == self._rest and size == self._size else None


def encode_produce_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[Topic, Sequence[Buffer]]],
    *,
    throttle_ms: int,
    node_endpoints: Buffer = b"",
) -> list[Buffer]:
    """A response from whole partition responses (`ProducedPartition.start..end`, `encode_partition_error`).

    `node_endpoints` is the content of that tagged field, b"" = none (below v10 there is none).
    """
    compact = version >= _COMPACT_FROM
    tags = _NO_TAGS if compact else b""
    pieces: list[Buffer] = [write_response_header(ApiKey.PRODUCE, version, correlation_id)]
    pieces.append(_count(len(topics), compact))
    for topic, partitions in topics:
        pieces.append(_topic(topic, version) + _count(len(partitions), compact))
        pieces += partitions
        pieces.append(tags)
    pieces.append(write_int32(throttle_ms))
    endpoints = [(0, [node_endpoints])] if len(node_endpoints) else []
    return _finish(pieces, write_tagged_fields(endpoints) if compact else b"")


def encode_single_produce_response(
    version: int, correlation_id: int, topic: Topic, partition: Buffer, throttle_ms: int
) -> bytes:
    """`encode_produce_response` of one partition without endpoints, in a fraction of the time."""
    head, tags = _around_single(version, topic)
    size = _ID_AND_THROTTLE + len(head) + len(partition) + 2 * len(tags)
    start = _START.pack(size, correlation_id)
    return b"".join((start, head, partition, tags, throttle_ms.to_bytes(4, "big", signed=True), tags))


@lru_cache(maxsize=1024)  # some 200 bytes each
def _around_single(version: int, topic: Topic) -> tuple[bytes, bytes]:
    """What is between the correlation id and the only partition; empty tagged fields."""
    compact = version >= _COMPACT_FROM
    start = write_response_header(ApiKey.PRODUCE, version, 0)[_ID_SIZE:]
    one = _count(1, compact)
    return start + one + _topic(topic, version) + one, _NO_TAGS if compact else b""


def encode_partition_error(version: int, partition: int, error_code: int, message: str | None = None) -> bytes:
    """The response element of one partition: `error_code`, base offset -1; the message needs v8."""
    compact = version >= _COMPACT_FROM
    out = write_int32(partition) + write_int16(error_code) + write_int64(-1) + write_int64(-1)
    if version >= 5:
        out += write_int64(-1)
    if version >= 8:
        out += _count(0, compact) + (write_compact_string(message) if compact else write_string(message))
    return out + (_NO_TAGS if compact else b"")
