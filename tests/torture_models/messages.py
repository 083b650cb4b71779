"""Frames of a mirror's producer and of a broker, by the tables of `protocol/schema/tables`."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.protocol.messages.produce import read_produce_response
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.composer import compose
from shoal.protocol.schema.headers import write_request_header, write_response_header
from shoal.protocol.schema.tables import MESSAGES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shoal.protocol.wire.types import Topic

__all__ = [
    "Answered",
    "Head",
    "api_versions_answer",
    "head_of",
    "id_answer",
    "metadata_answer",
    "produce_answer",
    "produce_frame",
    "read_produce_answer",
    "versions_frame",
]

_CLIENT = "the mirror's producer"
_HEAD = struct.Struct(">hhi")


class Head(NamedTuple):
    key: int
    version: int
    number: int


class Answered(NamedTuple):
    partition: int
    error: int
    base: int


def head_of(frame: bytes) -> Head:
    return Head(*_HEAD.unpack_from(frame, 4))


def _framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def _request(name: str, head: Head, values: Mapping[str, Any]) -> bytes:
    return _framed(write_request_header(*head, _CLIENT) + compose(MESSAGES[name], head.version, values))


def _answer(name: str, head: Head, values: Mapping[str, Any]) -> bytes:
    return _framed(write_response_header(*head) + compose(MESSAGES[name], head.version, values))


def produce_frame(
    version: int, number: int, topic: Topic, sets: Mapping[int, bytes], transactional_id: str | None = None
) -> bytes:
    key = "TopicId" if isinstance(topic, bytes) else "Name"
    partitions = [{"Index": index, "Records": records} for index, records in sets.items()]
    values = {
        "TransactionalId": transactional_id,
        "Acks": -1,
        "TimeoutMs": 30_000,
        "TopicData": [{key: topic, "PartitionData": partitions}],
    }
    return _request("ProduceRequest", Head(ApiKey.PRODUCE, version, number), values)


def produce_answer(head: Head, topics: Mapping[Topic, Sequence[Answered]]) -> bytes:
    responses = [
        {
            "TopicId" if isinstance(topic, bytes) else "Name": topic,
            "PartitionResponses": [
                {"Index": one.partition, "ErrorCode": one.error, "BaseOffset": one.base, "LogAppendTimeMs": -1}
                for one in parts
            ],
        }
        for topic, parts in topics.items()
    ]
    return _answer("ProduceResponse", head, {"Responses": responses})


def read_produce_answer(frame: bytes, version: int) -> list[Answered]:
    return [
        Answered(partition.partition, partition.error_code, partition.base_offset)
        for partition in read_produce_response(frame, version).partitions
    ]


def versions_frame(number: int) -> bytes:
    return _framed(write_request_header(ApiKey.API_VERSIONS, 0, number, _CLIENT))


def api_versions_answer(head: Head, produce: int) -> bytes:
    """The answer of a broker that offers Produce up to this version."""
    offered = ((ApiKey.PRODUCE, 3, produce), (ApiKey.METADATA, 0, 12), (ApiKey.INIT_PRODUCER_ID, 0, 5))
    body = struct.pack(">hi", 0, len(offered)) + b"".join(struct.pack(">hhh", *one) for one in offered)
    return _framed(head.number.to_bytes(4, "big") + body)


def id_answer(head: Head, producer_id: int) -> bytes:
    return _answer("InitProducerIdResponse", head, {"ProducerId": producer_id, "ProducerEpoch": 0})


def metadata_answer(head: Head, topics: Mapping[str, tuple[bytes, int]]) -> bytes:
    """`topics`: name -> id, number of partitions."""
    described = [
        {"Name": name, "TopicId": topic_id, "Partitions": [{"PartitionIndex": index} for index in range(count)]}
        for name, (topic_id, count) in topics.items()
    ]
    return _answer("MetadataResponse", head, {"Brokers": [], "ClusterId": "target-cluster", "Topics": described})
