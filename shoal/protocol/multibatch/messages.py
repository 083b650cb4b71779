"""The requests of a probe, and the fields it reads from the responses.

Version notes: the newest version that both sides support, with topics by name: Produce to v12, Fetch to v12.
ApiVersions uses v0, which every broker answers; an UNSUPPORTED_VERSION response has its body, too (KIP-511).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from shoal.protocol.messages.fetch import read_fetch_response
from shoal.protocol.messages.metadata import Broker
from shoal.protocol.messages.produce import read_produce_response
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.composer import Values
from shoal.protocol.schema.frames import request_frame
from shoal.protocol.schema.headers import response_body
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Rows, Walkers
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import Buffer

__all__ = [
    "CLIENT_ID",
    "VERSIONS",
    "ApiRange",
    "Metadata",
    "Partition",
    "api_versions_request",
    "common_version",
    "create_topic",
    "created",
    "delete_topics",
    "deleted",
    "end_offset_request",
    "fetch",
    "fetched",
    "init_producer",
    "metadata",
    "metadata_request",
    "offset",
    "produce",
    "produced",
    "producer",
    "read_api_versions",
]

CLIENT_ID: Final = "shoal-probe"

VERSIONS: Final[Mapping[int, tuple[int, int]]] = {
    ApiKey.PRODUCE: (3, 12),
    ApiKey.FETCH: (4, 12),
    ApiKey.LIST_OFFSETS: (1, 11),
    ApiKey.METADATA: (2, 13),
    ApiKey.API_VERSIONS: (0, 0),
    ApiKey.CREATE_TOPICS: (0, 7),
    ApiKey.DELETE_TOPICS: (0, 6),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
}
"""The oldest and newest version that a probe uses, by API key."""

_LATEST = -1  # ListOffsets: the end of what consumers can read
_FETCH_BYTES = 1 << 18  # enough for topics with other writers; our own records are some 20 kB
_FETCH_WAIT_MS = 100
_CREATE_TIMEOUT_MS = 5_000
_PRODUCE_TIMEOUT_MS = 5_000


class ApiRange(NamedTuple):
    api_key: int
    low: int
    high: int


class Partition(NamedTuple):
    error_code: int
    topic: str | None
    partition: int
    leader: int


class Metadata(NamedTuple):
    """`topics` are (name, error code)."""

    cluster_id: str | None
    brokers: tuple[Broker, ...]
    topics: tuple[tuple[str | None, int], ...]
    partitions: tuple[Partition, ...]


def common_version(key: int, ranges: Mapping[int, ApiRange]) -> int | None:
    """The newest version of an API that both the broker and the probe support."""
    low, high = VERSIONS[key]
    theirs = ranges.get(key)
    if theirs is None or theirs.high < low or theirs.low > high:
        return None
    return min(high, theirs.high)


def _walk(walkers: Walkers, key: int, version: int, frame: Buffer) -> tuple[Any, ...]:
    return walkers[version](frame, response_body(frame, key, version), len(frame))


# -- ApiVersions, Metadata


_API_VERSIONS = Walkers(
    MESSAGES["ApiVersionsResponse"], ("ErrorCode",), Rows("ApiKeys", ("ApiKey", "MinVersion", "MaxVersion"), ApiRange)
)
_METADATA = Walkers(
    MESSAGES["MetadataResponse"],
    ("ClusterId",),
    Rows("Brokers", ("NodeId", "Host", "Port"), Broker),
    Rows("Topics", ("Name", "ErrorCode")),
    Rows("Topics.Partitions", ("ErrorCode", "Name", "PartitionIndex", "LeaderId"), Partition),
    to_end=False,  # librdkafka's mock cluster, which loses data, sends a trailing byte
)


def api_versions_request(correlation_id: int) -> bytes:
    return request_frame(ApiKey.API_VERSIONS, 0, correlation_id, CLIENT_ID, {})


def read_api_versions(frame: Buffer) -> tuple[ApiRange, ...]:
    """A v0 response, ascending. Raises RemoteProtocolError for any error code: v0 has no valid one."""
    error_code, ranges = _walk(_API_VERSIONS, ApiKey.API_VERSIONS, 0, frame)
    if error_code:
        raise RemoteProtocolError(f"error {error_code} in the answer to ApiVersions")
    return tuple(sorted(ranges))


def metadata_request(topics: Sequence[str]) -> Values:
    return {"Topics": [{"Name": topic} for topic in topics]}


def metadata(frame: Buffer, version: int) -> Metadata:
    cluster_id, brokers, topics, partitions = _walk(_METADATA, ApiKey.METADATA, version, frame)
    return Metadata(cluster_id, tuple(brokers), tuple(topics), tuple(partitions))


# -- CreateTopics, DeleteTopics


_CREATED = Walkers(MESSAGES["CreateTopicsResponse"], (), Rows("Topics", ("Name", "ErrorCode", "ErrorMessage = None")))
_DELETED = Walkers(MESSAGES["DeleteTopicsResponse"], (), Rows("Responses", ("Name", "ErrorCode")))


def create_topic(topic: str, node_id: int) -> Values:
    """One partition, with that broker as its only replica."""
    replicas = [{"PartitionIndex": 0, "BrokerIds": [node_id]}]
    new_topic = {"Name": topic, "NumPartitions": -1, "ReplicationFactor": -1, "Assignments": replicas}
    return {"Topics": [new_topic], "timeoutMs": _CREATE_TIMEOUT_MS}


def created(frame: Buffer, version: int) -> tuple[int, str]:
    """Error code and message."""
    (topics,) = _walk(_CREATED, ApiKey.CREATE_TOPICS, version, frame)
    for _, error_code, message in topics:
        return error_code, message or ""
    raise RemoteProtocolError("the answer to CreateTopics contains no topic")


def delete_topics(topics: Sequence[str]) -> Values:
    return {
        "TopicNames": topics,
        "Topics": [{"Name": topic} for topic in topics],
        "TimeoutMs": _CREATE_TIMEOUT_MS,
    }


def deleted(frame: Buffer, version: int) -> dict[str, int]:
    """Error code by topic."""
    (topics,) = _walk(_DELETED, ApiKey.DELETE_TOPICS, version, frame)
    return dict(topics)


# -- InitProducerId, Produce, ListOffsets, Fetch


_PRODUCER = Walkers(MESSAGES["InitProducerIdResponse"], ("ErrorCode", "ProducerId", "ProducerEpoch"))
_OFFSETS = Walkers(
    MESSAGES["ListOffsetsResponse"], (), Rows("Topics.Partitions", ("Name", "PartitionIndex", "ErrorCode", "Offset"))
)


def init_producer() -> Values:
    """For a producer without transactions."""
    return {"TransactionTimeoutMs": _PRODUCE_TIMEOUT_MS, "ProducerId": -1, "ProducerEpoch": -1}


def producer(frame: Buffer, version: int) -> tuple[int, int, int]:
    """Error code, producer id and epoch."""
    error_code, producer_id, epoch = _walk(_PRODUCER, ApiKey.INIT_PRODUCER_ID, version, frame)
    return error_code, producer_id, epoch


def produce(topic: str, partition: int, records: bytes, acks: int) -> Values:
    partition_data = {"Index": partition, "Records": records}
    return {
        "TransactionalId": None,
        "Acks": acks,
        "TimeoutMs": _PRODUCE_TIMEOUT_MS,
        "TopicData": [{"Name": topic, "PartitionData": [partition_data]}],
    }


def produced(frame: Buffer, version: int, topic: str, partition: int) -> tuple[int, int]:
    """Error code and base offset."""
    for answer in read_produce_response(frame, version).partitions:
        if (answer.topic, answer.partition) == (topic, partition):
            return answer.error_code, answer.base_offset
    raise RemoteProtocolError(f"the answer to Produce does not contain {topic}-{partition}")


def end_offset_request(topic: str, partition: int) -> Values:
    wanted = {"PartitionIndex": partition, "CurrentLeaderEpoch": -1, "Timestamp": _LATEST}
    return {
        "ReplicaId": -1,
        "Topics": [{"Name": topic, "Partitions": [wanted]}],
        "TimeoutMs": _PRODUCE_TIMEOUT_MS,
    }


def offset(frame: Buffer, version: int, topic: str, partition: int) -> tuple[int, int]:
    """Error code and the offset of the next record."""
    (partitions,) = _walk(_OFFSETS, ApiKey.LIST_OFFSETS, version, frame)
    for name, index, error_code, end in partitions:
        if (name, index) == (topic, partition):
            return error_code, end
    raise RemoteProtocolError(f"the answer to ListOffsets does not contain {topic}-{partition}")


def fetch(topic: str, partition: int, offset: int) -> Values:
    wanted = {
        "Partition": partition,
        "CurrentLeaderEpoch": -1,
        "FetchOffset": offset,
        "LastFetchedEpoch": -1,
        "LogStartOffset": -1,
        "PartitionMaxBytes": _FETCH_BYTES,
    }
    return {
        "ReplicaId": -1,
        "MaxWaitMs": _FETCH_WAIT_MS,
        "MinBytes": 1,
        "MaxBytes": _FETCH_BYTES,
        "SessionEpoch": -1,
        "Topics": [{"Topic": topic, "Partitions": [wanted]}],
    }


def fetched(frame: Buffer, version: int, topic: str, partition: int) -> tuple[int, int, int]:
    """Error code, and the record set's start and end in the frame. To a client over its quota a broker answers without
    an error, and without a partition (`FetchContext.getThrottledResponse`).
    """
    answer = read_fetch_response(frame, version)
    if answer.error_code or not answer.partitions:
        return answer.error_code or ErrorCode.THROTTLING_QUOTA_EXCEEDED, 0, 0
    for row in answer.partitions:
        if (row.topic, row.partition) == (topic, partition):
            return row.error_code, row.start, row.end
    raise RemoteProtocolError(f"the answer to Fetch does not contain {topic}-{partition}")
