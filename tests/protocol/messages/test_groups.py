"""The wire of `shoal groups sync`, with kio as the oracle."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from shoal.protocol.messages.groups import (
    Committed,
    FetchedGroup,
    FoundCoordinator,
    ListedGroup,
    encode_find_coordinators,
    encode_list_groups,
    encode_offset_commit,
    encode_offset_fetches,
    read_coordinators,
    read_groups,
    read_offset_commit,
    read_offset_fetches,
)
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import TopicPartition
from tests.support.kio_messages import decode_request, response_frame

if TYPE_CHECKING:
    from collections.abc import Callable

NO_TIME = timedelta(0)
ORDERS, OTHERS = TopicPartition("orders", 3), TopicPartition("others", 0)
VERSIONS = {
    ApiKey.LIST_GROUPS: 4,
    ApiKey.FIND_COORDINATOR: 4,
    ApiKey.OFFSET_FETCH: 8,
    ApiKey.OFFSET_COMMIT: 9,
}


def asked(key: ApiKey, frame: bytes) -> Any:
    header, request = decode_request(frame, load_request_schema(key, VERSIONS[key]))
    assert header.client_id == "me"
    return request


def entity(api: ApiKey, kind: str, **fields: Any) -> Any:
    return getattr(sys.modules[load_response_schema(api, VERSIONS[api]).__module__], kind)(**fields)


def answer(key: ApiKey, **fields: Any) -> bytes:
    make: Any = load_response_schema(key, VERSIONS[key])
    return response_frame(make(throttle_time=NO_TIME, **fields))


def listed(*rows: tuple[str, str, str], error: ErrorCode = ErrorCode.none) -> bytes:
    key = ApiKey.LIST_GROUPS
    groups = [
        entity(key, "ListedGroup", group_id=name, protocol_type=kind, group_state=state) for name, kind, state in rows
    ]
    return answer(key, error_code=error, groups=tuple(groups))


def found(*names: str, error: ErrorCode = ErrorCode.none) -> bytes:
    key = ApiKey.FIND_COORDINATOR
    where = {"node_id": 3, "host": "b3", "port": 9092, "error_code": error, "error_message": None}
    return answer(key, coordinators=tuple(entity(key, "Coordinator", key=name, **where) for name in names))


def fetched(*names: str, error: ErrorCode = ErrorCode.none, of_partition: ErrorCode = ErrorCode.none) -> bytes:
    key = ApiKey.OFFSET_FETCH
    rows = [
        entity(
            key,
            "OffsetFetchResponsePartitions",
            partition_index=3,
            committed_offset=7,
            committed_leader_epoch=2,
            metadata="state",
            error_code=of_partition,
        ),
        entity(
            key,
            "OffsetFetchResponsePartitions",
            partition_index=4,
            committed_offset=-1,
            metadata=None,
            error_code=ErrorCode.none,
        ),
    ]
    topics = (entity(key, "OffsetFetchResponseTopics", name="orders", partitions=tuple(rows)),)
    groups = [entity(key, "OffsetFetchResponseGroup", group_id=name, topics=topics, error_code=error) for name in names]
    return answer(key, groups=tuple(groups))


def done(*partitions: TopicPartition, error: ErrorCode = ErrorCode.none) -> bytes:
    key = ApiKey.OFFSET_COMMIT
    topics = [
        entity(
            key,
            "OffsetCommitResponseTopic",
            name=topic,
            partitions=(entity(key, "OffsetCommitResponsePartition", partition_index=number, error_code=error),),
        )
        for topic, number in partitions
    ]
    return answer(key, topics=tuple(topics))


# -- requests


def test_all_groups_of_a_broker_are_asked_for() -> None:
    assert asked(ApiKey.LIST_GROUPS, encode_list_groups("me")).states_filter == ()


def test_coordinators_of_groups_are_asked_for() -> None:
    request = asked(ApiKey.FIND_COORDINATOR, encode_find_coordinators("me", ["a", "b"]))
    assert (request.key_type, request.coordinator_keys) == (0, ("a", "b"))


def test_all_partitions_of_groups_are_asked_for() -> None:
    request = asked(ApiKey.OFFSET_FETCH, encode_offset_fetches("me", ["a", "b"]))
    assert [(group.group_id, group.topics) for group in request.groups] == [("a", None), ("b", None)]
    assert not request.require_stable


def test_a_commit_comes_from_outside_of_the_group() -> None:
    wanted = {
        ORDERS: Committed(7, "state"),
        OTHERS: Committed(1 << 40, None),
        ORDERS._replace(partition=4): Committed(0, ""),
    }
    request = asked(ApiKey.OFFSET_COMMIT, encode_offset_commit("me", "a", wanted))
    assert (request.group_id, request.generation_id_or_member_epoch) == ("a", -1)
    assert (request.member_id, request.group_instance_id) == ("", None)
    rows = {
        TopicPartition(topic.name, row.partition_index): Committed(row.committed_offset, row.committed_metadata)
        for topic in request.topics
        for row in topic.partitions
    }
    assert rows == wanted
    assert len(request.topics) == 2
    assert {row.committed_leader_epoch for topic in request.topics for row in topic.partitions} == {-1}


# -- answers


def test_groups_have_their_states() -> None:
    frame = listed(("a", "consumer", "Stable"), ("b", "", "Empty"))
    assert read_groups(frame) == (0, [ListedGroup("a", "consumer", "Stable"), ListedGroup("b", "", "Empty")])
    assert read_groups(listed(error=ErrorCode.coordinator_load_in_progress)) == (14, [])


def test_groups_have_coordinators() -> None:
    assert read_coordinators(found("b", "a"), ["a", "b"]) == [
        FoundCoordinator("b", 3, "b3", 9092, 0),
        FoundCoordinator("a", 3, "b3", 9092, 0),
    ]
    (row,) = read_coordinators(found("a", error=ErrorCode.coordinator_not_available), ["a"])
    assert row.error_code == 15


def test_groups_have_offsets_where_they_have_committed() -> None:
    group = FetchedGroup(0, {ORDERS: Committed(7, "state")})
    assert read_offset_fetches(fetched("a", "b"), ["a", "b"]) == {"a": group, "b": group}
    assert read_offset_fetches(fetched("a", of_partition=ErrorCode.unstable_offset_commit), ["a"])["a"].offsets == {}
    assert read_offset_fetches(fetched("a", error=ErrorCode.not_coordinator), ["a"])["a"].error_code == 16


def test_a_commit_has_an_error_code_for_each_partition() -> None:
    assert read_offset_commit(done(ORDERS, OTHERS), [OTHERS, ORDERS]) == {ORDERS: 0, OTHERS: 0}
    assert read_offset_commit(done(ORDERS, error=ErrorCode.unknown_member_id), [ORDERS]) == {ORDERS: 25}


READERS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "groups": (read_groups, listed(("a", "consumer", "Stable"))),
    "coordinators": (lambda frame: read_coordinators(frame, ["a"]), found("a")),
    "offsets": (lambda frame: read_offset_fetches(frame, ["a"]), fetched("a")),
    "commit": (lambda frame: read_offset_commit(frame, [ORDERS]), done(ORDERS)),
}


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_answer_is_the_brokers_fault(name: str) -> None:
    read, frame = READERS[name]
    read(frame)
    for damaged in (*(frame[:end] for end in range(len(frame))), frame + b"\0"):
        with pytest.raises(RemoteProtocolError):
            read(damaged)


@pytest.mark.parametrize(
    ("name", "frame"),
    [
        ("coordinators", found()),
        ("coordinators", found("b")),
        ("coordinators", found("a", "b")),
        ("coordinators", found("a", "a")),
        ("offsets", fetched()),
        ("offsets", fetched("b")),
        ("offsets", fetched("a", "b")),
        ("offsets", fetched("a", "a")),
        ("commit", done()),
        ("commit", done(OTHERS)),
        ("commit", done(ORDERS, OTHERS)),
        ("commit", done(ORDERS, ORDERS)),
    ],
)
def test_an_answer_about_others_is_the_brokers_fault(name: str, frame: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="others were asked for"):
        READERS[name][0](frame)
