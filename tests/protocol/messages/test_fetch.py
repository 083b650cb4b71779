from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.messages.fetch import (
    OWN_VERSION,
    FetchedPartition,
    encode_fetch_request,
    limit_fetch,
    read_fetch_request,
    read_fetch_response,
    replace_record_sets,
)
from shoal.protocol.wire.errors import LocalProtocolError, UnsupportedVersion
from shoal.protocol.wire.types import Buffer, write_tagged_fields
from tests.support.kio_messages import Case, decode_response, encode, for_any, request_frame, response_frame, topic_key

VIEWS: list[Any] = [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data))]


@for_any("FetchRequest")
def test_a_request_is_read(case: Case, entity: Any, data: st.DataObject) -> None:
    frame = data.draw(st.sampled_from(VIEWS))(request_frame(entity))
    request = read_fetch_request(frame, case.version)
    assert request.max_bytes == entity.max_bytes == int.from_bytes(frame[request.max_bytes_at :][:4], signed=True)
    assert request.isolation_level == entity.isolation_level
    assert request.session_id == getattr(entity, "session_id", 0)
    assert request.session_epoch == getattr(entity, "session_epoch", -1)
    assert [partition[:4] for partition in request.partitions] == [
        (topic_key(topic), partition.partition, partition.fetch_offset, partition.partition_max_bytes)
        for topic in entity.topics
        for partition in topic.partitions
    ]
    assert list(request.forgotten) == [
        (topic_key(topic), index)
        for topic in getattr(entity, "forgotten_topics_data", ())
        for index in topic.partitions
    ]


@for_any("FetchRequest")
def test_limits_are_lowered_and_never_raised(case: Case, entity: Any, data: st.DataObject) -> None:
    limits = st.integers(0, (1 << 31) - 1)
    whole, each = data.draw(limits), data.draw(limits)
    frame = bytearray(request_frame(entity))
    limit_fetch(frame, read_fetch_request(frame, case.version), max_bytes=whole, partition_max_bytes=each)
    expected = replace(
        entity,
        max_bytes=min(entity.max_bytes, whole),
        topics=tuple(
            replace(
                topic,
                partitions=tuple(
                    replace(partition, partition_max_bytes=min(partition.partition_max_bytes, each))
                    for partition in topic.partitions
                ),
            )
            for topic in entity.topics
        ),
    )
    assert bytes(frame) == request_frame(expected)


@for_any("FetchResponse")
def test_a_response_is_read(case: Case, entity: Any, data: st.DataObject) -> None:
    frame = data.draw(st.sampled_from(VIEWS))(response_frame(entity))
    response = read_fetch_response(frame, case.version)
    assert response.error_code == (entity.error_code if case.version >= 7 else 0)
    assert response.session_id == getattr(entity, "session_id", 0)
    endpoints = getattr(entity, "node_endpoints", ())
    assert (response.node_endpoints is not None) == bool(endpoints)
    if response.node_endpoints is not None:
        start, end = response.node_endpoints
        assert frame[start:end] == bytes([len(endpoints) + 1]) + b"".join(map(encode, endpoints))
    assert [(*partition[:7], bytes(frame[partition.start : partition.end])) for partition in response.partitions] == [
        (
            topic_key(topic),
            partition.partition_index,
            partition.error_code,
            partition.high_watermark,
            partition.last_stable_offset,
            getattr(partition, "log_start_offset", -1),
            len(partition.aborted_transactions or ()),
            partition.records or b"",
        )
        for topic in entity.responses
        for partition in topic.partitions
    ]
    assert list(response.aborted) == [
        (topic_key(topic), partition.partition_index, aborted.producer_id, aborted.first_offset)
        for topic in entity.responses
        for partition in topic.partitions
        for aborted in partition.aborted_transactions or ()
    ]


@for_any("FetchResponse")
def test_replaced_record_sets_are_what_a_client_reads(case: Case, entity: Any, data: st.DataObject) -> None:
    frame = response_frame(entity)
    partitions = read_fetch_response(frame, case.version).partitions
    pieces = st.lists(st.binary(max_size=300), max_size=3)
    new = data.draw(st.lists(st.none() | pieces, min_size=len(partitions), max_size=len(partitions)))
    edits: list[tuple[FetchedPartition, list[Buffer]]] = [
        (partition, list(piece)) for partition, piece in zip(partitions, new, strict=True) if piece is not None
    ]
    made = b"".join(replace_record_sets(frame, case.version, data.draw(st.permutations(edits))))
    left = iter(new)
    expected = replace(
        entity,
        responses=tuple(
            replace(topic, partitions=tuple(with_records(partition, next(left)) for partition in topic.partitions))
            for topic in entity.responses
        ),
    )
    assert decode_response(made, type(entity)) == expected
    assert made == response_frame(expected)


def with_records(partition: Any, pieces: list[bytes] | None) -> Any:
    return partition if pieces is None else replace(partition, records=b"".join(pieces))


TOPIC = bytes(range(16))
FUTURE = write_tagged_fields([(0, [bytes(12)]), (55, [b"of tomorrow"])])
UNKNOWN = 999


def future_response(record_set: bytes) -> bytes:
    """A future Fetch v17: unknown tagged fields everywhere, error codes that Kafka does not have."""
    partition = (3).to_bytes(4) + UNKNOWN.to_bytes(2) + (8).to_bytes(8) + bytes(16) + b"\1" + bytes(4)
    topic = TOPIC + b"\2" + partition + bytes([len(record_set) + 1]) + record_set + FUTURE + FUTURE
    tags = write_tagged_fields([(5, [b"??"])])
    payload = (7).to_bytes(4) + FUTURE + bytes(4) + UNKNOWN.to_bytes(2) + bytes(4) + b"\2" + topic + tags
    return len(payload).to_bytes(4) + payload


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_unknown_tags_and_errors_keep_their_bytes(old: bytes, new: bytes) -> None:
    frame = future_response(old)
    response = read_fetch_response(frame, 17)
    (partition,) = response.partitions
    assert (response.error_code, partition.error_code, partition.topic) == (UNKNOWN, UNKNOWN, TOPIC)
    assert b"".join(replace_record_sets(frame, 17, [(partition, [new])])) == future_response(new)
    assert b"".join(replace_record_sets(frame, 17, [])) == frame


def test_record_sets_are_not_copied() -> None:
    frame = bytearray(future_response(b"abc"))
    record_set = memoryview(b"x" * 50)
    pieces = replace_record_sets(frame, 17, [(read_fetch_response(frame, 17).partitions[0], [record_set])])
    assert any(piece is record_set for piece in pieces)
    assert all(piece.obj is frame for piece in pieces if isinstance(piece, memoryview) and piece is not record_set)


def test_a_partition_cannot_be_replaced_twice() -> None:
    frame = future_response(b"abc")
    partition = read_fetch_response(frame, 17).partitions[0]
    with pytest.raises(LocalProtocolError, match="overlap"):
        replace_record_sets(frame, 17, [(partition, [b"a"]), (partition, [b"b"])])


@pytest.mark.parametrize("version", [3, 19])
def test_other_versions_are_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersion):
        read_fetch_response(future_response(b""), version)
    with pytest.raises(UnsupportedVersion):
        read_fetch_request(future_response(b""), version)


def test_a_request_of_shoals_own() -> None:
    frame = encode_fetch_request("me", "orders", 2, 1 << 40, max_bytes=1000)
    request = read_fetch_request(frame, OWN_VERSION)
    (asked,) = request.partitions
    assert asked[:4] == ("orders", 2, 1 << 40, 1000)
    assert (request.max_bytes, request.isolation_level) == (1000, 0)
