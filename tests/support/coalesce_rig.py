"""A coalescing listener between raw producers and a scripted broker that knows producer ids and topic ids, in one
process.

The broker judges each batch as Kafka does: one batch per partition unless it `takes_sets`, CRC, and the sequences of
producer ids with five remembered batches, a duplicate among several making it skip them all.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

import crc32c
import trio
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.records.recordset import split
from shoal.protocol.schema.api import ApiKey
from shoal.proxy.cluster.multi_batch import MultiBatchProofs
from shoal.proxy.coalesce.path import CoalescePath
from shoal.proxy.config.settings import (
    CaptureSettings,
    ClusterSettings,
    CoalesceSettings,
    Limits,
    ListenerSettings,
    PortMap,
    Settings,
)
from shoal.proxy.legacy.path import LegacyPath
from shoal.proxy.lifecycle.server import Server
from shoal.proxy.statistics import CloseCause
from tests.support.batches import consumed
from tests.support.kio_messages import decode_request, response_frame
from tests.support.rig import FakeBroker, api_key, correlation_id, response, until
from tests.support.shallow.brokers import ORDERS, ORDERS_ID, Place, Script, Topic, metadata, produced, topic_of, version
from tests.support.shallow.rig import Producer
from tests.support.shoal_process import free_port_block

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from shoal.proxy.config.security import SaslSettings
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.listener_api import Path
    from shoal.proxy.listener.listener import Listener
    from tests.support.rig import Answer, BrokerSide

__all__ = ["NODE", "ORDERS", "CoalesceRig", "KafkaLike", "batch", "coalesce_rig", "values"]

NODE = 7
_REMEMBERED = 5


def batch(*values: str, producer: int = -1, sequence: int = -1) -> bytes:
    """A batch of records with these values."""
    records = [NewRecord(1_700_000_000_000, b"k", value.encode()) for value in values]
    epoch = -1 if producer < 0 else 0
    return encode_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def values(record_set: bytes) -> list[str]:
    return [bytes(record.value or b"").decode() for record in consumed(record_set)]


@dataclass
class Log:
    """One partition."""

    values: list[str] = field(default_factory=list)
    producers: dict[int, list[tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(list))

    def append(self, record_set: bytes, *, takes_sets: bool) -> tuple[ErrorCode, int]:
        batches = [record_set[span.start : span.end] for span in split(record_set, 0, len(record_set)).spans]
        if len(batches) != 1 and not takes_sets:
            return ErrorCode.invalid_record, -1
        if any(crc32c.crc32c(one[21:]) != int.from_bytes(one[17:21], "big") for one in batches):
            return ErrorCode.corrupt_message, -1
        base = len(self.values)
        for one in batches:
            producer, _, sequence, count = struct.unpack_from(">qhii", one, 43)
            if producer >= 0:
                seen = self.producers[producer][-_REMEMBERED:]
                for first, last, offset in seen:
                    if (first, last) == (sequence, sequence + count - 1):
                        return ErrorCode.none, offset
                if sequence != (seen[-1][1] + 1 if seen else 0):
                    return ErrorCode.out_of_order_sequence_number, -1
        for one in batches:
            producer, _, sequence, count = struct.unpack_from(">qhii", one, 43)
            self.producers[producer].append((sequence, sequence + count - 1, len(self.values)))
            self.values += values(one)
        return ErrorCode.none, base


@dataclass
class KafkaLike:
    """`requests`: of each produce request its record sets, in order; `scripts` by their number."""

    scripts: dict[int, Script] = field(default_factory=dict)
    takes_sets: bool = False
    logs: dict[Place, Log] = field(default_factory=lambda: defaultdict(Log))
    requests: list[dict[Place, bytes]] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)
    entities: list[Any] = field(default_factory=list)
    sides: list[BrokerSide] = field(default_factory=list)
    others: list[int] = field(default_factory=list)  # API keys
    topics: dict[UUID, str] = field(default_factory=lambda: {ORDERS_ID: ORDERS})

    def log(self, partition: int = 0) -> list[str]:
        return self.logs[ORDERS, partition].values

    def places(self) -> list[list[int]]:
        """The partitions of each request."""
        return [[place[1] for place in sent] for sent in self.requests]

    async def answer(self, side: BrokerSide, frame: bytes) -> None:
        if api_key(frame) != ApiKey.PRODUCE:
            self.others.append(api_key(frame))
            await side.send(self._metadata(frame) or response(correlation_id(frame), frame[12:]))
            return
        header, request = decode_request(frame, load_request_schema(0, version(frame)))
        said = {self._name(topic_of(t)): topic_of(t) for t in request.topic_data}
        sent = {
            (self._name(topic_of(t)), one.index): bytes(one.records)
            for t in request.topic_data
            for one in t.partition_data
        }
        assert len(sent) == sum(len(t.partition_data) for t in request.topic_data), "a partition stands once"
        script = self.scripts.get(len(self.requests), Script())
        self.requests.append(sent)
        self.headers.append(header)
        self.entities.append(request)
        self.sides.append(side)
        if script.gate is not None:
            await script.gate.wait()
        answers = {place: self._append(place, records, script) for place, records in sent.items()}
        if script.closes or (not request.acks and any(error for error, _ in answers.values())):
            await side.stream.aclose()
        elif request.acks:
            told = {(said[at[0]], at[1]): answer for at, answer in answers.items() if at[1] not in script.omits}
            entity = produced(load_response_schema(0, version(frame)), told, script)
            await side.send(response_frame(entity, correlation_id(frame)))

    def _name(self, topic: Topic) -> Topic:
        return self.topics.get(topic, topic) if isinstance(topic, UUID) else topic

    def _metadata(self, frame: bytes) -> bytes | None:
        """The answer for a client that uses topic ids."""
        if api_key(frame) != ApiKey.METADATA or version(frame) < 12:
            return None
        _, request = decode_request(frame, load_request_schema(3, version(frame)))
        topics = {
            topic.topic_id: (self.topics[topic.topic_id], 1)
            for topic in request.topics
            if topic.topic_id in self.topics
        }
        return response_frame(metadata(load_response_schema(3, version(frame)), topics, "c"), correlation_id(frame))

    def _append(self, place: Place, records: bytes, script: Script) -> tuple[ErrorCode, int]:
        if isinstance(place[0], UUID):
            return ErrorCode.unknown_topic_id, -1
        if error := script.errors.get(place[1]):
            return error, -1
        if not script.appends:
            return ErrorCode.none, -1
        return self.logs[place].append(records, takes_sets=self.takes_sets)


@dataclass
class CoalesceRig:
    server: Server
    broker: KafkaLike
    fake: FakeBroker
    clients: AsyncExitStack

    @property
    def path(self) -> CoalescePath:
        path = self.server.listeners["test"].path
        below = path.base if isinstance(path, LegacyPath) else path
        assert isinstance(below, CoalescePath)
        return below

    async def producer(self, *, bootstrap: bool = False) -> Producer:
        listener = self.server.listeners["test"]
        port = listener.port if bootstrap else listener.ports.bound[NODE].port
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        return Producer(await self.clients.enter_async_context(stream))

    async def producers(self, count: int) -> list[Producer]:
        return [await self.producer() for _ in range(count)]

    async def hold(self, version: int = Producer.version, *, producer: int = -1) -> trio.Event:
        """A lane with an unanswered request (partition 99): what is produced from now on is joined when the event is
        set. `producer`: its producer id, if the others have one."""
        gate = trio.Event()
        self.broker.scripts[len(self.broker.requests)] = Script(gate=gate)
        before = len(self.broker.requests)
        client = await self.producer()
        client.version = version
        held = batch("held", producer=producer, sequence=-1 if producer < 0 else 0)
        await client.send_only({99: held}, topic=ORDERS_ID if version >= 13 else ORDERS)
        await until(lambda: len(self.broker.requests) == before + 1)
        return gate

    async def taken(self, count: int) -> None:
        """Wait until this many client requests were taken."""
        await until(lambda: self.path.tally.taken >= count)

    async def closed(self, number: int = 1) -> dict[CloseCause, int]:
        tally = self.server.listeners["test"].tally
        await until(lambda: sum(tally.closed.values()) >= number)
        return {cause: times for cause, times in tally.closed.items() if times}


@asynccontextmanager
async def coalesce_rig(
    *,
    scripts: Mapping[int, Script] | None = None,
    limits: Limits | None = None,
    takes_sets: bool = False,
    capture: CaptureSettings | None = None,
    path: Callable[[Listener], Path[Connection]] = CoalescePath,
    answer: Answer | None = None,
    proofs: Callable[[ClusterSettings], MultiBatchProofs] = MultiBatchProofs,
    login: SaslSettings | None = None,
    **coalescing: Any,
) -> AsyncIterator[CoalesceRig]:
    """`answer`: of another broker than `KafkaLike`. `login`: Shoal's own. `coalescing`: fields of
    CoalesceSettings. Ends by force whatever is left; afterwards nothing may be."""
    broker = KafkaLike(scripts=dict(scripts or {}), takes_sets=takes_sets)
    fake = FakeBroker(answer or broker.answer)
    async with trio.open_nursery() as nursery:
        await nursery.start(fake.run)
        listener = ListenerSettings(
            name="test",
            cluster="c",
            port=0,
            nodes=PortMap(ports={NODE: free_port_block(1)}),
            coalesce=True,
            coalescing=CoalesceSettings(**({"patience": 5.0} | coalescing)),
        )
        settings = Settings(
            clusters=(ClusterSettings(name="c", bootstrap=(fake.address,), sasl=login),),
            listeners=(listener,),
            limits=limits or Limits(),
            capture=capture,
        )
        server = Server(settings, {listener.mode: path}, learn=False)
        server.clusters["c"].brokers[NODE] = fake.address
        server.clusters["c"].proofs = proofs(settings.clusters[0])
        async with trio.open_nursery() as serving:
            await serving.start(server.run)
            async with AsyncExitStack() as clients:
                yield CoalesceRig(server, broker, fake, clients)
            serving.cancel_scope.cancel()
        assert not server.listeners["test"].connections
        assert not server.listeners["test"].tally.closed[CloseCause.INTERNAL]
        nursery.cancel_scope.cancel()
