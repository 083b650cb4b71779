"""Fetch between an old client (v0-v3) and a current broker (v10): reads and writes requests, reads responses.

Version notes:
    v0     magic 0; responses without a throttle time     v1  throttle time
    v2     magic 1 (KIP-32)
    v3     MaxBytes of the whole response; partition order counts (KIP-74)
    v10    sent to the broker: the oldest version that may return zstd (KIP-110), so that Shoal, not the broker, decides
           what a client cannot read. No session (id 0, epoch -1: a full fetch), no leader epoch (-1 is not checked)
    v11    not used: from v11 on a follower answers consumers (KIP-392), and one that is behind would send a client with
           old metadata OFFSET_OUT_OF_RANGE

heads.py writes the responses.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from struct import Struct
from typing import Final, NamedTuple

from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.decomposer import MAX_ELEMENTS
from shoal.protocol.schema.headers import RequestHeader, response_body, write_request_header
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Rows, Walkers
from shoal.protocol.wire.errors import RemoteProtocolError, UnsupportedVersion
from shoal.protocol.wire.types import Buffer, TopicPartition, write_int32, write_string

__all__ = [
    "UPSTREAM_VERSION",
    "Fetched",
    "LegacyFetch",
    "UpstreamAnswer",
    "Wanted",
    "magic_of",
    "read_aborted",
    "read_legacy_fetch",
    "read_upstream_answer",
    "write_upstream_fetch",
]

UPSTREAM_VERSION: Final = 10
_NEWEST_LEGACY: Final = 3
_NO_LIMIT: Final = 2**31 - 1

_QUESTION = Struct(
    ">"
    "i"  # ReplicaId
    "i"  # MaxWaitMs
    "i"  # MinBytes
    "i"  # MaxBytes
    "b"  # IsolationLevel
    "i"  # SessionId
    "i"  # SessionEpoch
)
_PARTITION = Struct(
    ">"
    "i"  # Partition
    "i"  # CurrentLeaderEpoch
    "q"  # FetchOffset
    "q"  # LogStartOffset
    "i"  # PartitionMaxBytes
)
_END = write_int32(0)  # ForgottenTopicsData
_ABORTED = Struct(">qq")  # ProducerId, FirstOffset


class Wanted(NamedTuple):
    """A partition that the client, or Shoal, fetches. `max_bytes` is its own limit."""

    topic: str
    partition: int
    offset: int
    max_bytes: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyFetch:
    """`max_bytes` limits the whole response; 2^31 - 1 below v3. `partitions`: in the client's order, no duplicates."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partitions: tuple[Wanted, ...]


class Fetched(NamedTuple):
    """A partition of the broker's response. `start`..`end` is its record set, empty (start == end) when null or of no
    bytes. `aborted` is the position of the list of aborted transactions (`read_aborted`)."""

    topic: str
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_count: int
    aborted_at: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamAnswer:
    """`error_code` is the top-level one."""

    throttle_ms: int
    error_code: int
    partitions: tuple[Fetched, ...]

    @property
    def is_over_quota(self) -> bool:
        """To a client over its quota a broker answers without a partition (`FetchContext.getThrottledResponse`)."""
        return self.throttle_ms > 0 and not self.error_code and not self.partitions


_REQUEST = Walkers(
    MESSAGES["FetchRequest"],
    ("MaxWaitMs", "MinBytes", f"MaxBytes = {_NO_LIMIT}"),
    Rows("Topics.Partitions", ("Topic", "Partition", "FetchOffset", "PartitionMaxBytes"), Wanted),
)

_ANSWER = Walkers(
    MESSAGES["FetchResponse"],
    ("ThrottleTimeMs", "ErrorCode"),
    Rows(
        "Responses.Partitions",
        (
            "Topic",
            "PartitionIndex",
            "ErrorCode",
            "HighWatermark",
            "LastStableOffset",
            "LogStartOffset",
            "count AbortedTransactions",
            "start AbortedTransactions",
            "start Records",
            "end Records",
        ),
        Fetched,
    ),
)


def magic_of(version: int) -> int:
    """The message format that a client of Fetch `version` (0-3) reads."""
    return 0 if version < 2 else 1


def read_legacy_fetch(frame: Buffer, header: RequestHeader) -> LegacyFetch:
    """A whole request frame of v0-v3. If a partition occurs twice, the last wins, in the first's position
    (FetchRequest.fetchData).

    Raises RemoteProtocolError for damage or more than MAX_ELEMENTS partitions, UnsupportedVersion for a newer version.
    """
    if header.api_version > _NEWEST_LEGACY:
        raise UnsupportedVersion(f"Fetch v{header.api_version} is not an old client's")
    walk = _REQUEST[header.api_version]
    max_wait_ms, min_bytes, max_bytes, rows = walk(frame, header.body, len(frame))
    if len(rows) > MAX_ELEMENTS:
        raise RemoteProtocolError(f"a fetch of {len(rows)} partitions; at most {MAX_ELEMENTS} are taken")
    partitions = tuple({(row.topic, row.partition): row for row in rows}.values())
    return LegacyFetch(max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, partitions=partitions)


def write_upstream_fetch(
    correlation_id: int,
    client_id: str | None,
    question: LegacyFetch,
    *,
    isolation_level: int,
) -> bytes:
    """A whole v10 frame in the order of `partitions`: a topic is repeated if its partitions are not adjacent."""
    header = write_request_header(ApiKey.FETCH, UPSTREAM_VERSION, correlation_id, client_id)
    limits = (question.max_wait_ms, question.min_bytes, question.max_bytes)
    topics = [
        _topic(topic, list(partitions))
        for topic, partitions in groupby(question.partitions, lambda wanted: wanted.topic)
    ]
    body = b"".join(
        (header, _QUESTION.pack(-1, *limits, isolation_level, 0, -1), write_int32(len(topics)), *topics, _END)
    )
    return write_int32(len(body)) + body


def read_upstream_answer(frame: Buffer) -> UpstreamAnswer:
    """A whole v10 response frame. Raises RemoteProtocolError for damage."""
    body = response_body(frame, ApiKey.FETCH, UPSTREAM_VERSION)
    throttle_ms, error_code, partitions = _ANSWER[UPSTREAM_VERSION](frame, body, len(frame))
    return UpstreamAnswer(throttle_ms=throttle_ms, error_code=error_code, partitions=tuple(partitions))


def read_aborted(frame: Buffer, fetched: Fetched) -> list[tuple[int, int]]:
    """The aborted transactions of a partition of the response `frame`: (producer id, first offset), in the broker's
    order."""
    stop = fetched.aborted_at + fetched.aborted_count * _ABORTED.size
    return list(_ABORTED.iter_unpack(memoryview(frame)[fetched.aborted_at : stop]))


def _topic(topic: str, partitions: Sequence[Wanted]) -> bytes:
    rows: Iterable[bytes] = (
        _PARTITION.pack(wanted.partition, -1, wanted.offset, -1, wanted.max_bytes) for wanted in partitions
    )
    return b"".join((write_string(topic), write_int32(len(partitions)), *rows))
