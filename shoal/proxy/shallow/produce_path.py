"""The target side: produce requests of a mirror, with the envelopes in them opened (design section 1).

    hold the request ── plan each partition ──┬── no envelope anywhere: forward it untouched
                                              └── an exchange (exchange.py): requests with batches of every partition
                                                  until all are done ── one answer for the mirror

While this goes on nothing further is read from the connection: a broker does the same. A partition is worked on by one
connection at a time, however many there are: a mirror that lost its connection sends everything again over a new one, and
must find what the old one still has in flight either appended and known, or failed. That keeps the order, too.
"""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import trio

from shoal.protocol.messages.produce import encode_produce_request, read_produce_request, read_produce_response
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.shallow.unwrap.delivery import AppendedLog
from shoal.protocol.shallow.unwrap.mirror_producers import MirrorProducers, Passing, Prepared
from shoal.protocol.shallow.unwrap.plain import compress_plain
from shoal.protocol.shallow.unwrap.plan import MAX_OUTER_BYTES, Plan, Refused, Stripped, plan_record_set
from shoal.protocol.transform.addresses import ADDRESS_RESPONSES
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.capture.annotations import NOT_UNWRAPPED
from shoal.proxy.connection.in_flight import Edit
from shoal.proxy.connection.routes import Decision, Route, RouteTable, table
from shoal.proxy.connection.topic_names import Naming
from shoal.proxy.errors import UpstreamLost
from shoal.proxy.plain import ADDRESSES, PLAIN_ROUTES
from shoal.proxy.shallow.books import Reconciliation
from shoal.proxy.shallow.counters import ShallowTally
from shoal.proxy.shallow.exchange import Exchange, encode_sets
from shoal.proxy.shallow.files.deliveries import load_deliveries, save_deliveries
from shoal.proxy.shallow.files.doubt import load_doubt, save_doubt
from shoal.proxy.shallow.files.producers import ProducersFile
from shoal.proxy.shallow.partition_locks import PartitionLocks
from shoal.proxy.shallow.producer_ids import WATCHED_VERSIONS, ProducerIds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shoal.protocol.messages.produce import ProducePartition, ProduceRequest
    from shoal.protocol.schema.headers import RequestHeader
    from shoal.protocol.shallow.unwrap.delivery import Target
    from shoal.protocol.wire.types import Topic
    from shoal.proxy.cluster.multi_batch import MultiBatchProofs
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.in_flight import PendingAnswer
    from shoal.proxy.listeners import Listener
    from shoal.proxy.net.transport import Buffer
    from shoal.proxy.shallow.interlock import Interlocks
    from shoal.proxy.statistics import PathStatistics

__all__ = ["UnwrapPath"]

log = logging.getLogger("shoal.unwrap")

_OLDEST = 3  # below, no record has headers or comes from a mirror that was given envelopes
_NOBODY_ASKED = 0  # acks
_TOO_MUCH = Refused(
    error_code=ErrorCode.MESSAGE_TOO_LARGE,
    message=f"the compressed batches with envelopes of one request are more than {MAX_OUTER_BYTES} bytes when opened",
)
_BUSY_SECONDS = 0.05  # others wait for so long at most, or for one partition
_SLOTS_USED_UP = (
    "listener %r: more than %d producer ids and partitions of idempotent mirrors have come: those unused for the longest time are "
    "forgotten, and a mirror that goes on with one is told that its numbers are out of order (error 45): raise producer-slots then"
)
_UNKNOWN = Refused(
    error_code=ErrorCode.UNKNOWN_TOPIC_ID, message="the broker does not know a topic with this id (yet, or any more)"
)


class UnwrapPath:
    """What an unwrapping listener plugs in. `interlocks` are those of the wrapping listeners paired with it."""

    def __init__(self, listener: Listener, interlocks: Interlocks) -> None:
        self.tally = ShallowTally()
        self.deliveries = AppendedLog()
        self.books = Reconciliation(self.tally)
        self._name = listener.settings.name
        self._state_failed = listener.state_failed
        self._interlocks = interlocks
        self.refused = interlocks.refused
        self._locks = PartitionLocks()
        self.ids = ProducerIds(self._name)
        self._takes_sets: dict[int, bool] = {}  # by node id
        self.sets_lost: Counter[int | None] = Counter()  # connections in a row that ended on a set, by node id
        codec = listener.settings.shallow.plain_compression
        self._plain_codec = Codec[codec.upper()] if codec else None
        self._file = ProducersFile(
            listener.settings.name,
            listener.settings.producers_file,
            slots=listener.settings.shallow.producer_slots,
            gave_up=listener.state_failed,
        )
        self._told_of_slots = False
        self._led_to: dict[Connection, str | None] = {}  # the cluster's id, as far as it was known
        self._producers = self._mirror_producers()
        self._kept = listener.settings.producers_file
        if self._kept is not None:
            load_deliveries(self._kept.with_suffix(".deliveries"), self.deliveries, failed=listener.state_failed)
            load_doubt(self._kept.with_suffix(".doubt"), self.ids, failed=listener.state_failed)
        listener.cluster.when_made_anew.append(self._forget)
        listener.cluster.when_identified.append(self._identified)
        produce = Route(since=_OLDEST, handle=self._handle)
        own: dict[int, Route] = {ApiKey.PRODUCE: produce, ApiKey.API_VERSIONS: WATCHED_VERSIONS}
        self.routes: RouteTable = table({**PLAIN_ROUTES, **own})

    def _mirror_producers(self) -> MirrorProducers:
        file = self._file
        return MirrorProducers(file.slots, keep=file.write, plain_codec=self._plain_codec)

    def _identified(self, cluster: str) -> None:
        """What is known of mirrors may be of another cluster: then it says nothing of this one."""
        self._led_to = {connection: known or cluster for connection, known in self._led_to.items()}
        if self._file.of(cluster):
            self._producers = self._mirror_producers()
            self.deliveries = AppendedLog()

    def require_same_cluster(self, connection: Connection) -> None:
        """What is known is of the cluster as it is now; what is appended over a connection to a former one is not. Raises UpstreamLost."""
        led_to, leads_to = self._led_to[connection], connection.cluster.cluster_id
        if led_to != leads_to:
            raise UpstreamLost(f"it leads to cluster {led_to}, and by now the addresses lead to {leads_to}")

    def opened(self, connection: Connection) -> None:
        self._led_to[connection] = connection.cluster.cluster_id
        self._interlocks.producer_opened(connection)

    def closed(self, connection: Connection) -> None:
        del self._led_to[connection]
        self._interlocks.producer_closed(connection)

    def tick(self, now: float) -> None:
        pass

    def statistics(self) -> tuple[PathStatistics, ...]:
        return (self.tally.statistics(),)

    def end(self) -> None:
        if self._kept is not None:
            save_deliveries(self._kept.with_suffix(".deliveries"), self.deliveries, failed=self._state_failed)
            save_doubt(self._kept.with_suffix(".doubt"), self.ids, failed=self._state_failed)
        self._file.close()

    def proofs(self, connection: Connection) -> MultiBatchProofs:
        return connection.cluster.proofs

    def _forget(self, topic: str) -> None:
        """What was known of a topic that was deleted says nothing of the one that has its name."""
        self.deliveries.forget(topic)
        self.ids.forget_topic(topic)
        self.books.reconciler.forget(topic)

    async def _handle(self, connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        request = read_produce_request(frame, header.api_version)
        found = await self._plans(frame, request)
        naming = await Naming.learn(connection, header.client_id, [one.topic for one in request.partitions])
        if any(isinstance(plan, Stripped) for plan in found):
            frame = self._strip(connection, frame, request, header, naming, found)
            request = read_produce_request(frame, header.api_version)
            found = await self._plans(frame, request)
        plans: dict[Target, Plan | Refused] = {}
        targets = []
        for one, plan in zip(request.partitions, found, strict=True):
            target = naming.target(one.topic, one.partition)
            targets.append(target)
            if target.topic in naming.unknown:
                plans[target] = _UNKNOWN
            elif isinstance(plan, Plan | Refused):
                plans[target] = plan
        self._show(connection, frame, request, naming, plans)
        if len(set(targets)) != len(targets):
            raise RemoteProtocolError(
                "a partition stands twice in a produce request: Kafka would lose the first silently"
            )
        await self._prove(connection)
        await connection.cluster.asked()
        async with self._locks.held(targets):
            self.require_same_cluster(connection)
            works, passing = self._prepared(frame, request, naming, plans)
            if works:
                await Exchange(self, connection, frame, request, header, naming, works, passing).run()
        if not works:
            await self._forward(connection, frame, request, header, naming, passing)

    async def _plans(self, frame: bytearray, request: ProduceRequest) -> list[Plan | Stripped | Refused | None]:
        plans, opened, began = list[Plan | Stripped | Refused | None](), 0, trio.current_time()
        for _, _, start, end in request.partitions:
            plan = plan_record_set(frame, start, end, plain_codec=self._plain_codec)
            if isinstance(plan, Plan):
                opened += plan.opened
            is_within = opened <= MAX_OUTER_BYTES or not isinstance(plan, Plan) or not plan.opened
            plans.append(plan if is_within else _TOO_MUCH)
            if trio.current_time() - began >= _BUSY_SECONDS:  # of many partitions, each may be costly to search
                await trio.lowlevel.checkpoint()
                began = trio.current_time()
        return plans

    def _strip(
        self,
        connection: Connection,
        frame: bytearray,
        request: ProduceRequest,
        header: RequestHeader,
        naming: Naming,
        plans: Sequence[Plan | Stripped | Refused | None],
    ) -> bytearray:
        """The same request, without the tokens of batches in which there is no envelope. They have come back."""
        topics: dict[Topic, list[tuple[int, Sequence[Buffer]]]] = {}
        for (topic, index, start, end), plan in zip(request.partitions, plans, strict=True):
            pieces: Buffer = memoryview(frame)[start:end]
            if isinstance(plan, Stripped):
                self._interlocks.returned(connection, naming.target(topic, index), plan.tokens)
                pieces = plan.record_set
            topics.setdefault(topic, []).append((index, [pieces]))
        return bytearray().join(encode_produce_request(frame, request, header.correlation_id, list(topics.items())))

    async def _prove(self, connection: Connection) -> None:
        """Also where there is no envelope yet: as long as nothing is proven, tiny batches come raw only."""
        node_id = connection.door.node_id
        if not self._interlocks.paired or node_id is None:
            return
        proofs = self.proofs(connection)
        if not proofs.may_send_sets(connection):
            with self._interlocks.learning_sets():
                await proofs.ensure(connection)
        self._takes_sets[node_id] = proofs.is_proven(node_id)
        self._interlocks.say_takes_sets(all(self._takes_sets.values()))

    def _prepared(
        self, frame: bytearray, request: ProduceRequest, naming: Naming, plans: dict[Target, Plan | Refused]
    ) -> tuple[dict[Target, Plan | Prepared | Refused], dict[Target, Passing]]:
        """The partitions of which something changes, and those whose success is to be noted. Whoever asks holds their locks."""
        works: dict[Target, Plan | Prepared | Refused] = dict(plans)
        passing: dict[Target, Passing] = {}
        for topic, index, start, end in request.partitions:
            target = naming.target(topic, index)
            plan = plans.get(target)
            if isinstance(plan, Refused):
                continue
            prepared = self._producers.prepare(target, frame, start, end, plan)
            if isinstance(prepared, Passing):
                passing[target] = prepared
            elif prepared is not None:
                works[target] = prepared
        if not self._told_of_slots and self._producers.statistics().forgotten:
            self._told_of_slots = True
            log.warning(_SLOTS_USED_UP, self._name, self._producers.slots)
        return works, passing

    async def _forward(
        self,
        connection: Connection,
        frame: bytearray,
        request: ProduceRequest,
        header: RequestHeader,
        naming: Naming,
        passing: Mapping[Target, Passing],
    ) -> None:
        """A request without envelopes: as it is, or with its plain batches compressed where that was asked for."""
        buffers: Sequence[Buffer] = [frame]
        if self._plain_codec is not None:
            sets = [
                (naming.target(one.topic, one.partition), self.record_set(frame, one)) for one in request.partitions
            ]
            buffers = encode_sets(frame, request, header, naming, sets)
        if request.acks == _NOBODY_ASKED:
            return await connection.forward(buffers, Decision.SILENT, note=NOT_UNWRAPPED)
        answer = ADDRESSES if header.api_version >= ADDRESS_RESPONSES[ApiKey.PRODUCE] else None
        if passing:
            answer = Edit(partial(_noted, naming, passing, answer))
        return await connection.forward(buffers, answer, note=NOT_UNWRAPPED)

    def record_set(self, frame: bytearray, one: ProducePartition) -> Sequence[Buffer]:
        """Of a partition without an envelope."""
        codec = self._plain_codec
        compressed = compress_plain(frame, one.start, one.end, codec) if codec is not None else None
        return compressed or [memoryview(frame)[one.start : one.end]]

    def _show(
        self,
        connection: Connection,
        frame: bytearray,
        request: ProduceRequest,
        naming: Naming,
        plans: dict[Target, Plan | Refused],
    ) -> None:
        """Tell the interlock what has come: envelopes, and, where it waits for evidence, plain records."""
        for topic, index, start, end in request.partitions:
            target = naming.target(topic, index)
            plan = plans.get(target)
            if isinstance(plan, Plan):
                self.tally.opened_envelopes += len(plan.envelopes)
                self._interlocks.arrived(connection, plan.envelopes)
                if plan.tokens:
                    self._interlocks.returned(connection, target, plan.tokens)
            elif plan is None:
                self._interlocks.produced(connection, target.topic, index, memoryview(frame)[start:end])
            elif plan is not _UNKNOWN:
                self.books.reconciler.refused()


def _noted(
    naming: Naming,
    passing: Mapping[Target, Passing],
    plain: Edit | None,
    connection: Connection,
    entry: PendingAnswer,
    frame: Buffer,
) -> Buffer | Sequence[Buffer]:
    """The answer to what passed as it was, on its way to the mirror: what is appended now."""
    for one in read_produce_response(frame, entry.api_version).partitions:
        target = naming.target(one.topic, one.partition)
        if not one.error_code and target in passing:
            passing[target].appended(one.base_offset)
    return frame if plain is None else plain.edit(connection, entry, frame)
