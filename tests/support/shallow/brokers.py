"""A source broker that answers Fetch and Metadata, and a target broker that answers Produce, as a test scripts them.

kio reads requests and writes answers; the target checks batches as Kafka does (`partition.Partition`).
"""

from __future__ import annotations

import dataclasses
import struct
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from shoal.protocol.schema.api import ApiKey
from tests.support.kio_messages import decode_request, response_frame
from tests.support.rig import api_key, correlation_id, response
from tests.support.shallow.partition import Partition, stamp_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import trio

    from shoal.protocol.records.batch import NewRecord
    from tests.support.rig import BrokerSide

__all__ = [
    "ORDERS",
    "ORDERS_ID",
    "Place",
    "Script",
    "SourceBroker",
    "TargetBroker",
    "Topic",
    "by_topic",
    "make",
    "named",
    "produced",
    "topic_of",
    "version",
]

Entity = Any
Topic = str | UUID
Place = tuple[Topic, int]

ORDERS = "orders"
ORDERS_ID = UUID(int=0x1234_5678)
NO_TIME = timedelta(0)
# ApiVersions v0: no error; Produce and InitProducerId
_VERSIONS = struct.pack(">hi", 0, 2) + struct.pack(">hhh", 0, 3, 13) + struct.pack(">hhh", 22, 0, 5)


def make(like: type[Entity], kind: str, **fields: Any) -> Entity:
    """An entity named `kind` of the message and version of `like`; fields that this version lacks are left out."""
    entity = getattr(sys.modules[like.__module__], kind)
    return entity(**{one.name: fields[one.name] for one in dataclasses.fields(entity) if one.name in fields})


def version(frame: bytes) -> int:
    return int.from_bytes(frame[6:8], "big")


def topic_of(entity: Entity) -> Topic:
    topic: Topic = next(getattr(entity, name) for name in ("topic_id", "name", "topic") if hasattr(entity, name))
    return topic


def by_topic(places: Mapping[Place, Any]) -> Mapping[Topic, list[tuple[int, Any]]]:
    topics: dict[Topic, list[tuple[int, Any]]] = {}
    for (topic, index), what in places.items():
        topics.setdefault(topic, []).append((index, what))
    return topics


def named(topic: Topic) -> dict[str, Topic]:
    """For whichever of the fields a version has."""
    return {"topic_id": topic, "name": topic, "topic": topic}


# -- target ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Script:
    """What the target does with one produce request other than append and answer."""

    errors: Mapping[int, ErrorCode] = field(default_factory=dict)  # partition -> not appended
    appends: bool = True
    closes: bool = False  # instead of an answer
    omits: frozenset[int] = frozenset()  # partitions: appended and not mentioned
    gate: trio.Event | None = None  # the answer waits for it
    throttle_ms: int = 0
    leader: tuple[int, str, int] | None = None  # NodeEndpoints
    log_start: int = 0


@dataclass
class TargetBroker:
    """`requests`: of each produce request, its partitions and their record sets, in order. Topics by the names of
    `topics`."""

    topics: dict[UUID, str] = field(default_factory=lambda: {ORDERS_ID: ORDERS})
    scripts: dict[int, Script] = field(default_factory=dict)  # by the number of the produce request
    logs: dict[Place, Partition] = field(default_factory=lambda: defaultdict(Partition))
    gives_ids: int = 0  # the error code of InitProducerId
    asks_lost: int = 0  # this many connections are closed after the last of them has requested an id
    refuses_stamps: bool = False  # as a broker before 3.0, with the whole request
    next_id: int = 1000
    cluster_id: str = "the target"
    requests: list[dict[Place, bytes]] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)
    acks: list[int] = field(default_factory=list)
    asked: list[Entity] = field(default_factory=list)  # Metadata
    _asking: list[BrokerSide] = field(default_factory=list)

    def log(self, partition: int = 0, topic: Topic = ORDERS) -> list[NewRecord]:
        return self.logs[topic, partition].log

    def payloads(self, partition: int = 0) -> list[bytes]:
        """The received batches, in order, without the header, which is rewritten."""
        return [batch[61:] for sent in self.requests for (_, index), batch in sent.items() if index == partition]

    async def answer(self, side: BrokerSide, frame: bytes) -> None:
        if api_key(frame) == ApiKey.API_VERSIONS:
            await side.send(response(correlation_id(frame), _VERSIONS))
        elif api_key(frame) == ApiKey.INIT_PRODUCER_ID:
            if self.asks_lost:
                return await self._lose(side)
            await side.send(response(correlation_id(frame), self._new_id()))
        elif api_key(frame) == ApiKey.PRODUCE:
            await self._produce(side, frame)
        elif api_key(frame) == ApiKey.METADATA:
            await side.send(self._metadata(frame))

    def _metadata(self, frame: bytes) -> bytes:
        _, request = decode_request(frame, load_request_schema(api_key(frame), version(frame)))
        self.asked.append(request)
        ids = [topic.topic_id for topic in request.topics]
        topics = {one: (self.topics[one], 1) for one in ids if one in self.topics}
        schema = load_response_schema(api_key(frame), version(frame))
        return response_frame(metadata(schema, topics, self.cluster_id), correlation_id(frame))

    async def _lose(self, side: BrokerSide) -> None:
        self._asking.append(side)
        if len(self._asking) == self.asks_lost:
            lost, self._asking, self.asks_lost = self._asking, [], 0
            for one in lost:
                await one.stream.aclose()

    def _new_id(self) -> bytes:
        self.next_id += 1
        return struct.pack(">ihqh", 0, self.gives_ids, -1 if self.gives_ids else self.next_id, 0)

    async def _produce(self, side: BrokerSide, frame: bytes) -> None:
        _, request = decode_request(frame, load_request_schema(0, version(frame)))
        script = self.scripts.get(len(self.requests), Script())
        sent = {
            (self._name(topic_of(topic)), one.index): bytes(one.records)
            for topic in request.topic_data
            for one in topic.partition_data
        }
        self.requests.append(sent)
        self.frames.append(frame)
        self.acks.append(request.acks)
        said = {self._name(topic_of(topic)): topic_of(topic) for topic in request.topic_data}
        answers = {(said[name], index): answer for (name, index), answer in self._append(sent, script).items()}
        if script.gate is not None:
            await script.gate.wait()
        if script.closes:
            await side.stream.aclose()
        elif request.acks:
            entity = produced(load_response_schema(0, version(frame)), answers, script)
            await side.send(response_frame(entity, correlation_id(frame)))

    def _name(self, topic: Topic) -> Topic:
        return self.topics[topic] if isinstance(topic, UUID) else topic

    def _append(self, sent: Mapping[Place, bytes], script: Script) -> dict[Place, tuple[ErrorCode, int]]:
        if self.refuses_stamps and any(stamp_of(records) for records in sent.values()):
            return dict.fromkeys(sent, (ErrorCode.cluster_authorization_failed, -1))
        answers = {}
        for place, records in sent.items():
            error = script.errors.get(place[1])
            if error is None and script.appends:
                code, base_offset = self.logs[place].produce(records)
                answers[place] = ErrorCode(code), base_offset
            else:
                answers[place] = error or ErrorCode.none, -1
            if place[1] in script.omits:
                del answers[place]
        return answers


def produced(schema: type[Entity], answers: Mapping[Place, tuple[ErrorCode, int]], script: Script) -> Entity:
    leader = [dict(zip(("node_id", "host", "port"), script.leader, strict=True))] if script.leader else []
    return make(
        schema,
        "ProduceResponse",
        responses=tuple(
            make(
                schema,
                "TopicProduceResponse",
                **named(topic),
                partition_responses=tuple(_produced_partition(schema, index, what, script) for index, what in parts),
            )
            for topic, parts in by_topic(answers).items()
        ),
        throttle_time=timedelta(milliseconds=script.throttle_ms),
        node_endpoints=tuple(make(schema, "NodeEndpoint", **one, rack=None) for one in leader),
    )


def _produced_partition(schema: type[Entity], index: int, what: tuple[ErrorCode, int], script: Script) -> Entity:
    error, offset = what
    return make(
        schema,
        "PartitionProduceResponse",
        index=index,
        error_code=error,
        base_offset=offset,
        log_append_time=None,
        log_start_offset=script.log_start,
        record_errors=(),
        error_message=f"the broker says {error.name}" if error is not ErrorCode.none else None,
    )


# -- source ------------------------------------------------------------------------------------------------------------


@dataclass
class SourceBroker:
    """`sets`: contents of the next fetch answers, in order, by partition; later ones are empty."""

    sets: list[Mapping[Place, bytes]] = field(default_factory=list)
    requests: list[Entity] = field(default_factory=list)
    asked: list[Entity] = field(default_factory=list)  # Metadata
    answers: list[bytes] = field(default_factory=list)
    topics: dict[UUID, tuple[str, int]] = field(default_factory=dict)  # id -> name, number of partitions
    session_id: int = 0
    leader: tuple[int, str, int] | None = None
    cluster_id: str = "the source"

    async def answer(self, side: BrokerSide, frame: bytes) -> None:
        answer = {ApiKey.FETCH: self._fetch, ApiKey.METADATA: self._metadata}.get(ApiKey(api_key(frame)))
        assert answer is not None, f"API key {api_key(frame)}"
        schemas = (
            load_request_schema(api_key(frame), version(frame)),
            load_response_schema(api_key(frame), version(frame)),
        )
        entity = answer(decode_request(frame, schemas[0])[1], schemas[1])
        made = response_frame(entity, correlation_id(frame))
        self.answers.append(made)
        await side.send(made)

    def _fetch(self, request: Entity, schema: type[Entity]) -> Entity:
        self.requests.append(request)
        return self.fetched(schema, self.sets.pop(0) if self.sets else {})

    def fetched(self, schema: type[Entity], sets: Mapping[Place, bytes], error: ErrorCode = ErrorCode.none) -> Entity:
        leader = [dict(zip(("node_id", "host", "port"), self.leader, strict=True))] if self.leader else []
        return make(
            schema,
            "FetchResponse",
            throttle_time=NO_TIME,
            error_code=ErrorCode.none,
            session_id=self.session_id,
            responses=tuple(
                make(
                    schema,
                    "FetchableTopicResponse",
                    **named(topic),
                    partitions=tuple(_fetched_partition(schema, index, records, error) for index, records in parts),
                )
                for topic, parts in by_topic(sets).items()
            ),
            node_endpoints=tuple(make(schema, "NodeEndpoint", **one, rack=None) for one in leader),
        )

    def _metadata(self, request: Entity, schema: type[Entity]) -> Entity:
        self.asked.append(request)
        return metadata(schema, self.topics, self.cluster_id)


def metadata(schema: type[Entity], topics: Mapping[UUID, tuple[str, int]], cluster_id: str) -> Entity:
    """`topics`: id -> name, number of partitions."""
    return make(
        schema,
        "MetadataResponse",
        throttle_time=NO_TIME,
        brokers=(),
        cluster_id=cluster_id,
        topics=tuple(
            make(
                schema,
                "MetadataResponseTopic",
                error_code=ErrorCode.none,
                name=name,
                topic_id=topic_id,
                partitions=tuple(
                    make(
                        schema,
                        "MetadataResponsePartition",
                        error_code=ErrorCode.none,
                        partition_index=index,
                        leader_id=1,
                    )
                    for index in range(partitions)
                ),
            )
            for topic_id, (name, partitions) in topics.items()
        ),
    )


def _fetched_partition(schema: type[Entity], index: int, records: bytes, error: ErrorCode) -> Entity:
    return make(
        schema,
        "PartitionData",
        partition_index=index,
        error_code=error,
        high_watermark=1000,
        last_stable_offset=1000,
        log_start_offset=0,
        aborted_transactions=None,
        preferred_read_replica=-1,
        records=records,
    )
