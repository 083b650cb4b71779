from datetime import timedelta
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.messages.produce import (
    PEEK_LIMIT,
    LikeAnswers,
    encode_partition_error,
    encode_produce_request,
    encode_produce_response,
    encode_single_produce_response,
    peek_acks,
    read_produce_request,
    read_produce_response,
)
from shoal.protocol.wire.errors import LocalProtocolError, RemoteProtocolError, UnsupportedVersion
from shoal.protocol.wire.types import Buffer, Topic, write_tagged_fields
from tests.support.kio_messages import (
    Case,
    cases,
    decode_request,
    decode_response,
    entity_type,
    for_any,
    request_frame,
    response_frame,
    topic_key,
)

VIEWS: list[Any] = [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data))]


@for_any("ProduceRequest")
def test_a_request_is_read(case: Case, entity: Any, data: st.DataObject) -> None:
    frame = data.draw(st.sampled_from(VIEWS))(request_frame(entity))
    request = read_produce_request(frame, case.version)
    assert (request.transactional_id, request.acks) == (entity.transactional_id, entity.acks)
    assert timedelta(milliseconds=request.timeout_ms) == entity.timeout
    assert [(each.topic, each.partition, bytes(frame[each.start : each.end])) for each in request.partitions] == [
        (topic_key(topic), each.index, each.records or b"")
        for topic in entity.topic_data
        for each in topic.partition_data
    ]


def topics_of(entity: Any) -> list[tuple[Topic, list[tuple[int, list[Buffer]]]]]:
    return [
        (topic_key(topic), [(each.index, [each.records or b""]) for each in topic.partition_data])
        for topic in entity.topic_data
    ]


@for_any("ProduceRequest")
def test_an_encoded_request_differs_only_in_what_was_given(case: Case, entity: Any, data: st.DataObject) -> None:
    client_id = data.draw(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
    frame = request_frame(entity, client_id=client_id)
    request = read_produce_request(frame, case.version)
    topics = [topic for topic in topics_of(entity) if data.draw(st.booleans())]
    made = b"".join(encode_produce_request(frame, request, 12_345, topics))
    header, decoded = decode_request(made, type(entity))
    assert (header.client_id, header.correlation_id) == (client_id, 12_345)
    assert topics_of(decoded) == topics
    for name in ("transactional_id", "acks", "timeout"):
        assert getattr(decoded, name) == getattr(entity, name)


def test_record_sets_are_not_copied() -> None:
    case = Case("ProduceRequest", 9)
    frame = bytes.fromhex("0000001c 0000 0009 00000001 ffff 00 00 ffff 00000bb8 02 0261 02 00000000 0378 7900 00 00")
    request = read_produce_request(frame, case.version)
    record_set = memoryview(b"x" * 500)
    pieces = encode_produce_request(frame, request, 1, [("a", [(0, [record_set])])])
    assert any(piece is record_set for piece in pieces)


@for_any("ProduceRequest", examples=5)
def test_acks_are_peeked_as_soon_as_they_are_there(case: Case, entity: Any, data: st.DataObject) -> None:
    frame = request_frame(entity)
    answers = [peek_acks(frame[:size]) for size in range(min(len(frame), 400) + 1)]
    known = next(size for size, acks in enumerate(answers) if acks is not None)
    assert answers == [None] * known + [entity.acks] * (len(answers) - known)
    assert frame[known - 2 : known] == entity.acks.to_bytes(2, signed=True)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_acks_of_the_versions_that_are_gone(version: int) -> None:
    frame = bytes(4) + b"\0\0" + version.to_bytes(2) + bytes(4) + b"\0\2me" + b"\0\1" + bytes(4)
    assert peek_acks(frame[:17]) is None
    assert peek_acks(frame[:18]) == 1


def test_acks_that_never_come() -> None:
    head = bytes(4) + b"\0\0\0\x09" + bytes(4) + b"\xff\xff" + b"\0" + b"\xff\xff\xff\x7f"
    assert peek_acks(head + bytes(100)) is None
    with pytest.raises(RemoteProtocolError):
        peek_acks(head + bytes(PEEK_LIMIT))
    with pytest.raises(UnsupportedVersion):
        peek_acks(bytes(4) + b"\0\0\0\x0e" + bytes(4) + b"\xff\xff\0")


@for_any("ProduceResponse")
def test_a_response_is_read(case: Case, entity: Any, data: st.DataObject) -> None:
    frame = data.draw(st.sampled_from(VIEWS))(response_frame(entity))
    response = read_produce_response(frame, case.version)
    assert timedelta(milliseconds=response.throttle_ms) == entity.throttle_time
    assert (response.node_endpoints is not None) == bool(getattr(entity, "node_endpoints", ()))
    assert [partition[:4] for partition in response.partitions] == [
        (topic_key(topic), each.index, each.error_code, each.base_offset)
        for topic in entity.responses
        for each in topic.partition_responses
    ]
    for each in response.partitions:
        assert bytes(frame[each.base_offset_at :][:8]) == each.base_offset.to_bytes(8, signed=True)


@for_any("ProduceResponse")
def test_like_answers_differ_only_in_offsets_and_id(case: Case, entity: Any, data: st.DataObject) -> None:
    frame = response_frame(entity)
    response = read_produce_response(frame, case.version)
    like, other = LikeAnswers(frame, [produced.base_offset_at for produced in response.partitions]), bytearray(frame)
    offsets = [data.draw(st.integers(-1, 2**63 - 1)) for _ in response.partitions]
    for each, offset in zip(response.partitions, offsets, strict=True):
        other[each.base_offset_at : each.base_offset_at + 8] = offset.to_bytes(8, signed=True)
    assert like.base_offsets(other) == offsets
    assert like.size == len(other)
    assert [each.base_offset for each in read_produce_response(other, case.version).partitions] == offsets
    other[4:8] = data.draw(st.binary(min_size=4, max_size=4))
    assert like.base_offsets(other) == offsets
    ats = [each.base_offset_at for each in response.partitions]
    free = {at for at in range(len(frame)) if not 4 <= at < 8 and not any(begin <= at < begin + 8 for begin in ats)}
    at = data.draw(st.sampled_from(sorted(free)))
    other[at] ^= data.draw(st.integers(1, 255))
    assert like.base_offsets(other) is None
    assert like.base_offsets(frame + b"\0") is None


@for_any("ProduceResponse")
def test_an_answer_made_of_its_own_parts_is_the_same(case: Case, entity: Any, data: st.DataObject) -> None:
    frame = response_frame(entity, correlation_id=99)
    response = read_produce_response(frame, case.version)
    parts = iter(response.partitions)
    topics: list[tuple[Topic, list[Buffer]]] = []
    for topic in entity.responses:
        own = [next(parts) for _ in topic.partition_responses]
        topics.append((topic_key(topic), [frame[each.start : each.end] for each in own]))
    start, end = response.node_endpoints or (0, 0)
    made = encode_produce_response(
        case.version, 99, topics, throttle_ms=response.throttle_ms, node_endpoints=frame[start:end]
    )
    assert b"".join(made) == frame


@pytest.mark.parametrize("case", list(cases("ProduceResponse")), ids=lambda case: f"v{case.version}")
def test_a_partition_error_is_what_a_client_reads(case: Case) -> None:
    topic: Topic = bytes(range(16)) if case.version >= 13 else "a topic"
    errors = [encode_partition_error(case.version, 4, 87, "why"), encode_partition_error(case.version, 5, 6)]
    made = b"".join(encode_produce_response(case.version, 3, [(topic, errors)], throttle_ms=250))
    decoded = decode_response(made, entity_type(case))
    assert decoded.throttle_time.total_seconds() == 0.25
    assert [topic_key(each) for each in decoded.responses] == [topic]
    partitions = decoded.responses[0].partition_responses
    assert [(each.index, each.error_code, each.base_offset) for each in partitions] == [(4, 87, -1), (5, 6, -1)]
    if case.version >= 8:
        assert [each.error_message for each in partitions] == ["why", None]
        assert all(each.record_errors == () for each in partitions)


def future_partition(base_offset: int) -> bytes:
    """A partition response of v13 with an unknown error code and an unknown tag."""
    fields = (1).to_bytes(4) + (999).to_bytes(2) + base_offset.to_bytes(8) + bytes(16) + b"\1\0"
    return fields + write_tagged_fields([(44, [b"new"])])


@given(st.lists(st.tuples(st.binary(min_size=16, max_size=16), st.integers(0, 1 << 62)), max_size=5))
def test_unknown_tags_and_errors_keep_their_bytes(answers: list[tuple[bytes, int]]) -> None:
    topics = [
        (topic, [future_partition(offset) for _, offset in group])
        for topic, group in groupby(answers, lambda each: each[0])
    ]
    frame = b"".join(encode_produce_response(13, 1, topics, throttle_ms=0))
    partitions = read_produce_response(frame, 13).partitions
    assert [(each.topic, each.base_offset, each.error_code) for each in partitions] == [
        (*each, 999) for each in answers
    ]
    assert [frame[each.start : each.end] for each in partitions] == [future_partition(offset) for _, offset in answers]


def test_topics_are_named_as_the_version_wants() -> None:
    with pytest.raises(LocalProtocolError, match="by id"):
        encode_produce_response(13, 1, [("name", [])], throttle_ms=0)
    with pytest.raises(LocalProtocolError, match="by name"):
        encode_produce_response(12, 1, [(bytes(16), [])], throttle_ms=0)


@pytest.mark.parametrize("version", range(3, 14))
@given(correlation_id=st.integers(0, 2**31 - 1), throttle_ms=st.integers(0, 2**31 - 1), error=st.integers(-1, 120))
def test_an_answer_for_one_partition_is_the_same(
    version: int, correlation_id: int, throttle_ms: int, error: int
) -> None:
    topic: Topic = bytes(range(16)) if version >= 13 else "topic"
    part = encode_partition_error(version, 4, error)
    made = encode_single_produce_response(version, correlation_id, topic, part, throttle_ms)
    assert made == b"".join(
        encode_produce_response(version, correlation_id, [(topic, [part])], throttle_ms=throttle_ms)
    )
