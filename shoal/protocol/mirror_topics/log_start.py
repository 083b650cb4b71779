"""DeleteRecords v2: the copy's log begins where the source's does. Needs DELETE on the topic (KIP-107)."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.frames import request_frame
from shoal.protocol.schema.headers import response_body
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Rows, Walkers
from shoal.protocol.wire.types import Buffer, TopicPartition

__all__ = ["DeletedRecords", "encode_delete_records", "read_deleted_records"]

_VERSION: Final = 2  # since Kafka 2.0
_TIMEOUT_MS: Final = 5_000


class DeletedRecords(NamedTuple):
    """`log_start` is where the log begins now."""

    partition: TopicPartition
    log_start: int
    error_code: int


_RESPONSE = Walkers(
    MESSAGES["DeleteRecordsResponse"],
    (),
    Rows("Topics.Partitions", ("Name", "PartitionIndex", "LowWatermark", "ErrorCode")),
)


def encode_delete_records(client_id: str, before: Mapping[TopicPartition, int]) -> bytes:
    """One request frame for partitions with the same leader; `before`: the new start of each log."""
    topics: dict[str, list[Mapping[str, Any]]] = {}
    for (topic, partition), offset in before.items():
        topics.setdefault(topic, []).append({"PartitionIndex": partition, "Offset": offset})
    values = {
        "Topics": [{"Name": topic, "Partitions": rows} for topic, rows in topics.items()],
        "TimeoutMs": _TIMEOUT_MS,
    }
    return request_frame(ApiKey.DELETE_RECORDS, _VERSION, 0, client_id, values)


def read_deleted_records(frame: Buffer) -> list[DeletedRecords]:
    """A whole answer frame. Raises RemoteProtocolError."""
    (rows,) = _RESPONSE[_VERSION](frame, response_body(frame, ApiKey.DELETE_RECORDS, _VERSION), len(frame))
    return [DeletedRecords(TopicPartition(name, index), start, code) for name, index, start, code in rows]
