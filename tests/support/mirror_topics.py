"""A cluster of brokers in memory, on real sockets, that keep mirror topics. kio reads and writes their frames."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import trio
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from shoal.protocol.schema.api import ApiKey
from tests.support.kio_messages import decode_request, response_frame
from tests.support.rig import FakeBroker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shoal.proxy.config.settings import Address
    from tests.support.rig import BrokerSide

__all__ = ["MirrorBrokers", "Partition"]

Partition = tuple[str, int]


@dataclass
class MirrorBrokers:
    """`leaders`: -1 for none. `late`: probes that a broker still answers as before after its topics are promoted."""

    leaders: dict[Partition, int]
    ends: Counter[Partition] = field(default_factory=Counter)
    ids: dict[str, UUID] = field(default_factory=dict)
    promoted: dict[str, str] = field(default_factory=dict)  # topic -> value of its key
    late: Counter[int] = field(default_factory=Counter)
    without_agent: set[int] = field(default_factory=set)
    mute: set[int] = field(default_factory=set)  # on probes
    silent: set[int] = field(default_factory=set)  # keys of APIs
    growing: set[Partition] = field(default_factory=set)
    answers: dict[Partition, list[ErrorCode]] = field(default_factory=dict)  # the next ones
    moves: dict[Partition, int] = field(default_factory=dict)  # leaders from the promotion on
    alter_error: ErrorCode = ErrorCode.none
    closes_on_alter: bool = False
    changes: list[tuple[str, bool]] = field(default_factory=list)  # key, validate only
    probes: Counter[Partition] = field(default_factory=Counter)
    brokers: dict[int, FakeBroker] = field(default_factory=dict)
    cluster_id: str = "c"

    @property
    def topics(self) -> list[str]:
        return list(dict.fromkeys(topic for topic, _ in self.leaders))

    @property
    def bootstrap(self) -> Address:
        return next(iter(self.brokers.values())).address

    @asynccontextmanager
    async def running(self) -> AsyncIterator[MirrorBrokers]:
        self.leaders = dict(self.leaders)
        self.ids |= {topic: UUID(int=number) for number, topic in enumerate(self.topics, 1)}
        nodes = sorted({leader for leader in (*self.leaders.values(), *self.moves.values()) if leader > 0} | {1})
        self.brokers = {node_id: FakeBroker(partial(self._answer, node_id)) for node_id in nodes}
        async with trio.open_nursery() as nursery:
            for broker in self.brokers.values():
                await nursery.start(broker.run)
            yield self
            nursery.cancel_scope.cancel()

    async def _answer(self, node_id: int, side: BrokerSide, frame: bytes) -> None:
        key, version, number = (int.from_bytes(frame[a:b], "big", signed=True) for a, b in ((4, 6), (6, 8), (8, 12)))
        _, request = decode_request(frame, load_request_schema(key, version))
        make = partial(_make, load_response_schema(key, version))
        if key in self.silent:
            return None
        if key == ApiKey.METADATA:
            entity = self._metadata(request, make)
        elif key == ApiKey.INCREMENTAL_ALTER_CONFIGS:
            entity = self._alter(request, make)
            if self.closes_on_alter:
                return await side.stream.aclose()
        elif key == ApiKey.PRODUCE:
            if node_id in self.mute:
                return None
            entity = self._produce(node_id, request, make)
        else:
            entity = self._other(key, node_id, request, make)
        return await side.send(response_frame(entity, number))

    def _other(self, key: int, node_id: int, request: Any, make: Any) -> Any:
        raise AssertionError(f"API {key} was not expected")

    def _metadata(self, request: Any, make: Any) -> Any:
        brokers = [
            make("MetadataResponseBroker", node_id=node_id, host="127.0.0.1", port=broker.port, rack=None)
            for node_id, broker in self.brokers.items()
        ]
        topics = [self._described(topic.name, make) for topic in request.topics]
        fields: dict[str, Any] = {"throttle_time": timedelta(0), "cluster_id": self.cluster_id, "controller_id": 1}
        return make("MetadataResponse", brokers=tuple(brokers), topics=tuple(topics), **fields)

    def _described(self, name: str, make: Any) -> Any:
        nobody: dict[str, Any] = {"leader_epoch": 0, "replica_nodes": (), "isr_nodes": (), "offline_replicas": ()}
        rows = [
            make(
                "MetadataResponsePartition",
                error_code=ErrorCode.none,
                partition_index=index,
                leader_id=leader,
                **nobody,
            )
            for (topic, index), leader in self.leaders.items()
            if topic == name
        ]
        error = ErrorCode.none if rows else ErrorCode.unknown_topic_or_partition
        fields: dict[str, Any] = {
            "error_code": error,
            "name": name,
            "topic_id": self.ids.get(name),
            "is_internal": False,
        }
        return make("MetadataResponseTopic", partitions=tuple(rows), **fields)

    def _produce(self, node_id: int, request: Any, make: Any) -> Any:
        topics = []
        for topic in request.topic_data:
            rows = [self._probed(node_id, (topic.name, row.index), make) for row in topic.partition_data]
            topics.append(make("TopicProduceResponse", name=topic.name, partition_responses=tuple(rows)))
        self.late[node_id] -= bool(self.promoted)
        return make("ProduceResponse", responses=tuple(topics), throttle_time=timedelta(0))

    def _probed(self, node_id: int, partition: Partition, make: Any) -> Any:
        self.probes[partition] += 1
        error, message, end = self._state(node_id, partition)
        fields: dict[str, Any] = {"log_append_time": None, "record_errors": (), "error_message": message}
        fields |= {"base_offset": end, "log_start_offset": min(end, 0), "error_code": error}
        return make("PartitionProduceResponse", index=partition[1], **fields)

    def _state(self, node_id: int, partition: Partition) -> tuple[ErrorCode, str | None, int]:
        if self.leaders[partition] != node_id:
            return ErrorCode.not_leader_or_follower, None, -1
        if self.answers.get(partition):
            return self.answers[partition].pop(0), "as scripted", -1
        if node_id in self.without_agent:
            return ErrorCode.invalid_record, None, -1
        if partition[0] in self.promoted and self.late[node_id] <= 0:
            return (
                ErrorCode.policy_violation,
                f"{partition[0]} was promoted: it no longer takes the batches of a mirror",
                -1,
            )
        self.ends[partition] += partition in self.growing
        return ErrorCode.none, None, self.ends[partition]

    def _alter(self, request: Any, make: Any) -> Any:
        (resource,) = request.resources
        assert (resource.resource_type, resource.resource_name) == (4, "")
        assert all(config.config_operation == 0 for config in resource.configs)
        self.changes += [(config.name, request.validate_only) for config in resource.configs]
        if self.alter_error is ErrorCode.none and not request.validate_only:
            self.promoted |= {config.name.split(".", 3)[3]: config.value for config in resource.configs}
            self.leaders |= self.moves
        text = None if self.alter_error is ErrorCode.none else "so says the controller"
        fields: dict[str, Any] = {
            "error_code": self.alter_error,
            "error_message": text,
            "resource_type": 4,
            "resource_name": "",
        }
        row = make("AlterConfigsResourceResponse", **fields)
        return make("IncrementalAlterConfigsResponse", throttle_time=timedelta(0), responses=(row,))


def _make(like: Any, kind: str, **fields: Any) -> Any:
    entity = getattr(sys.modules[like.__module__], kind)
    return entity(**{one.name: fields[one.name] for one in dataclasses.fields(entity) if one.name in fields})
