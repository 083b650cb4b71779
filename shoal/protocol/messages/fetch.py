"""Fetch v4-v18: find fetch offsets in a request and record sets in a response; replace record sets.

Version notes:
    v4-v11   record sets have an int32 length (BYTES); v12+ an unsigned varint of length + 1 (COMPACT_RECORDS)
    v5       log start offset            v7   sessions (KIP-227): session id and epoch, forgotten topics
    v11      preferred read replica      v12  flexible; partition tags: diverging epoch, current leader, snapshot id
    v13      topics by id, not by name   v16  NodeEndpoints (tag 0): the addresses of new leaders
    v17-v18  partition tags in the request only (replica directory id, high watermark)

Readers find positions and copy nothing; `replace_record_sets` splices, so all other bytes of a frame are unchanged.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.frames import request_frame, response_frame
from shoal.protocol.schema.headers import read_request_header, response_body
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Rows, Walkers
from shoal.protocol.wire.splice import Edit, splice
from shoal.protocol.wire.types import Buffer, PartitionRef, Topic, write_int32, write_uvarint

__all__ = [
    "OLDEST",
    "OWN_VERSION",
    "AbortedTransaction",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchedPartition",
    "encode_fetch_error",
    "encode_fetch_request",
    "fetch_committed",
    "fetch_from",
    "limit_fetch",
    "read_fetch_request",
    "read_fetch_response",
    "replace_record_sets",
]

OLDEST: Final = 4
OWN_VERSION: Final = 10  # below it, Kafka 3 refuses topics with compression.type=zstd (KIP-110)
_COMPACT_FROM: Final = 12
_READ_COMMITTED: Final = 1
_INT32 = Struct(">i")
_INT64 = Struct(">q")


class FetchPartition(NamedTuple):
    """A requested partition; `..._at` are the positions of PartitionMaxBytes (int32) and FetchOffset (int64)."""

    topic: Topic
    partition: int
    fetch_offset: int
    max_bytes: int
    max_bytes_at: int
    fetch_offset_at: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """`session_id` 0 and `session_epoch` -1 below v7, without sessions; `max_bytes_at` as in FetchPartition."""

    max_bytes: int
    max_bytes_at: int
    isolation_level: int
    session_id: int
    session_epoch: int
    partitions: tuple[FetchPartition, ...]
    forgotten: tuple[PartitionRef, ...]
    isolation_level_at: int = -1

    @property
    def reads_committed(self) -> bool:
        return self.isolation_level == _READ_COMMITTED


class FetchedPartition(NamedTuple):
    """A partition of a response. `aborted` counts aborted transactions; `field` is the position of the RECORDS length;
    `start`..`end` is the record set, empty (start == end) if null or zero-length. Offsets are -1 in some errors, and
    `log_start` is -1 below v5."""

    topic: Topic
    partition: int
    error_code: int
    high_watermark: int
    last_stable: int
    log_start: int
    aborted: int
    field: int
    start: int
    end: int


class AbortedTransaction(NamedTuple):
    """An entry of AbortedTransactions; `FetchedPartition.aborted` counts them."""

    topic: Topic
    partition: int
    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse:
    """`error_code` and `session_id` are 0 below v7; `node_endpoints` is the content of that tagged field (v16+)."""

    throttle_ms: int
    error_code: int
    session_id: int
    partitions: tuple[FetchedPartition, ...]
    aborted: tuple[AbortedTransaction, ...]
    node_endpoints: tuple[int, int] | None

    @property
    def is_over_quota(self) -> bool:
        """The client is over its quota, so a broker that has read the whole request answers without a partition
        (`FetchContext.getThrottledResponse`). Only outside a session; in one, it has nothing new.
        """
        return not self.error_code and not self.partitions

    def aborted_by_partition(self) -> dict[PartitionRef, list[tuple[int, int]]]:
        """Producer id and first offset of each aborted transaction."""
        found: dict[PartitionRef, list[tuple[int, int]]] = {}
        for topic, partition, producer_id, first_offset in self.aborted:
            found.setdefault(PartitionRef(topic, partition), []).append((producer_id, first_offset))
        return found


_REQUEST = Walkers(
    MESSAGES["FetchRequest"],
    ("MaxBytes", "at MaxBytes", "IsolationLevel", "at IsolationLevel", "SessionId = 0", "SessionEpoch = -1"),
    Rows(
        "Topics.Partitions",
        ("Topic | TopicId", "Partition", "FetchOffset", "PartitionMaxBytes", "at PartitionMaxBytes", "at FetchOffset"),
        FetchPartition,
    ),
    Rows("ForgottenTopicsData.Partitions", ("Topic | TopicId", "*"), PartitionRef),
    oldest=OLDEST,
)

_RESPONSE = Walkers(
    MESSAGES["FetchResponse"],
    ("ThrottleTimeMs", "ErrorCode = 0", "SessionId = 0", "start NodeEndpoints = None", "end NodeEndpoints = None"),
    Rows(
        "Responses.Partitions",
        (
            "Topic | TopicId",
            "PartitionIndex",
            "ErrorCode",
            "HighWatermark",
            "LastStableOffset",
            "LogStartOffset = -1",
            "count AbortedTransactions",
            "at Records",
            "start Records",
            "end Records",
        ),
        FetchedPartition,
    ),
    Rows(
        "Responses.Partitions.AbortedTransactions",
        ("Topic | TopicId", "PartitionIndex", "ProducerId", "FirstOffset"),
        AbortedTransaction,
    ),
    oldest=OLDEST,
)


def encode_fetch_error(version: int, correlation_id: int, error_code: int) -> bytes:
    """A whole response frame with a top-level error and no partition (v7+)."""
    return response_frame(ApiKey.FETCH, version, correlation_id, {"ErrorCode": error_code})


def encode_fetch_request(
    client_id: str, topic: str, partition: int, offset: int, *, max_bytes: int, read_committed: bool = False
) -> bytes:
    """Shoal's own request frame, of `OWN_VERSION`: for all records, from this offset on, without waiting. With
    `read_committed`, up to the first open transaction, and the answer says which were aborted.
    """
    asked = {"Partition": partition, "FetchOffset": offset, "PartitionMaxBytes": max_bytes}
    asked |= {"CurrentLeaderEpoch": -1, "LogStartOffset": -1}
    topics = [{"Topic": topic, "Partitions": [asked]}]
    values = {"ReplicaId": -1, "MaxBytes": max_bytes, "SessionEpoch": -1, "Topics": topics}
    values |= {"IsolationLevel": int(read_committed)}
    return request_frame(ApiKey.FETCH, OWN_VERSION, 0, client_id, values)


def read_fetch_request(frame: Buffer, version: int) -> FetchRequest:
    """A whole request frame. Raises RemoteProtocolError, or UnsupportedVersion outside v4-v18."""
    walk = _REQUEST[version]
    found = walk(frame, read_request_header(frame).body, len(frame))
    max_bytes, max_bytes_at, isolation_level, isolation_level_at, session_id, session_epoch, partitions, forgotten = (
        found
    )
    return FetchRequest(
        max_bytes=max_bytes,
        max_bytes_at=max_bytes_at,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        partitions=tuple(partitions),
        forgotten=tuple(forgotten),
        isolation_level_at=isolation_level_at,
    )


def fetch_from(frame: bytearray | memoryview, partition: FetchPartition, offset: int) -> None:
    """Ask from another offset on, in place in the frame that `partition` was read from."""
    _INT64.pack_into(frame, partition.fetch_offset_at, offset)


def fetch_committed(frame: bytearray | memoryview, request: FetchRequest) -> None:
    """Ask for committed records only (isolation level 1), in place. The answer then lists aborted transactions."""
    frame[request.isolation_level_at] = _READ_COMMITTED


def limit_fetch(
    frame: bytearray | memoryview, request: FetchRequest, *, max_bytes: int, partition_max_bytes: int
) -> None:
    """Lower the limits (bytes) of `request`, in place in the `frame` that it was read from; lower limits are kept."""
    if request.max_bytes > max_bytes:
        _INT32.pack_into(frame, request.max_bytes_at, max_bytes)
    for partition in request.partitions:
        if partition.max_bytes > partition_max_bytes:
            _INT32.pack_into(frame, partition.max_bytes_at, partition_max_bytes)


def read_fetch_response(frame: Buffer, version: int) -> FetchResponse:
    """A whole response frame. Raises RemoteProtocolError, or UnsupportedVersion outside v4-v18."""
    walk = _RESPONSE[version]
    found = walk(frame, response_body(frame, ApiKey.FETCH, version), len(frame))
    throttle_ms, error_code, session_id, start, end, partitions, aborted = found
    return FetchResponse(
        throttle_ms=throttle_ms,
        error_code=error_code,
        session_id=session_id,
        partitions=tuple(partitions),
        aborted=tuple(aborted),
        node_endpoints=None if start is None else (start, end),
    )


def replace_record_sets(
    frame: Buffer,
    version: int,
    record_sets: Iterable[tuple[FetchedPartition, Sequence[Buffer]]],
    others: Iterable[Edit] = (),
) -> list[Buffer]:
    """The response frame with other record sets in these partitions, and with the edits `others`; lengths and frame
    size are corrected.

    Unchanged ranges are memoryviews of `frame`, which must not change while the result is in use.
    """
    return splice(frame, [*others, *(_edit(partition, version, new) for partition, new in record_sets)])


def _edit(partition: FetchedPartition, version: int, record_set: Sequence[Buffer]) -> Edit:
    size = sum(map(len, record_set))
    length = write_uvarint(size + 1) if version >= _COMPACT_FROM else write_int32(size)
    return Edit(partition.field, partition.end, (length, *record_set))
