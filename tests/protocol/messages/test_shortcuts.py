"""The shortcuts never contradict the walkers, on any kio message, and they handle the common message."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from shoal.protocol.messages.produce import peek_acks
from shoal.protocol.messages.shortcuts import fetch_names_no_broker, names_no_broker, usual_acks, usual_head
from shoal.protocol.schema.api import ApiKey
from tests.support.endpoints import read_endpoints
from tests.support.kio_messages import Case, cases, entities, entity_type, request_frame, response_frame

REQUESTS = [case for case in cases("ProduceRequest") if 3 <= case.version <= 13]
FETCHED = [case for case in cases("FetchResponse") if 16 <= case.version <= 18]
RESPONSES = [case for case in cases("ProduceResponse") if 10 <= case.version <= 13]


@pytest.mark.parametrize("case", REQUESTS, ids=str)
@given(data=st.data())
def test_acks_are_those_of_the_walker(case: Case, data: st.DataObject) -> None:
    client_id = data.draw(st.none() | st.text(max_size=5))
    frame = request_frame(data.draw(entities(case)), client_id=client_id)
    short = usual_acks(frame, case.version)
    assert short in (None, peek_acks(frame))
    cut = data.draw(st.integers(12, len(frame)))
    assert usual_acks(memoryview(frame)[:cut], case.version) in (None, short)


@pytest.mark.parametrize("case", REQUESTS, ids=str)
@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_the_usual_request_is_taken(case: Case, acks: int) -> None:
    frame = request_frame(_request(case, acks))
    assert usual_acks(frame, case.version) == acks


@pytest.mark.parametrize("case", REQUESTS, ids=str)
@given(data=st.data())
def test_requests_with_the_same_head_have_the_same_acks(case: Case, data: st.DataObject) -> None:
    frame = request_frame(data.draw(entities(case)), client_id=data.draw(st.none() | st.text(max_size=5)))
    head = usual_head(frame, case.version)
    other = frame[:head] + data.draw(st.binary(max_size=9))
    assert not head or usual_acks(other, case.version) == usual_acks(frame, case.version)


def _request(case: Case, acks: int) -> Any:
    return entity_type(case)(transactional_id=None, acks=acks, timeout=timedelta(seconds=30), topic_data=())


@pytest.mark.parametrize("case", RESPONSES, ids=str)
@given(data=st.data())
def test_an_answer_that_names_a_broker_is_never_missed(case: Case, data: st.DataObject) -> None:
    frame = response_frame(data.draw(entities(case)))
    if names_no_broker(frame, case.version):
        assert read_endpoints(ApiKey.PRODUCE, case.version, frame) == []


def usual(case: Case, partitions: int, endpoints: int) -> bytes:
    response = entity_type(case)
    module = __import__(response.__module__, fromlist=["x"])
    parts = tuple(
        module.PartitionProduceResponse(index=index, error_code=ErrorCode.none, base_offset=7, record_errors=())
        for index in range(partitions)
    )
    which = {"topic_id": UUID(int=5)} if case.version == 13 else {"name": "a-topic"}
    nodes = tuple(module.NodeEndpoint(node_id=node, host="h", port=1) for node in range(endpoints))
    topics = (module.TopicProduceResponse(partition_responses=parts, **which),)
    return response_frame(response(responses=topics, node_endpoints=nodes))


@pytest.mark.parametrize("case", RESPONSES, ids=str)
@pytest.mark.parametrize("partitions", [0, 1, 4, 126])
def test_the_usual_answer_is_taken(case: Case, partitions: int) -> None:
    assert names_no_broker(usual(case, partitions, endpoints=0), case.version)
    assert not names_no_broker(usual(case, partitions, endpoints=1), case.version)


@pytest.mark.parametrize("case", RESPONSES, ids=str)
def test_other_versions_and_short_frames_are_left_to_the_walker(case: Case) -> None:
    frame = usual(case, 1, endpoints=0)
    assert not any(names_no_broker(frame, version) for version in (3, 9, 14, 20))
    assert not any(names_no_broker(frame[:cut], case.version) for cut in range(len(frame)))


# -- Fetch -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", FETCHED, ids=str)
@given(data=st.data())
def test_a_fetch_answer_that_names_a_broker_is_never_missed(case: Case, data: st.DataObject) -> None:
    frame = bytearray(response_frame(data.draw(entities(case))))
    if fetch_names_no_broker(frame, case.version):
        assert read_endpoints(ApiKey.FETCH, case.version, frame) == []


@given(records=st.none() | st.sampled_from([0, 1, 126, 127, 16_382, 16_383, 2_097_150]), data=st.data())
def test_a_damaged_fetch_answer_is_usual_only_to_the_walker_too(records: int | None, data: st.DataObject) -> None:
    frame = bytearray(fetched(FETCHED[0], 1, records=records))
    at = data.draw(st.integers(8, min(len(frame) - 1, 80)) | st.integers(max(8, len(frame) - 4), len(frame) - 1))
    frame[at] = data.draw(st.integers(0, 255))
    if fetch_names_no_broker(frame, 16):
        assert read_endpoints(ApiKey.FETCH, 16, frame) == []


def fetched(case: Case, partitions: int, *, records: int | None = 9, endpoints: int = 0) -> bytes:
    response = entity_type(case)
    module = __import__(response.__module__, fromlist=["x"])
    parts = tuple(
        module.PartitionData(
            partition_index=index, error_code=ErrorCode.none, high_watermark=7, aborted_transactions=(),
            records=None if records is None else bytes(records),
        )
        for index in range(partitions)
    )  # fmt: skip
    topics = (module.FetchableTopicResponse(topic_id=UUID(int=5), partitions=parts),) if partitions else ()
    nodes = tuple(module.NodeEndpoint(node_id=node, host="h", port=1) for node in range(endpoints))
    return response_frame(
        response(
            throttle_time=timedelta(0), error_code=ErrorCode.none, session_id=0, responses=topics, node_endpoints=nodes
        )
    )


@pytest.mark.parametrize("case", FETCHED, ids=str)
@pytest.mark.parametrize("records", [None, 0, 1, 126, 127, 16_382, 16_383, 2_097_149])
@pytest.mark.parametrize("partitions", [0, 1])
def test_the_usual_fetch_answer_is_taken(case: Case, records: int | None, partitions: int) -> None:
    assert fetch_names_no_broker(fetched(case, partitions, records=records), case.version)
    assert not fetch_names_no_broker(fetched(case, partitions, records=records, endpoints=1), case.version)


@pytest.mark.parametrize("case", FETCHED, ids=str)
@pytest.mark.parametrize("partitions", [0, 1])
def test_other_fetch_answers_are_left_to_the_walker(case: Case, partitions: int) -> None:
    frame = fetched(case, partitions)
    assert not fetch_names_no_broker(fetched(case, 2), case.version)
    assert not any(fetch_names_no_broker(frame, version) for version in (4, 15, 19))
    assert not any(fetch_names_no_broker(frame[:cut], case.version) for cut in range(len(frame)))
