"""A pair of shallow listeners in one server between two scripted brokers, and a mirror's two clients in raw bytes.

kio writes the clients' requests and reads their answers, so Shoal's produce and fetch paths do not test themselves.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import trio
from kio.index import load_request_schema, load_response_schema

from shoal.protocol.schema.api import ApiKey
from shoal.proxy.config.settings import ClusterSettings, Limits, ListenerSettings, Mode, Settings, ShallowSettings
from shoal.proxy.lifecycle.server import Server
from shoal.proxy.shallow.paths import ShallowPaths
from shoal.proxy.shallow.unwrap.path import UnwrapPath
from shoal.proxy.shallow.wrap.path import WrapPath
from shoal.proxy.statistics import CloseCause
from tests.support.kio_messages import decode_response, request_frame
from tests.support.rig import FakeBroker, Peer, free_range, until
from tests.support.rig import request as frame_of
from tests.support.shallow.brokers import (
    ORDERS,
    Place,
    Script,
    SourceBroker,
    TargetBroker,
    Topic,
    by_topic,
    make,
    named,
    topic_of,
)

if TYPE_CHECKING:
    from pathlib import Path as FilePath

    from kio.schema.errors import ErrorCode

__all__ = ["MIRROR", "Consumer", "Producer", "ShallowRig", "shallow_rig"]

Entity = Any

MIRROR = "A->B|MirrorSourceConnector-0|replication-consumer"
SECOND = timedelta(seconds=1)
NO_TIME = timedelta(0)


class Producer(Peer):
    """A mirror's producer: one connection to the unwrap listener."""

    version = 8
    client_id: str | None = "the producer"
    transactional_id: str | None = None
    timeout = SECOND

    def __init__(self, stream: trio.SocketStream) -> None:
        super().__init__(stream)
        self._numbers = count(1)

    def request(self, sets: Mapping[Place, bytes] | Sequence[tuple[Place, bytes]], acks: int = -1) -> bytes:
        """A mapping names each topic once, a sequence for every partition."""
        topics = by_topic(sets).items() if isinstance(sets, Mapping) else [(at[0], [(at[1], one)]) for at, one in sets]
        schema = load_request_schema(0, self.version)
        entity = make(
            schema,
            "ProduceRequest",
            transactional_id=self.transactional_id,
            acks=acks,
            timeout=self.timeout,
            topic_data=tuple(
                make(
                    schema,
                    "TopicProduceData",
                    **named(topic),
                    partition_data=tuple(
                        make(schema, "PartitionProduceData", index=index, records=records) for index, records in parts
                    ),
                )
                for topic, parts in topics
            ),
        )
        return request_frame(entity, next(self._numbers), self.client_id)

    async def agree(self) -> None:
        """Ask for the broker's API versions, as every client does."""
        await self.send(frame_of(ApiKey.API_VERSIONS, 0, next(self._numbers)))
        await self.frame()

    async def produce(self, *sets: bytes, acks: int = -1, topic: Topic = ORDERS) -> None:
        """Record sets for the partitions 0, 1, ..."""
        await self.send(self.request({(topic, index): one for index, one in enumerate(sets)}, acks))

    async def send_only(self, sets: Mapping[int, bytes], acks: int = -1, topic: Topic = ORDERS) -> None:
        """Send record sets by partition, without waiting for the answer."""
        await self.send(self.request({(topic, index): one for index, one in sets.items()}, acks))

    async def answer(self) -> Entity:
        return decode_response(await self.frame(), load_response_schema(0, self.version))

    async def answers(self) -> dict[int, tuple[ErrorCode, int]]:
        """Error code and base offset by partition."""
        answer = await self.answer()
        return {
            partition_response.index: (partition_response.error_code, partition_response.base_offset)
            for topic in answer.responses
            for partition_response in topic.partition_responses
        }


class Consumer(Peer):
    """A mirror's data consumer: one connection to the wrap listener."""

    version = 12
    client_id = MIRROR

    def __init__(self, stream: trio.SocketStream) -> None:
        super().__init__(stream)
        self._numbers = count(1)

    def request(self, offsets: Mapping[Place, int], **fields: Any) -> bytes:
        """Fields of FetchRequest, and `partition_max_bytes`."""
        schema = load_request_schema(1, self.version)
        most = fields.pop("partition_max_bytes", 1 << 20)
        entity = make(
            schema,
            "FetchRequest",
            **{
                "replica_id": -1,
                "max_wait": NO_TIME,
                "min_bytes": 1,
                "max_bytes": 50 << 20,
                "isolation_level": 0,
                "session_id": 0,
                "session_epoch": -1,
                "forgotten_topics_data": (),
                "rack_id": "",
                "topics": tuple(
                    make(
                        schema,
                        "FetchTopic",
                        **named(topic),
                        partitions=tuple(
                            make(
                                schema, "FetchPartition", partition=index, fetch_offset=offset, partition_max_bytes=most
                            )
                            for index, offset in parts
                        ),
                    )
                    for topic, parts in by_topic(offsets).items()
                ),
                **fields,
            },
        )
        return request_frame(entity, next(self._numbers), self.client_id)

    async def ask(self, offset: int = 0, partition: int = 0, topic: Topic = ORDERS, **fields: Any) -> None:
        await self.send(self.request({(topic, partition): offset}, **fields))

    async def answer(self) -> Entity:
        return decode_response(await self.frame(), load_response_schema(1, self.version))

    async def record_sets(self) -> dict[Place, bytes]:
        answer = await self.answer()
        return {
            (topic_of(topic), partition.partition_index): bytes(partition.records or b"")
            for topic in answer.responses
            for partition in topic.partitions
        }

    async def record_set(self) -> bytes:
        """The only partition of the answer."""
        (records,) = (await self.record_sets()).values()
        return records

    async def fetch(self, offset: int = 0, partition: int = 0, topic: Topic = ORDERS, **fields: Any) -> bytes:
        await self.ask(offset, partition, topic, **fields)
        return await self.record_set()


@dataclass
class ShallowRig:
    server: Server
    source: SourceBroker
    target: TargetBroker
    brokers: tuple[FakeBroker, FakeBroker]
    clients: AsyncExitStack
    paths: ShallowPaths

    async def producer(self, *, agrees: bool = False, node: int | None = None, address: str | None = None) -> Producer:
        """`agrees`: Shoal gets to know which APIs the broker offers. `node`: on the port of this broker. `address`: its
        own."""
        port = None
        if node is not None:
            _, port = self.server.listeners["to"].advertise(self.brokers[1].address, node, "127.0.0.1")
        producer = Producer(await self._connect("to", port, address))
        if agrees:
            await producer.agree()
        return producer

    async def consumer(self, listener: str = "from") -> Consumer:
        return Consumer(await self._connect(listener))

    async def _connect(self, listener: str, port: int | None = None, address: str | None = None) -> trio.SocketStream:
        port = port or self.server.listeners[listener].port
        stream = await trio.open_tcp_stream("127.0.0.1", port, local_address=address)
        return await self.clients.enter_async_context(stream)

    async def arrived(self, requests: int) -> None:
        """Wait until the target has this many Produce requests."""
        await until(lambda: len(self.target.requests) == requests)

    @property
    def wrap(self) -> WrapPath:
        path = self.server.listeners["from"].path
        assert isinstance(path, WrapPath)
        return path

    @property
    def unwrap(self) -> UnwrapPath:
        path = self.server.listeners["to"].path
        assert isinstance(path, UnwrapPath)
        return path

    async def closed(self, listener: str = "to", number: int = 1) -> dict[CloseCause, int]:
        """Wait until this many connections of a listener have ended; -> number by cause."""
        tally = self.server.listeners[listener].tally
        await until(lambda: sum(tally.closed.values()) >= number)
        return {cause: times for cause, times in tally.closed.items() if times}


@asynccontextmanager
async def shallow_rig(
    *,
    paired: bool = True,
    limits: Limits | None = None,
    scripts: Mapping[int, Script] | None = None,
    source: SourceBroker | None = None,
    target: TargetBroker | None = None,
    producers_file: FilePath | None = None,
    mirrored_file: FilePath | None = None,
    learn: bool = False,
    second: SourceBroker | None = None,
    clock: Callable[[], float] = trio.current_time,
    **shallow: Any,
) -> AsyncIterator[ShallowRig]:
    """`clock`: of the unwrap listener's producer ids. `shallow`: fields of ShallowSettings, for both listeners. Ends by
    force whatever is left; afterwards nothing may be."""
    source, target = source or SourceBroker(), target or TargetBroker()
    target.scripts.update(scripts or {})
    brokers = FakeBroker(source.answer), FakeBroker(target.answer)
    async with trio.open_nursery() as nursery:
        for broker in brokers:
            await nursery.start(broker.run)
        settings = _settings(
            brokers,
            paired,
            limits or Limits(),
            ShallowSettings(unpaired=not paired, **{"same_cluster": True, **shallow}),
        )
        if producers_file is not None:
            wrap, unwrap = settings.listeners
            settings = replace(settings, listeners=(wrap, replace(unwrap, producers_file=producers_file)))
        if mirrored_file is not None:
            wrap, unwrap = settings.listeners
            settings = replace(settings, listeners=(replace(wrap, mirrored_file=mirrored_file), unwrap))
        if second is not None:
            broker = FakeBroker(second.answer)
            await nursery.start(broker.run)
            settings = _with_second(settings, broker)
        paths = ShallowPaths(clock=clock)
        server = Server(settings, paths.of(settings), learn=learn)
        async with trio.open_nursery() as serving:
            await serving.start(server.run)
            async with AsyncExitStack() as clients:
                yield ShallowRig(server, source, target, brokers, clients, paths)
            serving.cancel_scope.cancel()
        for listener in server.listeners.values():
            assert not listener.connections
            assert not listener.tally.closed[CloseCause.INTERNAL]
        nursery.cancel_scope.cancel()


def _with_second(settings: Settings, broker: FakeBroker) -> Settings:
    """Another wrapping listener, before another source, with the same pair."""
    cluster = ClusterSettings(name="second", bootstrap=(broker.address,))
    port, nodes = free_range(1).first, free_range()
    listener = replace(settings.listeners[0], name="second", cluster="second", port=port, nodes=nodes)
    return replace(settings, clusters=(*settings.clusters, cluster), listeners=(*settings.listeners, listener))


def _settings(brokers: Sequence[FakeBroker], paired: bool, limits: Limits, shallow: ShallowSettings) -> Settings:
    names = "from", "to"
    modes = Mode.WRAP, Mode.UNWRAP
    return Settings(
        clusters=tuple(
            ClusterSettings(name=name, bootstrap=(broker.address,)) for name, broker in zip(names, brokers, strict=True)
        ),
        listeners=tuple(
            ListenerSettings(
                name=name,
                cluster=name,
                port=free_range(1).first,
                nodes=free_range(),
                mode=mode,
                pair="to" if paired and mode is Mode.WRAP else None,
                shallow=shallow,
            )
            for name, mode in zip(names, modes, strict=True)
        ),
        limits=limits,
    )
