"""Many consumer groups at once: where they are, what they have committed, and a commit from outside of a group.

Version notes: ListGroups v4 has the states of groups (v5: their types; the protocol type tells share groups apart).
FindCoordinator v4 and OffsetFetch v8 have several groups in a request. OffsetCommit v9 is the last one with names of
topics, and the first one for groups of the new protocol (KIP-848). Brokers since 3.0 have those that only read, and
brokers that can keep mirror topics (3.9) have all.

A commit without a member has generation -1 and an empty member id. The coordinator refuses it if the group has members
(UNKNOWN_MEMBER_ID and others), whichever protocol they use.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.frames import request_frame
from shoal.protocol.schema.headers import response_body
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Rows, Walkers
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import Buffer, TopicPartition

__all__ = [
    "Committed",
    "FetchedGroup",
    "FoundCoordinator",
    "ListedGroup",
    "encode_find_coordinators",
    "encode_list_groups",
    "encode_offset_commit",
    "encode_offset_fetches",
    "read_coordinators",
    "read_groups",
    "read_offset_commit",
    "read_offset_fetches",
]

_LIST: Final = 4
_FIND: Final = 4
_FETCH: Final = 8
_COMMIT: Final = 9
_GROUP: Final = 0  # FindCoordinatorRequest.CoordinatorType
_NO_GENERATION: Final = -1
_NO_EPOCH: Final = -1


class ListedGroup(NamedTuple):
    """`protocol_type`: "consumer", "connect", "share" and others; empty if the group never had a member."""

    name: str
    protocol_type: str
    state: str


class FoundCoordinator(NamedTuple):
    group: str
    node_id: int
    host: str
    port: int
    error_code: int


class Committed(NamedTuple):
    offset: int
    metadata: str | None


class FetchedGroup(NamedTuple):
    """`offsets`: only partitions with a committed offset, and without an error of their own."""

    error_code: int
    offsets: Mapping[TopicPartition, Committed]


_GROUPS = Walkers(
    MESSAGES["ListGroupsResponse"],
    ("ErrorCode",),
    Rows("Groups", ("GroupId", "ProtocolType", "GroupState"), ListedGroup),
)
_COORDINATORS = Walkers(
    MESSAGES["FindCoordinatorResponse"],
    (),
    Rows("Coordinators", ("Key", "NodeId", "Host", "Port", "ErrorCode"), FoundCoordinator),
)
_FETCHED = Walkers(
    MESSAGES["OffsetFetchResponse"],
    (),
    Rows("Groups", ("GroupId", "ErrorCode")),
    Rows(
        "Groups.Topics.Partitions",
        ("GroupId", "Name", "PartitionIndex", "CommittedOffset", "Metadata", "ErrorCode"),
    ),
)
_DONE = Walkers(
    MESSAGES["OffsetCommitResponse"], (), Rows("Topics.Partitions", ("Name", "PartitionIndex", "ErrorCode"))
)


def encode_list_groups(client_id: str) -> bytes:
    """A request frame: the groups that a broker coordinates."""
    return request_frame(ApiKey.LIST_GROUPS, _LIST, 0, client_id, {})


def read_groups(frame: Buffer) -> tuple[int, list[ListedGroup]]:
    """A whole answer frame: error code and groups. Raises RemoteProtocolError."""
    error_code, groups = _GROUPS[_LIST](frame, response_body(frame, ApiKey.LIST_GROUPS, _LIST), len(frame))
    return error_code, list(groups)


def encode_find_coordinators(client_id: str, groups: Sequence[str]) -> bytes:
    """A request frame; no group may be in it twice."""
    return request_frame(ApiKey.FIND_COORDINATOR, _FIND, 0, client_id, {"KeyType": _GROUP, "CoordinatorKeys": groups})


def read_coordinators(frame: Buffer, asked: Collection[str]) -> list[FoundCoordinator]:
    """A whole answer frame: each group of `asked` once. Raises RemoteProtocolError."""
    (found,) = _COORDINATORS[_FIND](frame, response_body(frame, ApiKey.FIND_COORDINATOR, _FIND), len(frame))
    _require_asked([row.group for row in found], asked, "groups")
    return list(found)


def encode_offset_fetches(client_id: str, groups: Iterable[str]) -> bytes:
    """A request frame for all partitions of groups with the same coordinator; no group may be in it twice.

    Offsets in a transaction that is not committed yet are left out.
    """
    asked = [{"GroupId": group, "Topics": None} for group in groups]
    return request_frame(ApiKey.OFFSET_FETCH, _FETCH, 0, client_id, {"Groups": asked, "RequireStable": False})


def read_offset_fetches(frame: Buffer, asked: Collection[str]) -> dict[str, FetchedGroup]:
    """A whole answer frame: each group of `asked` once. Raises RemoteProtocolError."""
    groups, rows = _FETCHED[_FETCH](frame, response_body(frame, ApiKey.OFFSET_FETCH, _FETCH), len(frame))
    _require_asked([name for name, _ in groups], asked, "groups")
    offsets: dict[str, dict[TopicPartition, Committed]] = {name: {} for name in asked}
    for name, topic, partition, offset, metadata, error_code in rows:
        if offset >= 0 and not error_code:
            offsets[name][TopicPartition(topic, partition)] = Committed(offset, metadata)
    return {name: FetchedGroup(error_code, offsets[name]) for name, error_code in groups}


def encode_offset_commit(client_id: str, group: str, offsets: Mapping[TopicPartition, Committed]) -> bytes:
    """A request frame from outside of the group, without leader epochs: they would be those of another cluster."""
    topics: dict[str, list[Mapping[str, object]]] = {}
    for (topic, partition), committed in offsets.items():
        row = {
            "PartitionIndex": partition,
            "CommittedOffset": committed.offset,
            "CommittedLeaderEpoch": _NO_EPOCH,
            "CommittedMetadata": committed.metadata,
        }
        topics.setdefault(topic, []).append(row)
    values = {
        "GroupId": group,
        "GenerationIdOrMemberEpoch": _NO_GENERATION,
        "MemberId": "",
        "GroupInstanceId": None,
        "Topics": [{"Name": topic, "Partitions": rows} for topic, rows in topics.items()],
    }
    return request_frame(ApiKey.OFFSET_COMMIT, _COMMIT, 0, client_id, values)


def read_offset_commit(frame: Buffer, asked: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """A whole answer frame: the error code of each partition of `asked`. Raises RemoteProtocolError."""
    (rows,) = _DONE[_COMMIT](frame, response_body(frame, ApiKey.OFFSET_COMMIT, _COMMIT), len(frame))
    found = [TopicPartition(topic, partition) for topic, partition, _ in rows]
    _require_asked(found, asked, "partitions")
    return {partition: row[2] for partition, row in zip(found, rows, strict=True)}


def _require_asked(found: Sequence[object], asked: Collection[object], what: str) -> None:
    """Another group's answer would be used for the one that was asked for."""
    if len(found) != len(asked) or set(found) != set(asked):
        raise RemoteProtocolError(f"an answer for {len(found)} {what}, {len(asked)} others were asked for")
