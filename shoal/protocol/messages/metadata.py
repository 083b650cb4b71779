"""Metadata v0-v13: the brokers, the names and ids of topics, and Shoal's own request.

Version notes:
    v0       an empty list of topics means all; in v1+ null does       v2   cluster id        v4   auto-creation flag
    v9       flexible       v10  topic ids (zero id = none)            v12  topics may be requested by id alone
    v8-v10   authorized operations of the cluster                      v13  error code of the whole response
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import response_body, write_request_header
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Rows, Walkers
from shoal.protocol.wire.errors import LocalProtocolError
from shoal.protocol.wire.types import (
    Buffer,
    Topic,
    write_compact_string,
    write_int32,
    write_string,
    write_tagged_fields,
    write_uvarint,
)

__all__ = ["Broker", "MetadataResponse", "encode_metadata_request", "read_metadata_response"]

_COMPACT_FROM: Final = 9
_IDS_FROM: Final = 12
_NO_ID: Final = bytes(16)


class Broker(NamedTuple):
    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponse:
    """`topics` are (name, id): no id below v10; no name when v12+ asked for an id that the broker does not know.

    `partition_counts` are those of `topics`, in the same order (0 where the topic has an error).
    """

    brokers: tuple[Broker, ...]
    cluster_id: str | None
    topics: tuple[tuple[str | None, bytes | None], ...]
    partition_counts: tuple[int, ...]


_RESPONSE = Walkers(
    MESSAGES["MetadataResponse"],
    ("ClusterId = None",),
    Rows("Brokers", ("NodeId", "Host", "Port"), Broker),
    Rows("Topics", ("Name", "TopicId = None", "count Partitions")),
)


def read_metadata_response(frame: Buffer, version: int) -> MetadataResponse:
    """A whole response frame. Raises RemoteProtocolError, or UnsupportedVersion above v13."""
    walk = _RESPONSE[version]
    cluster_id, brokers, topics = walk(frame, response_body(frame, ApiKey.METADATA, version), len(frame))
    return MetadataResponse(
        brokers=tuple(brokers),
        cluster_id=cluster_id,
        topics=tuple((name, None if topic_id == _NO_ID else topic_id) for name, topic_id, _ in topics),
        partition_counts=tuple(count for _, _, count in topics),
    )


def encode_metadata_request(
    version: int, correlation_id: int, client_id: str | None, topics: Sequence[Topic] | None
) -> bytes:
    """A request frame for these names (or ids, from v12); None = all topics. It never creates topics (v4+).

    Raises LocalProtocolError for another version, or an id below v12.
    """
    if version not in MESSAGES["MetadataRequest"].versions:
        raise LocalProtocolError(f"Metadata v{version} is not in the table")
    body = write_request_header(ApiKey.METADATA, version, correlation_id, client_id)
    body += b"".join(_topics(version, topics))
    if version >= 4:
        body += b"\0"  # AllowAutoTopicCreation
    if 8 <= version <= 10:
        body += b"\0"  # IncludeClusterAuthorizedOperations
    if version >= 8:
        body += b"\0"  # IncludeTopicAuthorizedOperations
    if version >= _COMPACT_FROM:
        body += write_tagged_fields()
    return write_int32(len(body)) + body


def _topics(version: int, topics: Sequence[Topic] | None) -> Iterator[bytes]:
    compact = version >= _COMPACT_FROM
    count = -1 if topics is None and version > 0 else len(topics or ())
    yield write_uvarint(count + 1) if compact else write_int32(count)
    for topic in topics or ():
        yield _topic(version, topic)


def _topic(version: int, topic: Topic) -> bytes:
    if isinstance(topic, bytes):
        if version < _IDS_FROM:
            raise LocalProtocolError(f"Metadata v{version} cannot request a topic by its id")
        return topic + write_compact_string(None) + write_tagged_fields()
    topic_id = _NO_ID if version >= 10 else b""
    if version >= _COMPACT_FROM:
        return topic_id + write_compact_string(topic) + write_tagged_fields()
    return write_string(topic)
