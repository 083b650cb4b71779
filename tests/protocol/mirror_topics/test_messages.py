"""The wire of `shoal promote`: exact bytes, with kio and kafka-python as oracles."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1 import request as alter_request
from kio.schema.incremental_alter_configs.v1 import response as alter_response
from kio.schema.metadata.v10 import request as metadata_request
from kio.schema.metadata.v10 import response as metadata_response
from kio.schema.produce.v9 import request as produce_request

from shoal.protocol.messages.topics import encode_topics_request, read_topics
from shoal.protocol.mirror_topics.probe import PROBE_BATCH, ProbeAnswer, State, encode_probe, read_probe_answers
from shoal.protocol.mirror_topics.promotion import encode_promotion, promotion_key, read_promotion, uuid_text
from shoal.protocol.records.batch import BatchHeader, read_batch_header, require_crc
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import TopicPartition
from tests.support.kafka_python import memory_records
from tests.support.kio_messages import decode_request, response_frame
from tests.support.probe_answers import probe_answers

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_TIME: Any = timedelta(0)
ORDERS, OTHERS = TopicPartition("orders", 3), TopicPartition("others", 0)

# -- the probe batch


def test_the_probe_batch_has_these_bytes() -> None:
    assert (
        bytes.fromhex(
            "0000000000000001"  # base offset
            "00000031"  # batch length
            "80000001"  # partition leader epoch
            "02"  # magic
            "3830a8fa"  # crc
            "0000"  # attributes
            "00000000"  # last offset delta
            "ffffffffffffffff"  # base timestamp
            "ffffffffffffffff"  # max timestamp
            "ffffffffffffffff"  # producer id
            "ffff"  # producer epoch
            "ffffffff"  # base sequence
            "00000000"  # records
        )
        == PROBE_BATCH
    )


def test_readers_of_batches_read_the_probe_batch() -> None:
    header = read_batch_header(PROBE_BATCH, 0, len(PROBE_BATCH))
    require_crc(header, PROBE_BATCH, 0, len(PROBE_BATCH))
    epoch = -(2**31) + 1
    assert header == BatchHeader(1, 49, epoch, 2, 0x3830A8FA, 0, 0, -1, -1, -1, -1, -1, 0)

    batch = memory_records.MemoryRecords(PROBE_BATCH).next_batch()
    assert batch.validate_crc()
    assert (batch.base_offset, batch.leader_epoch, batch.last_offset_delta) == (1, epoch, 0)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert list(batch) == []


# -- Produce


def test_a_probe_asks_each_partition_of_a_leader_once() -> None:
    frame = encode_probe("test", [ORDERS, OTHERS, ORDERS._replace(partition=4)])
    header, request = decode_request(frame, produce_request.ProduceRequest)
    assert (header.client_id, header.request_api_version) == ("test", 9)
    assert (request.acks, request.transactional_id) == (1, None)
    assert [(topic.name, [row.index for row in topic.partition_data]) for topic in request.topic_data] == [
        ("orders", [3, 4]),
        ("others", [0]),
    ]
    assert {bytes(row.records) for topic in request.topic_data for row in topic.partition_data} == {PROBE_BATCH}


@pytest.mark.parametrize(
    ("error", "message", "state", "text"),
    [
        (ErrorCode.none, None, State.MIRROR, "a mirror topic, not promoted yet"),
        (ErrorCode.policy_violation, "orders was promoted: it takes no more", State.PROMOTED, "promoted"),
        (
            ErrorCode.policy_violation,
            "read-only until it is promoted",
            State.REFUSED,
            "error 44 (POLICY_VIOLATION): read-only until it is promoted",
        ),
        (ErrorCode.policy_violation, None, State.REFUSED, "error 44 (POLICY_VIOLATION)"),
        (ErrorCode.policy_violation, "too cold", State.REFUSED, "error 44 (POLICY_VIOLATION): too cold"),
        (ErrorCode.invalid_record, "offset", State.ORDINARY, "error 87 (INVALID_RECORD): offset"),
        (ErrorCode.not_leader_or_follower, None, State.PASSING, "error 6 (NOT_LEADER_OR_FOLLOWER)"),
        (ErrorCode.topic_authorization_failed, None, State.REFUSED, "error 29 (TOPIC_AUTHORIZATION_FAILED)"),
    ],
)
def test_an_answer_gives_the_state_of_a_partition(
    error: ErrorCode, message: str | None, state: State, text: str
) -> None:
    (answer,) = read_probe_answers(probe_answers((ORDERS, error, 7, 2, message)), [ORDERS]).values()
    assert answer == ProbeAnswer(error.value, 7, 2, message)
    assert answer.state is state
    assert str(answer) == text


MIRROR = (ErrorCode.none, 7, 2, None)


@pytest.mark.parametrize(
    "frame",
    [
        probe_answers(),
        probe_answers((OTHERS, *MIRROR)),
        probe_answers((ORDERS, *MIRROR), (OTHERS, *MIRROR)),
        probe_answers((ORDERS, *MIRROR), (ORDERS, *MIRROR)),
        probe_answers((ORDERS, ErrorCode.none, -1, -1, None)),
        probe_answers((ORDERS, ErrorCode.none, 1, 2, None)),
        probe_answers((ORDERS, *MIRROR))[:-1],
        probe_answers((ORDERS, *MIRROR)) + b"\0",
        b"",
    ],
)
def test_an_answer_about_other_partitions_or_without_offsets_is_the_brokers_fault(frame: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_probe_answers(frame, [ORDERS])


# -- Metadata


def test_topics_have_ids_and_leaders() -> None:
    _, request = decode_request(encode_topics_request("test", ["orders", "gone"]), metadata_request.MetadataRequest)
    assert [topic.name for topic in request.topics] == ["orders", "gone"]
    assert not request.allow_auto_topic_creation

    topic_id = UUID(int=7)
    partition = metadata_response.MetadataResponsePartition(
        error_code=ErrorCode.none,
        partition_index=3,  # type: ignore[arg-type]
        leader_id=2,  # type: ignore[arg-type]
        leader_epoch=0,  # type: ignore[arg-type]
        replica_nodes=(),
        isr_nodes=(),
        offline_replicas=(),
    )
    topic = metadata_response.MetadataResponseTopic(
        error_code=ErrorCode.none,
        name="orders",  # type: ignore[arg-type]
        topic_id=topic_id,
        partitions=(partition,),
    )
    broker = metadata_response.MetadataResponseBroker(node_id=2, host="h", port=9092, rack=None)  # type: ignore[arg-type]
    answer = metadata_response.MetadataResponse(
        throttle_time=NO_TIME, brokers=(broker,), cluster_id="c", topics=(topic,)
    )
    found = read_topics(response_frame(answer))
    assert found.brokers == ((2, "h", 9092),)
    assert found.topics == {"orders": (0, "orders", topic_id.bytes)}
    assert found.leaders == {ORDERS: 2}


# -- IncrementalAlterConfigs

IDS: Mapping[str, bytes] = {"orders": bytes(range(16)), "others": b"\xff" * 16}


@pytest.mark.parametrize("validate_only", [True, False])
def test_a_promotion_sets_one_key_for_each_topic(validate_only: bool) -> None:
    frame = encode_promotion("test", IDS, validate_only=validate_only)
    _, request = decode_request(frame, alter_request.IncrementalAlterConfigsRequest)

    def config(topic: str, value: str) -> alter_request.AlterableConfig:
        name = f"shoal.mirror.promoted.{topic}"
        return alter_request.AlterableConfig(name=name, config_operation=0, value=value)  # type: ignore[arg-type]

    configs = (config("orders", "AAECAwQFBgcICQoLDA0ODw"), config("others", "_____________________w"))
    resource = alter_request.AlterConfigsResource(resource_type=4, resource_name="", configs=configs)  # type: ignore[arg-type]
    assert request == alter_request.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)


def test_ids_and_keys_are_kafkas_text() -> None:
    assert uuid_text(bytes(16)) == "AAAAAAAAAAAAAAAAAAAAAA"  # Uuid.ZERO_UUID
    assert uuid_text(bytes(15) + b"\1") == "AAAAAAAAAAAAAAAAAAAAAQ"  # Uuid.METADATA_TOPIC_ID
    assert promotion_key("a.b-c_d") == "shoal.mirror.promoted.a.b-c_d"


def altered(error: ErrorCode, message: str | None, *, kind: int = 4, name: str = "", count: int = 1) -> bytes:
    row = alter_response.AlterConfigsResourceResponse(
        error_code=error,
        error_message=message,
        resource_type=kind,  # type: ignore[arg-type]
        resource_name=name,
    )
    answer = alter_response.IncrementalAlterConfigsResponse(throttle_time=NO_TIME, responses=(row,) * count)
    return response_frame(answer)


def test_the_answer_to_a_promotion() -> None:
    assert read_promotion(altered(ErrorCode.none, None)) == (0, "")
    assert read_promotion(altered(ErrorCode.cluster_authorization_failed, "no")) == (31, "no")


@pytest.mark.parametrize(
    "frame",
    [
        altered(ErrorCode.none, None, count=0),
        altered(ErrorCode.none, None, count=2),
        altered(ErrorCode.none, None, kind=2),
        altered(ErrorCode.none, None, name="1"),
        altered(ErrorCode.none, None)[:-1],
        b"",
    ],
)
def test_an_answer_about_another_config_is_the_brokers_fault(frame: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_promotion(frame)
