import struct
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.legacy.fetch.fetch import (
    UPSTREAM_VERSION,
    LegacyFetch,
    Wanted,
    magic_of,
    read_aborted,
    read_legacy_fetch,
    read_upstream_answer,
    write_upstream_fetch,
)
from shoal.protocol.legacy.fetch.heads import Promised, write_heads
from shoal.protocol.schema.decomposer import MAX_ELEMENTS
from shoal.protocol.schema.headers import read_request_header
from shoal.protocol.wire.errors import LocalProtocolError, RemoteProtocolError, UnsupportedVersion
from tests.support.kafka_python import FetchRequest, FetchResponse
from tests.support.kio_messages import Case, decode_request, entities, entity_type, response_frame

OLD_VERSIONS = range(4)
NO_LIMIT = 2**31 - 1
names = st.sampled_from(["a", "b", "a-longer.name"])
int16s, int32s, int64s = (st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (16, 32, 64))
wanted = st.builds(Wanted, names, int32s, int64s, int32s)
questions = st.builds(
    LegacyFetch,
    max_wait_ms=int32s,
    min_bytes=int32s,
    max_bytes=int32s,
    partitions=st.lists(wanted, max_size=8).map(tuple),
)


def by_kafka_python(version: int, question: LegacyFetch) -> bytes:
    topic_type: Any = FetchRequest.FetchTopic
    topics = [
        topic_type(
            version=version,
            topic=partition.topic,
            partitions=[
                topic_type.FetchPartition(
                    version=version,
                    partition=partition.partition,
                    fetch_offset=partition.offset,
                    partition_max_bytes=partition.max_bytes,
                )
            ],
        )
        for partition in question.partitions
    ]
    request = FetchRequest(
        version=version,
        max_wait_ms=question.max_wait_ms,
        min_bytes=question.min_bytes,
        max_bytes=question.max_bytes,
        topics=topics,
    )
    request.with_header(correlation_id=9, client_id="old")
    return bytes(request.encode(header=True, framed=True))


@given(st.sampled_from(OLD_VERSIONS), questions)
def test_an_old_clients_question_is_read(version: int, question: LegacyFetch) -> None:
    frame = by_kafka_python(version, question)
    read = read_legacy_fetch(frame, read_request_header(frame))
    assert (read.max_wait_ms, read.min_bytes) == (question.max_wait_ms, question.min_bytes)
    assert read.max_bytes == (question.max_bytes if version == 3 else NO_LIMIT)
    # the last of two, in the first's position
    once = {(partition.topic, partition.partition): partition for partition in question.partitions}
    assert read.partitions == tuple(once.values())


def test_a_question_for_more_partitions_than_a_broker_leads_is_refused() -> None:
    def asked(partitions: int) -> LegacyFetch:
        head = struct.pack(">hhihiiiih", 1, 2, 9, -1, -1, 0, 1, 1, 1) + b"t" + struct.pack(">i", partitions)
        frame = bytes(4) + head + b"".join(struct.pack(">iqi", index, 0, 1) for index in range(partitions))
        return read_legacy_fetch(frame, read_request_header(frame))

    assert len(asked(MAX_ELEMENTS).partitions) == MAX_ELEMENTS
    with pytest.raises(RemoteProtocolError):
        asked(MAX_ELEMENTS + 1)


def test_a_damaged_question_is_refused() -> None:
    frame = by_kafka_python(2, LegacyFetch(max_wait_ms=1, min_bytes=1, max_bytes=1, partitions=(Wanted("a", 1, 2, 3),)))
    for cut in range(20, len(frame)):
        with pytest.raises(RemoteProtocolError):
            read_legacy_fetch(frame[:cut], read_request_header(frame[:cut]))


def test_newer_questions_are_not_an_old_clients() -> None:
    frame = by_kafka_python(4, LegacyFetch(max_wait_ms=1, min_bytes=1, max_bytes=1, partitions=()))
    with pytest.raises(UnsupportedVersion):
        read_legacy_fetch(frame, read_request_header(frame))


@given(questions, st.integers(0, 1), st.none() | st.just("old"))
def test_the_broker_is_asked_the_same_in_the_same_order(
    question: LegacyFetch, isolation_level: int, client_id: str | None
) -> None:
    frame = write_upstream_fetch(9, client_id, question, isolation_level=isolation_level)
    header, asked = decode_request(frame, entity_type(Case("FetchRequest", UPSTREAM_VERSION)))
    assert (header.correlation_id, header.client_id) == (9, client_id)
    assert (asked.max_bytes, asked.min_bytes) == (question.max_bytes, question.min_bytes)
    assert asked.max_wait == timedelta(milliseconds=question.max_wait_ms)
    assert (asked.replica_id, asked.session_id, asked.session_epoch) == (-1, 0, -1)
    assert (asked.isolation_level, asked.forgotten_topics_data) == (isolation_level, ())
    assert question.partitions == tuple(
        Wanted(topic.topic, partition.partition, partition.fetch_offset, partition.partition_max_bytes)
        for topic in asked.topics
        for partition in topic.partitions
    )
    assert all(partition.topic != other.topic for partition, other in pairwise(asked.topics))
    assert {
        (partition.current_leader_epoch, partition.log_start_offset)
        for topic in asked.topics
        for partition in topic.partitions
    } <= {(-1, -1)}


@given(entities(Case("FetchResponse", UPSTREAM_VERSION)))
def test_the_brokers_answer_is_read(entity: Any) -> None:
    frame = response_frame(entity)
    answer = read_upstream_answer(frame)
    assert (timedelta(milliseconds=answer.throttle_ms), answer.error_code) == (entity.throttle_time, entity.error_code)
    expected = [(topic.topic, partition) for topic in entity.responses for partition in topic.partitions]
    assert len(answer.partitions) == len(expected)
    for read, (topic, partition) in zip(answer.partitions, expected, strict=True):
        assert (read.topic, read.partition, read.error_code) == (topic, partition.partition_index, partition.error_code)
        assert (read.high_watermark, read.last_stable_offset) == (
            partition.high_watermark,
            partition.last_stable_offset,
        )
        assert read.log_start_offset == partition.log_start_offset
        assert frame[read.start : read.end] == (partition.records or b"")
        aborted = partition.aborted_transactions or ()
        assert read_aborted(frame, read) == [(each.producer_id, each.first_offset) for each in aborted]


@given(entities(Case("FetchResponse", UPSTREAM_VERSION)), st.data())
def test_a_cut_answer_is_refused(entity: Any, data: st.DataObject) -> None:
    frame = response_frame(entity)
    cut = data.draw(st.integers(0, len(frame) - 1))
    with pytest.raises(RemoteProtocolError):
        read_upstream_answer(frame[:cut])


promises = st.lists(st.builds(Promised, names, int32s, int16s, int64s, st.integers(0, 40)), max_size=8)


@given(st.sampled_from(OLD_VERSIONS), st.integers(0, 1000), promises)
def test_heads_and_sets_are_an_answer_that_old_clients_read(
    version: int, throttle_ms: int, promised: list[Promised]
) -> None:
    heads = write_heads(version, 77, throttle_ms, promised)
    assert len(heads) == max(len(promised), 1)
    sets = [bytes([index]) * partition.size for index, partition in enumerate(promised)]
    frame = b"".join(part for pair in zip(heads, [*sets, b""], strict=False) for part in pair)
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    answer = FetchResponse.decode(frame[4:], version=version, header=True)
    assert answer.header.correlation_id == 77
    assert answer.throttle_time_ms == (throttle_ms if version else 0)
    found = [(topic.topic, partition) for topic in answer.responses for partition in topic.partitions]
    assert promised == [
        Promised(
            topic,
            partition.partition_index,
            partition.error_code,
            partition.high_watermark,
            len(partition.records or b""),
        )
        for topic, partition in found
    ]
    assert sets == [bytes(partition.records or b"") for _, partition in found]
    assert all(partition.topic != other.topic for partition, other in pairwise(answer.responses))


def test_an_answer_that_no_frame_can_hold_is_our_mistake() -> None:
    with pytest.raises(LocalProtocolError):
        write_heads(0, 1, 0, [Promised("a", 0, 0, 0, 2**31 - 10)])


def test_magic_by_version() -> None:
    assert [magic_of(version) for version in OLD_VERSIONS] == [0, 0, 1, 1]
