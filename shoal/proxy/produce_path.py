"""The target side: produce requests of a mirror, with the envelopes in them opened (design section 1).

    hold the request ── plan each partition ──┬── no envelope anywhere: forward it untouched
                                              └── rounds: one batch of every partition per request, until all are done
                                                  ── one answer for the mirror

While this goes on nothing further is read from the connection: a broker does the same. A partition is worked on by one
connection at a time, however many there are: a mirror that lost its connection sends everything again over a new one, and
must find what the old one still has in flight either appended and known, or failed. That keeps the order, too.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import trio

from shoal.protocol.api import ApiKey
from shoal.protocol.compression import Codec
from shoal.protocol.errors import RemoteProtocolError
from shoal.protocol.messages.produce import encode_produce_request, read_produce_request
from shoal.protocol.shallow.delivery import Deliveries, Target
from shoal.protocol.shallow.plain import compress_plain
from shoal.protocol.shallow.progress import PartitionProgress, Rounds
from shoal.protocol.shallow.unwrap import Plan, Refused, plan_record_set
from shoal.protocol.transform.addresses import ADDRESS_RESPONSES
from shoal.proxy.in_flight import UpstreamFault
from shoal.proxy.plain_path import ADDRESSES, PLAIN_ROUTES
from shoal.proxy.produce_answer import ProduceAnswer
from shoal.proxy.routes import Route, RouteTable, Verdict, table
from shoal.proxy.shallow_statistics import ShallowTally

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from shoal.protocol.headers import RequestHeader
    from shoal.protocol.messages.produce import ProducePartition, ProduceRequest
    from shoal.protocol.shallow.unwrap import SubBatch
    from shoal.protocol.wire import Topic
    from shoal.proxy.connection import Connection
    from shoal.proxy.interlock import Interlock
    from shoal.proxy.listeners import Listener
    from shoal.proxy.transport import Buffer

__all__ = ["UnwrapPath"]

log = logging.getLogger("shoal.unwrap")

_OLDEST = 3  # below, no record has headers or comes from a mirror that was given envelopes
_NOBODY_ASKED = 0  # acks
_LEADER = 1


class UnwrapPath:
    """What an unwrapping listener plugs in. `interlock` is that of the wrapping listeners paired with it."""

    def __init__(self, listener: Listener, interlock: Interlock) -> None:
        self.tally = ShallowTally()
        self.deliveries = Deliveries()
        self._name = listener.settings.name
        self._interlock = interlock
        self._locks = _PartitionLocks()
        codec = listener.settings.shallow.plain_compression
        self._plain_codec = Codec[codec.upper()] if codec else None
        produce = Route(since=_OLDEST, handle=self._handle)
        self.routes: RouteTable = table({**PLAIN_ROUTES, ApiKey.PRODUCE: produce})

    def opened(self, connection: Connection) -> None:
        self._interlock.producer_opened(connection)

    def closed(self, connection: Connection) -> None:
        self._interlock.producer_closed(connection)

    async def _handle(self, connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        request = read_produce_request(frame, header.api_version)
        plans = {
            Target(topic, index): plan
            for topic, index, start, end in request.partitions
            if (plan := plan_record_set(frame, start, end, plain_codec=self._plain_codec)) is not None
        }
        self._show(connection, frame, request, plans)
        targets = [Target(topic, index) for topic, index, _, _ in request.partitions]
        if len(set(targets)) != len(targets):
            raise RemoteProtocolError(
                "a partition stands twice in a produce request: Kafka would lose the first silently"
            )
        async with self._locks.held(targets):
            if plans:
                await _Exchange(self, connection, frame, request, header, plans).run()
        if not plans:
            await self._forward(connection, frame, request, header)

    async def _forward(
        self, connection: Connection, frame: bytearray, request: ProduceRequest, header: RequestHeader
    ) -> None:
        """A request without envelopes: as it is, or with its plain batches compressed where that was asked for."""
        buffers: Sequence[Buffer] = [frame]
        if self._plain_codec is not None:
            sets = [(Target(one.topic, one.partition), self.record_set(frame, one)) for one in request.partitions]
            buffers = _encode(frame, request, header, sets)
        if request.acks == _NOBODY_ASKED:
            return await connection.forward(buffers, Verdict.SILENT)
        edited = header.api_version >= ADDRESS_RESPONSES[ApiKey.PRODUCE]
        return await connection.forward(buffers, ADDRESSES if edited else None)

    def record_set(self, frame: bytearray, one: ProducePartition) -> Sequence[Buffer]:
        """Of a partition without an envelope."""
        codec = self._plain_codec
        compressed = compress_plain(frame, one.start, one.end, codec) if codec is not None else None
        return compressed or [memoryview(frame)[one.start : one.end]]

    def _show(
        self, connection: Connection, frame: bytearray, request: ProduceRequest, plans: dict[Target, Plan | Refused]
    ) -> None:
        """Tell the interlock what has come: envelopes, and, where it waits for evidence, plain records."""
        for topic, index, start, end in request.partitions:
            plan = plans.get(Target(topic, index))
            if isinstance(plan, Plan):
                self.tally.opened_envelopes += len(plan.envelopes)
                self._interlock.arrived(connection, plan.envelopes)
            elif plan is None:
                name = connection.cluster.topic_name(topic) if isinstance(topic, bytes) else topic
                if name is not None:
                    self._interlock.produced(connection, name, index, memoryview(frame)[start:end])


def _encode(
    frame: bytearray, request: ProduceRequest, header: RequestHeader, sets: Sequence[tuple[Target, Sequence[Buffer]]]
) -> list[Buffer]:
    """A request like `request`, which lies in `frame`, with these record sets."""
    topics: dict[Topic, list[tuple[int, Sequence[Buffer]]]] = {}
    for target, pieces in sets:
        topics.setdefault(target.topic, []).append((target.partition, pieces))
    return encode_produce_request(frame, request, header.correlation_id, list(topics.items()))


class _Exchange:
    """One produce request with envelopes, from its plans to its answer."""

    def __init__(
        self,
        path: UnwrapPath,
        connection: Connection,
        frame: bytearray,
        request: ProduceRequest,
        header: RequestHeader,
        plans: dict[Target, Plan | Refused],
    ) -> None:
        self._path = path
        self._connection = connection
        self._frame = frame
        self._header = header
        self._silent = request.acks == _NOBODY_ASKED
        # An answer to each batch is what keeps the order, whether the mirror wants one or not.
        self._request = replace(request, acks=_LEADER) if self._silent else request
        self._refused = {target: plan for target, plan in plans.items() if isinstance(plan, Refused)}
        progress = partial(PartitionProgress, deliveries=path.deliveries)
        avoided = path.deliveries.statistics().repeats_avoided
        self._rounds = Rounds(progress(target, plan) for target, plan in plans.items() if isinstance(plan, Plan))
        path.tally.retries_suppressed += path.deliveries.statistics().repeats_avoided - avoided
        self._plain = [
            (Target(one.topic, one.partition), path.record_set(frame, one))
            for one in request.partitions
            if Target(one.topic, one.partition) not in plans
        ]
        self._answer = ProduceAnswer(header.api_version, connection.lookup)

    async def run(self) -> None:
        """Raises UpstreamLost and UpstreamFault: then it is not known what of the last round was appended."""
        sends: list[tuple[Target, Sequence[Buffer]]] = list(self._plain)
        while True:
            batches = self._rounds.next_round()
            sends += [(target, batch.buffers) for target, batch in batches.items()]
            if not sends:
                break
            question = _encode(self._frame, self._request, self._header, sends)
            answered = self._answer.take(await self._connection.ask(question))
            for target in batches.keys() & answered.keys():
                self._count(batches[target], *answered[target])
                self._rounds.answered(target, *answered[target])
            for target, _ in sends:
                if target not in answered:
                    raise UpstreamFault(f"the broker's answer to Produce says nothing about {target}")
            sends = []
        self._conclude()
        if not self._silent:
            await self._connection.reply(self._answer.encode(self._header.correlation_id))

    def _count(self, batch: SubBatch, error_code: int, base_offset: int) -> None:
        tally = self._path.tally
        if error_code:
            tally.partition_errors += 1
        else:
            tally.unwrapped_batches += 1
            tally.unwrapped_records += batch.records
            tally.unwrapped_bytes += batch.size

    def _conclude(self) -> None:
        for target, refused in self._refused.items():
            self._complain(target, refused.error_code, refused.message)
            self._answer.refuse(target, refused.error_code, refused.message)
        for target, outcome in self._rounds.outcomes().items():
            if outcome.error_code:
                self._complain(target, outcome.error_code, outcome.message or "")
                self._answer.fail(target, outcome.error_code, outcome.message)
            else:
                self._answer.succeed(target, outcome.base_offset)

    def _complain(self, target: Target, error_code: int, message: str) -> None:
        connection = self._connection
        topic = target.topic
        name = connection.cluster.topic_name(topic) or topic.hex() if isinstance(topic, bytes) else topic
        log.warning(
            "%s-%d of cluster %r: error %d for %s (client id %s): %s",
            name,
            target.partition,
            connection.cluster.name,
            error_code,
            connection.peer,
            connection.client_id,
            message,
        )


class _PartitionLocks:
    """A lock for each partition that somebody works on or waits for; no more than there are held requests."""

    def __init__(self) -> None:
        self._locks: dict[Target, trio.Lock] = {}
        self._users: Counter[Target] = Counter()

    @asynccontextmanager
    async def held(self, targets: Iterable[Target]) -> AsyncIterator[None]:
        """All of `targets`, taken in one global order, so that two requests never wait for each other."""
        async with AsyncExitStack() as stack:
            for target in sorted(targets, key=_order):
                await stack.enter_async_context(self._one(target))
            yield

    @asynccontextmanager
    async def _one(self, target: Target) -> AsyncIterator[None]:
        lock = self._locks.setdefault(target, trio.Lock())
        self._users[target] += 1
        try:
            async with lock:
                yield
        finally:
            self._users[target] -= 1
            if not self._users[target]:
                del self._users[target], self._locks[target]


def _order(target: Target) -> tuple[bool, Topic, int]:
    return isinstance(target.topic, bytes), target.topic, target.partition
