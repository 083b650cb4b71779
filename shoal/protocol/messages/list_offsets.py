"""ListOffsets v5: Shoal's own questions about the ends of partitions.

Version notes: v2 isolation level; v4 leader epoch; v5 the answer is OFFSET_NOT_AVAILABLE while a new leader's high
watermark may be behind one that consumers have seen; v6 flexible. Brokers since 2.2 have v5.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.frames import request_frame
from shoal.protocol.schema.headers import response_body
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Rows, Walkers
from shoal.protocol.wire.types import Buffer, TopicPartition

__all__ = [
    "EARLIEST",
    "LATEST",
    "ListedOffset",
    "encode_list_offsets",
    "read_list_offsets",
]

EARLIEST: Final = -2
LATEST: Final = -1
"""With read_committed, the last stable offset."""

_VERSION: Final = 5
_ANY_EPOCH: Final = -1
_CONSUMER: Final = -1


class ListedOffset(NamedTuple):
    topic: str
    partition: int
    error_code: int
    offset: int


_RESPONSE = Walkers(
    MESSAGES["ListOffsetsResponse"],
    (),
    Rows("Topics.Partitions", ("Name", "PartitionIndex", "ErrorCode", "Offset"), ListedOffset),
)


def encode_list_offsets(
    client_id: str, partitions: Iterable[TopicPartition], *, timestamp: int, isolation_level: int
) -> bytes:
    """A request frame; no partition may be in it twice."""
    topics: dict[str, list[Mapping[str, int]]] = {}
    for topic, partition in partitions:
        asked = {"PartitionIndex": partition, "CurrentLeaderEpoch": _ANY_EPOCH, "Timestamp": timestamp}
        topics.setdefault(topic, []).append(asked)
    values = {
        "ReplicaId": _CONSUMER,
        "IsolationLevel": isolation_level,
        "Topics": [{"Name": topic, "Partitions": asked} for topic, asked in topics.items()],
    }
    return request_frame(ApiKey.LIST_OFFSETS, _VERSION, 0, client_id, values)


def read_list_offsets(frame: Buffer) -> list[ListedOffset]:
    """The response frame. Raises RemoteProtocolError."""
    (found,) = _RESPONSE[_VERSION](frame, response_body(frame, ApiKey.LIST_OFFSETS, _VERSION), len(frame))
    return list(found)
