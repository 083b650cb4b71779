"""A broker in memory that accepts sets of batches, or treats them like one of several real brokers.

Frames in, frames out; kio reads and writes them, so the probe's code does not test itself.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import crc32c
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from shoal.protocol.schema.api import ApiKey
from tests.support.kio_messages import decode_request, response_frame

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["API_RANGES", "BatchBroker", "Habits", "batches_in"]

Entity = Any
NO_TIME = timedelta(0)

API_RANGES: Mapping[int, tuple[int, int]] = {
    ApiKey.PRODUCE: (3, 13),
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (1, 11),
    ApiKey.METADATA: (0, 13),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
}


@dataclass(frozen=True, kw_only=True)
class Habits:
    """Default: a set is stored completely, in order, or not at all, like a broker with the agent."""

    refuses: ErrorCode | None = None  # of sets
    closes: bool = False  # on sets
    keeps: int | None = None  # batches of a set, the others are lost: Redpanda
    counts_first: bool = False  # stores all, counts and offsets the first batch only: librdkafka's mock
    answers_late_by: int = 0  # the base offset of a set in the answer is too large by this
    reverses: bool = False  # the batches of a set
    alters: bool = False  # the last record of a set
    in_part: bool = False  # batches before a bad one are stored: Tansu
    checks: bool = True  # CRCs
    stamps: Literal["agent", "stock", "rest", "ignored", "refused", "in part", "five only"] = "agent"
    # a set that is known in part is refused; acknowledged, and its new batches are lost; the new ones are stored; all
    # is stored again; known batches are refused, alone too; the new ones of a set are stored and it is refused; sets of
    # more than five are refused
    stamped_error: ErrorCode = ErrorCode.none  # of sets with a producer id
    producer_error: ErrorCode = ErrorCode.none  # of InitProducerId
    loading: int = 0  # first InitProducerIds that are answered with error 14, as by a broker that has just started
    appends_time: bool = False  # LogAppendTime
    create_error: ErrorCode = ErrorCode.none
    delete_error: ErrorCode = ErrorCode.none
    write_error: ErrorCode = ErrorCode.none
    read_error: ErrorCode = ErrorCode.none
    closes_on: frozenset[int] = frozenset()  # API keys: a broker that wants SASL, or TLS
    mute_on: frozenset[int] = frozenset()
    passing: int = 0  # first produces to a topic that are answered as by a leader that does not know of it yet
    lags: int = 0  # reads of the end offset that do not show the last set yet
    batch_per_fetch: bool = False
    throttled: int = 0  # first fetches that are answered without a partition, as to a client over its quota
    node_ids: tuple[int, ...] = (1,)
    cluster_id: str = "a-cluster"
    ranges: Mapping[int, tuple[int, int]] = field(default_factory=lambda: API_RANGES)


def batches_in(records: bytes) -> list[bytes]:
    found = []
    while records:
        size = 12 + int.from_bytes(records[8:12], "big")
        found.append(records[:size])
        records = records[size:]
    return found


def _count(batch: bytes) -> int:
    return int.from_bytes(batch[57:61], "big")


@dataclass
class _Log:
    """`stored` are (base offset, batch)."""

    stored: list[tuple[int, bytes]] = field(default_factory=list)
    end: int = 0
    seen_end: int = 0
    lagging: int = 0
    produces: int = 0
    known: dict[bytes, deque[tuple[int, int, int]]] = field(
        default_factory=dict
    )  # producer id and epoch -> the last five


@dataclass
class BatchBroker:
    """`answer` returns None if the broker closes the connection, b"" if it does not answer.

    `sets` counts received record sets of more than one batch, by topic; `deleted`: deleted topics.
    """

    habits: Habits = field(default_factory=Habits)
    topics: dict[str, dict[int, _Log]] = field(default_factory=dict)
    sets: Counter[str] = field(default_factory=Counter)
    deleted: list[str] = field(default_factory=list)
    asked: list[ApiKey] = field(default_factory=list)
    address: tuple[str, int] = ("127.0.0.1", 9092)

    def with_topic(self, name: str, partitions: int = 1) -> BatchBroker:
        self.topics[name] = {index: _Log() for index in range(partitions)}
        return self

    def answer(self, frame: bytes) -> bytes | None:
        key, version, number = (int.from_bytes(frame[a:b], "big", signed=True) for a, b in ((4, 6), (6, 8), (8, 12)))
        self.asked.append(ApiKey(key))
        if key in self.habits.closes_on:
            return None
        if key in self.habits.mute_on:
            return b""
        low, high = self.habits.ranges[key]
        assert low <= version <= high, f"{ApiKey(key).name} v{version} was not offered"
        _, request = decode_request(frame, load_request_schema(key, version))
        schema = load_response_schema(key, version)
        entity = getattr(self, _HANDLERS[ApiKey(key)])(
            request, schema
        )  # by name: subclasses have handlers of their own
        return None if entity is None else response_frame(entity, number)

    # -- who there is

    def versions(self, request: Entity, schema: Any) -> Entity:
        keys = [
            _make(schema, "ApiVersion", api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self.habits.ranges.items()
        ]
        return _make(schema, "ApiVersionsResponse", error_code=ErrorCode.none, api_keys=tuple(keys))

    def metadata(self, request: Entity, schema: Any) -> Entity:
        host, port = self.address
        asked = [topic.name for topic in request.topics or ()]
        return _make(
            schema,
            "MetadataResponse",
            error_code=ErrorCode.none,
            throttle_time=NO_TIME,
            brokers=tuple(
                _make(schema, "MetadataResponseBroker", node_id=node_id, host=host, port=port, rack=None)
                for node_id in self.habits.node_ids
            ),
            cluster_id=self.habits.cluster_id,
            controller_id=self.habits.node_ids[0],
            topics=tuple(self._described(schema, name) for name in asked),
        )

    def _described(self, schema: Any, name: str) -> Entity:
        partitions = tuple(
            _make(
                schema,
                "MetadataResponsePartition",
                error_code=ErrorCode.none,
                partition_index=index,
                leader_id=self.habits.node_ids[index % len(self.habits.node_ids)],
                leader_epoch=0,
                replica_nodes=(),
                isr_nodes=(),
                offline_replicas=(),
            )
            for index in self.topics.get(name, ())
        )
        error = ErrorCode.none if partitions else ErrorCode.unknown_topic_or_partition
        fields = {"error_code": error, "name": name, "topic_id": None, "is_internal": False, "partitions": partitions}
        return _make(schema, "MetadataResponseTopic", **fields)

    # -- topics

    def create(self, request: Entity, schema: Any) -> Entity:
        (topic,) = request.topics
        error = self.habits.create_error
        if error is ErrorCode.none:
            assert [(assignment.partition_index, len(assignment.broker_ids)) for assignment in topic.assignments] == [
                (0, 1)
            ]
            self.with_topic(topic.name)
        result = _make(
            schema,
            "CreatableTopicResult",
            name=topic.name,
            topic_id=None,
            error_code=error,
            error_message=None if error is ErrorCode.none else "so says the broker",
            num_partitions=1,
            replication_factor=1,
            configs=(),
        )
        return _make(schema, "CreateTopicsResponse", throttle_time=NO_TIME, topics=(result,))

    def delete(self, request: Entity, schema: Any) -> Entity:
        names = request.topic_names if hasattr(request, "topic_names") else [topic.name for topic in request.topics]
        results = []
        for name in names:
            error = self.habits.delete_error
            if error is ErrorCode.none and self.topics.pop(name, None) is None:
                error = ErrorCode.unknown_topic_or_partition
            elif error is ErrorCode.none:
                self.deleted.append(name)
            fields = {"name": name, "topic_id": None, "error_code": error, "error_message": None}
            results.append(_make(schema, "DeletableTopicResult", **fields))
        return _make(schema, "DeleteTopicsResponse", throttle_time=NO_TIME, responses=tuple(results))

    # -- records

    def init_producer(self, request: Entity, schema: Any) -> Entity:
        asked = self.asked.count(ApiKey.INIT_PRODUCER_ID)
        loading = ErrorCode.coordinator_load_in_progress
        error = loading if asked <= self.habits.loading else self.habits.producer_error
        fields = {"throttle_time": NO_TIME, "error_code": error, "producer_id": 7, "producer_epoch": 0}
        return _make(schema, "InitProducerIdResponse", **fields)

    def produce(self, request: Entity, schema: Any) -> Entity:
        (topic,) = request.topic_data
        (partition,) = topic.partition_data
        batches = batches_in(bytes(partition.records))
        self.sets[topic.name] += len(batches) > 1
        if len(batches) > 1 and self.habits.closes:
            return None
        log = self.topics[topic.name][partition.index]
        error, base = self._append(log, batches)
        answer = _make(
            schema,
            "PartitionProduceResponse",
            index=partition.index,
            error_code=error,
            base_offset=base,
            log_append_time=None,
            log_start_offset=0,
            record_errors=(),
            error_message=None,
        )
        topics = (_make(schema, "TopicProduceResponse", name=topic.name, partition_responses=(answer,)),)
        return _make(schema, "ProduceResponse", responses=topics, throttle_time=NO_TIME)

    def _append(self, log: _Log, batches: Sequence[bytes]) -> tuple[ErrorCode, int]:
        habits = self.habits
        log.produces += 1
        if log.produces <= habits.passing:
            return ErrorCode.not_leader_or_follower, -1
        if habits.write_error is not ErrorCode.none:
            return habits.write_error, -1
        if len(batches) > 1 and habits.refuses is not None:
            return habits.refuses, -1
        bad = [number for number, batch in enumerate(batches) if habits.checks and not _is_sound(batch)]
        base = log.end
        if bad:
            if habits.in_part:
                self._store(log, batches[: bad[0]])
            return ErrorCode.corrupt_message, -1
        if any(batch[43:51] != b"\xff" * 8 for batch in batches):
            if habits.stamped_error is not ErrorCode.none:
                return habits.stamped_error, -1
            if habits.stamps != "ignored" and (answer := self._sequenced(log, batches)):
                return answer
        log.lagging = habits.lags if len(batches) > 1 else 0
        self._store(log, self._as_it_would(batches))
        return ErrorCode.none, base + (habits.answers_late_by if len(batches) > 1 else 0)

    def _sequenced(self, log: _Log, batches: Sequence[bytes]) -> tuple[ErrorCode, int] | None:
        """The answer if not all batches, which have one producer, are new; otherwise they are remembered."""
        habits, last = self.habits, log.known.setdefault(batches[0][43:53], deque(maxlen=5))
        remembered = {first: base for first, _, base in last}
        firsts = [int.from_bytes(batch[53:57], "big") for batch in batches]
        known = [first for first in firsts if first in remembered]
        if habits.stamps == "five only" and len(batches) > 5:
            return ErrorCode.out_of_order_sequence_number, -1
        if not known:
            if last and firsts[0] != last[-1][1]:
                return ErrorCode.out_of_order_sequence_number, -1
            self._remember(last, firsts, batches, log.end)
            return None
        new = batches[len(known) :]
        if habits.stamps == "refused" or (len(batches) > 1 and new and habits.stamps in ("agent", "in part")):
            if habits.stamps == "in part":
                self._store(log, new)
            return ErrorCode.invalid_record, -1
        if habits.stamps == "rest" and new:
            self._remember(last, firsts[len(known) :], new, log.end)
            self._store(log, new)
        return ErrorCode.none, remembered[known[0]]

    def _remember(
        self, last: deque[tuple[int, int, int]], firsts: Sequence[int], batches: Sequence[bytes], base: int
    ) -> None:
        for first, one in zip(firsts, batches, strict=True):
            last.append((first, first + _count(one), base))
            base += _count(one)

    def _as_it_would(self, batches: Sequence[bytes]) -> Sequence[bytes]:
        if len(batches) == 1:
            return batches
        batches = list(batches)[:: -1 if self.habits.reverses else 1][: self.habits.keeps]
        if self.habits.alters:
            batches[-1] = _altered(batches[-1])
        return batches

    def _store(self, log: _Log, batches: Sequence[bytes]) -> None:
        log.seen_end = log.end
        if self.habits.counts_first and len(batches) > 1:
            log.stored.append((log.end, b"".join(batches)))
            log.end += _count(batches[0])
            return
        for batch in batches:
            log.stored.append((log.end, batch))
            log.end += _count(batch)

    def end_offset(self, request: Entity, schema: Any) -> Entity:
        (topic,) = request.topics
        (partition,) = topic.partitions
        assert partition.timestamp == -1
        log = self.topics[topic.name][partition.partition_index]
        log.lagging, end = max(log.lagging - 1, 0), log.seen_end if log.lagging else log.end
        fields = {"partition_index": partition.partition_index, "error_code": self.habits.read_error}
        fields |= {"timestamp": -1, "offset": end, "leader_epoch": 0}
        answer = _make(schema, "ListOffsetsPartitionResponse", **fields)
        topics = (_make(schema, "ListOffsetsTopicResponse", name=topic.name, partitions=(answer,)),)
        return _make(schema, "ListOffsetsResponse", throttle_time=NO_TIME, topics=topics)

    def fetch(self, request: Entity, schema: Any) -> Entity:
        (topic,) = request.topics
        (partition,) = topic.partitions
        log = self.topics[topic.topic][partition.partition]
        wanted = [one for one in log.stored if one[0] + _count(one[1]) > partition.fetch_offset]
        if self.habits.batch_per_fetch:
            wanted = wanted[:1]
        answer = _make(
            schema,
            "PartitionData",
            partition_index=partition.partition,
            error_code=self.habits.read_error,
            high_watermark=log.end,
            last_stable_offset=log.end,
            log_start_offset=0,
            aborted_transactions=None,
            preferred_read_replica=-1,
            records=b"".join(self._as_fetched(*one) for one in wanted),
        )
        topics = (_make(schema, "FetchableTopicResponse", topic=topic.topic, partitions=(answer,)),)
        fields = {"throttle_time": NO_TIME, "error_code": ErrorCode.none, "session_id": 0, "responses": topics}
        if self.asked.count(ApiKey.FETCH) <= self.habits.throttled:
            fields |= {"throttle_time": timedelta(seconds=1), "responses": ()}
        return _make(schema, "FetchResponse", **fields)

    def _as_fetched(self, base: int, stored: bytes) -> bytes:
        patched = base.to_bytes(8, "big") + stored[8:]
        if not self.habits.appends_time:
            return patched
        stamped = bytearray(patched)
        stamped[22] |= 0x08
        stamped[35:43] = (1_700_000_000_000).to_bytes(8, "big")  # maxTimestamp
        stamped[17:21] = crc32c.crc32c(stamped[21:]).to_bytes(4, "big")
        return bytes(stamped)


def _is_sound(batch: bytes) -> bool:
    return crc32c.crc32c(batch[21:]) == int.from_bytes(batch[17:21], "big")


def _altered(batch: bytes) -> bytes:
    """Another byte in the payload, with the right CRC."""
    changed = bytearray(batch)
    changed[-1] ^= 1
    changed[17:21] = crc32c.crc32c(changed[21:]).to_bytes(4, "big")
    return bytes(changed)


def _make(like: Any, kind: str, **fields: Any) -> Entity:
    entity = getattr(sys.modules[like.__module__], kind)
    return entity(**{one.name: fields[one.name] for one in dataclasses.fields(entity) if one.name in fields})


_HANDLERS = {
    ApiKey.API_VERSIONS: "versions",
    ApiKey.METADATA: "metadata",
    ApiKey.CREATE_TOPICS: "create",
    ApiKey.DELETE_TOPICS: "delete",
    ApiKey.INIT_PRODUCER_ID: "init_producer",
    ApiKey.PRODUCE: "produce",
    ApiKey.LIST_OFFSETS: "end_offset",
    ApiKey.FETCH: "fetch",
}
