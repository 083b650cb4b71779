from typing import Any

import pytest
from hypothesis import strategies as st

from shoal.protocol.messages.metadata import encode_metadata_request, read_metadata_response
from shoal.protocol.wire.errors import LocalProtocolError
from tests.support.kio_messages import Case, cases, decode_request, entity_type, for_any, response_frame


@for_any("MetadataResponse")
def test_a_response_is_read(case: Case, entity: Any, data: st.DataObject) -> None:
    response = read_metadata_response(response_frame(entity), case.version)
    assert list(response.brokers) == [(broker.node_id, broker.host, broker.port) for broker in entity.brokers]
    assert response.cluster_id == getattr(entity, "cluster_id", None)
    assert list(response.topics) == [
        (topic.name, topic_id.bytes if (topic_id := getattr(topic, "topic_id", None)) else None)
        for topic in entity.topics
    ]
    assert list(response.partition_counts) == [len(topic.partitions) for topic in entity.topics]


@pytest.mark.parametrize("case", list(cases("MetadataRequest")), ids=lambda case: f"v{case.version}")
@pytest.mark.parametrize("topics", [None, [], ["a"], ["a", "b" * 200]])
def test_a_request_is_what_a_broker_reads(case: Case, topics: list[str] | None) -> None:
    frame = encode_metadata_request(case.version, 41, "shoal", topics)
    header, decoded = decode_request(frame, entity_type(case))
    assert (header.request_api_key, header.request_api_version) == (3, case.version)
    assert (header.correlation_id, header.client_id) == (41, "shoal")
    asked = None if decoded.topics is None else [topic.name for topic in decoded.topics]
    assert asked == (topics or [] if case.version == 0 else topics)
    assert not getattr(decoded, "allow_auto_topic_creation", False)
    assert not getattr(decoded, "include_cluster_authorized_operations", False)
    assert not getattr(decoded, "include_topic_authorized_operations", False)


def test_topics_are_asked_for_by_id() -> None:
    topic_id = bytes(range(16))
    frame = encode_metadata_request(12, 1, None, [topic_id, "name"])
    _, decoded = decode_request(frame, entity_type(Case("MetadataRequest", 12)))
    assert [(topic.topic_id.bytes if topic.topic_id else None, topic.name) for topic in decoded.topics] == [
        (topic_id, None),
        (None, "name"),
    ]
    with pytest.raises(LocalProtocolError, match="by its id"):
        encode_metadata_request(11, 1, None, [topic_id])


def test_versions_above_the_table_are_our_mistake() -> None:
    with pytest.raises(LocalProtocolError):
        encode_metadata_request(14, 1, None, None)
