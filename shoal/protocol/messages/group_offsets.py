"""FindCoordinator v1 and OffsetFetch v2: the offsets that a consumer group has committed.

Version notes: FindCoordinator v1 coordinators of transactions, too; v3 flexible; v4 several at once. OffsetFetch v2 all
partitions of a group, and an error code for the whole answer; v6 flexible; v8 several groups; v10 topic ids. Brokers
since 0.11 have v1 and v2.
"""

from typing import Final, NamedTuple

from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.composer import compose
from shoal.protocol.schema.headers import response_body, write_request_header
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Rows, Walkers
from shoal.protocol.wire.types import Buffer, write_int32

__all__ = [
    "CommittedOffset",
    "Coordinator",
    "encode_find_coordinator",
    "encode_offset_fetch",
    "read_coordinator",
    "read_offset_fetch",
]

_FIND: Final = 1
_FETCH: Final = 2
_GROUP: Final = 0


class Coordinator(NamedTuple):
    error_code: int
    node_id: int
    host: str
    port: int


class CommittedOffset(NamedTuple):
    """`offset`: -1: none is committed."""

    topic: str
    partition: int
    offset: int
    error_code: int


_COORDINATOR = Walkers(MESSAGES["FindCoordinatorResponse"], ("ErrorCode", "NodeId", "Host", "Port"))
_OFFSETS = Walkers(
    MESSAGES["OffsetFetchResponse"],
    ("ErrorCode",),
    Rows("Topics.Partitions", ("Name", "PartitionIndex", "CommittedOffset", "ErrorCode"), CommittedOffset),
)


def encode_find_coordinator(client_id: str, group: str) -> bytes:
    """A request frame."""
    body = write_request_header(ApiKey.FIND_COORDINATOR, _FIND, 0, client_id)
    body += compose(MESSAGES["FindCoordinatorRequest"], _FIND, {"Key": group, "KeyType": _GROUP})
    return write_int32(len(body)) + body


def read_coordinator(frame: Buffer) -> Coordinator:
    """The response frame. Raises RemoteProtocolError."""
    found = _COORDINATOR[_FIND](frame, response_body(frame, ApiKey.FIND_COORDINATOR, _FIND), len(frame))
    return Coordinator(*found)


def encode_offset_fetch(client_id: str, group: str) -> bytes:
    """A request frame for all partitions of the group."""
    body = write_request_header(ApiKey.OFFSET_FETCH, _FETCH, 0, client_id)
    body += compose(MESSAGES["OffsetFetchRequest"], _FETCH, {"GroupId": group, "Topics": None})
    return write_int32(len(body)) + body


def read_offset_fetch(frame: Buffer) -> tuple[int, list[CommittedOffset]]:
    """The response frame -> the error code of the whole answer, and the offsets. Raises RemoteProtocolError."""
    walk = _OFFSETS[_FETCH]
    error_code, found = walk(frame, response_body(frame, ApiKey.OFFSET_FETCH, _FETCH), len(frame))
    return error_code, list(found)
