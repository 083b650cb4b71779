"""The target side: a mirror's produce requests, whose envelopes are opened.

    plan        each record set -> items (planning.py), stamped if the mirror is idempotent (`_prepare`)
    schedule    what is appended, in doubt, and stamped how (`_schedule`)    ┐
    exchange    requests to the broker until all is done (exchange.py)       │ with the partitions' locks
    fold        findings -> knowledge; outcomes -> one answer (fold.py)      ┘

A request without any envelope is forwarded unchanged after the plan (`_forward`).

Meanwhile nothing more is read from the connection, as at a broker. Only one connection at a time writes to a partition:
a mirror that lost its connection sends everything again over a new one, and until then the batches in flight on the old
one must be either known to be appended, or failed. This also keeps the order.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from shoal.protocol.records.batch import BatchHeader, read_batch_header
from shoal.protocol.records.rebatch import compress_plain
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.shallow.same_offsets.fenced import FencedPartition
from shoal.protocol.shallow.unwrap.findings import TRY_AGAIN
from shoal.protocol.shallow.unwrap.mirror_producers import Prepared
from shoal.protocol.shallow.unwrap.plan import Plan, Refused
from shoal.protocol.shallow.unwrap.progress import PartitionProgress
from shoal.protocol.shallow.unwrap.raw_retries import Retried
from shoal.protocol.shallow.unwrap.schedule import Schedule
from shoal.protocol.transform.addresses import ADDRESS_RESPONSES
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.connection.routes import Decision, Route, RouteTable, table
from shoal.proxy.listener.plain import ADDRESSES, PLAIN_ROUTES
from shoal.proxy.net.upstream import UpstreamLost
from shoal.proxy.shallow.annotations import NOT_UNWRAPPED
from shoal.proxy.shallow.claims.redemption import read_again
from shoal.proxy.shallow.counters import ShallowTally
from shoal.proxy.shallow.unwrap.copies import Copies
from shoal.proxy.shallow.unwrap.exchange import exchange
from shoal.proxy.shallow.unwrap.fold import Fold, TargetKnowledge
from shoal.proxy.shallow.unwrap.partition_locks import PartitionLocks
from shoal.proxy.shallow.unwrap.planning import UNKNOWN_TOPIC, BatchesMissing, Planner
from shoal.proxy.shallow.unwrap.producer_ids import WATCHED_VERSIONS
from shoal.proxy.shallow.unwrap.reconciliation import Reconciliation
from shoal.proxy.shallow.unwrap.target_state import TargetState
from shoal.proxy.statistics import CloseCause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from shoal.protocol.schema.headers import RequestHeader
    from shoal.protocol.shallow.envelope import EnvelopeKey
    from shoal.protocol.shallow.unwrap.sequences.own import Sequences
    from shoal.protocol.wire.types import TopicPartition
    from shoal.proxy.config.settings import ListenerSettings
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.listener.listener import Listener
    from shoal.proxy.net.transport import Buffer
    from shoal.proxy.shallow.claims.background_reads import Found
    from shoal.proxy.shallow.interlock import Interlocks
    from shoal.proxy.shallow.monitor.monitor import MirrorMonitors
    from shoal.proxy.shallow.unwrap.answer import MirrorRequest
    from shoal.proxy.shallow.unwrap.copies import Located
    from shoal.proxy.shallow.unwrap.planning import Plans
    from shoal.proxy.statistics import PathStatistics

    _Work = Plan | Prepared | Retried | Refused

__all__ = ["UnwrapPath"]

_OLDEST = 3  # older requests have records without headers, so no envelopes
_READ_SECONDS = 10.0  # for batches that must be read again; a mirror gives up after 30 s (request.timeout.ms)


class UnwrapPath:
    """The path of an unwrapping listener. `interlocks` are those of the wrapping listeners paired with it."""

    def __init__(
        self,
        listener: Listener,
        interlocks: Interlocks,
        monitors: MirrorMonitors,
        *,
        clock: Callable[[], float] = trio.current_time,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        settings = listener.settings
        self.tally = ShallowTally()
        codec = settings.shallow.plain_compression
        self._plain_codec = Codec[codec.upper()] if codec else None
        self._state = TargetState(listener, monitors, self._plain_codec, clock=clock)
        self.target = TargetKnowledge(
            tally=self.tally,
            ids=self._state.ids,
            refused=interlocks.refused,
            reconciliation=Reconciliation(self.tally),
            monitors=monitors,
            translation=self._state.translation,
            copies=Copies(settings.name, interlocks),
            interlocks=interlocks,
            sets_lost=Counter(),
        )
        self._name = settings.name
        self._listener = listener
        self._ended = ended
        self._cluster = listener.cluster
        self.interlocks = interlocks
        self.monitors = monitors
        self._locks = PartitionLocks()
        self._takes_sets: dict[int, bool] = {}  # by node id
        self._planner = Planner(interlocks, self._plain_codec)
        self._leads_to: dict[Connection, str | None] = {}  # the cluster's id, if it was known
        produce = Route(since=_OLDEST, handle=self._handle)
        own: RouteTable[Connection] = {ApiKey.PRODUCE: produce, ApiKey.API_VERSIONS: WATCHED_VERSIONS}
        self.routes: RouteTable[Connection] = table({**PLAIN_ROUTES, **own})

    # -- called by the listener --------------------------------------------------------------------------------------

    def begin(self) -> None:
        if self._state.has_begun:  # the path of the listener that this one replaces
            return
        self._state.begin()
        self._cluster.when_made_anew.append(self._forget)
        self._cluster.when_identified.append(self._identified)
        if self._cluster.cluster_id is not None:
            self._identified(self._cluster.cluster_id)

    def opened(self, connection: Connection) -> None:
        self._leads_to[connection] = connection.cluster.cluster_id
        self.interlocks.producer_opened(connection)
        self.monitors.producer_opened()

    def closed(self, connection: Connection) -> None:
        del self._leads_to[connection]
        self.interlocks.producer_closed(connection)
        self.monitors.producer_closed()

    def tick(self, now: float) -> None:
        if self._state.has_begun:
            self._state.translation.tick(self._listener, now)

    def use(self, settings: ListenerSettings) -> None:
        pass

    def statistics(self) -> tuple[PathStatistics, ...]:
        return (self.tally.statistics(),)

    def gauges(self) -> Mapping[str, Mapping[str, float]]:
        return {}

    def status(self) -> dict[str, object]:
        takes_sets = {str(node): takes for node, takes in sorted(self._takes_sets.items())}
        return {"takes_sets": takes_sets, **self._state.status()}

    def end(self) -> None:
        self._state.end()
        for called, ours in (
            (self._cluster.when_made_anew, self._forget),
            (self._cluster.when_identified, self._identified),
        ):
            with suppress(ValueError):
                called.remove(ours)
        self._ended()

    def _identified(self, cluster: str) -> None:
        """The cluster is known now."""
        self._leads_to = {connection: known or cluster for connection, known in self._leads_to.items()}
        self._state.identified(cluster)

    def _forget(self, topic: str) -> None:
        """The topic was deleted: forget it, because a new one may have its name."""
        self._state.forget(topic)
        self.target.reconciliation.forget(topic)
        self.target.copies.forget_topic(topic)

    # -- one request, from top to bottom -----------------------------------------------------------------------------

    async def _handle(self, connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        found: dict[EnvelopeKey, Found] = {}
        deadline = trio.current_time() + _READ_SECONDS
        while True:
            try:
                return await self._open(connection, frame, header, found)
            except BatchesMissing as missing:
                wanted, wants_answer = missing.wanted, missing.wants_answer
            found |= await read_again(wanted, deadline)
            if wants_answer:
                connection.require_client()  # a mirror that was killed may have begun again, and this is older

    async def _open(
        self, connection: Connection, frame: bytearray, header: RequestHeader, again: Mapping[EnvelopeKey, Found]
    ) -> None:
        """`again`: batches of claim checks that were read again. Raises BatchesMissing before it does anything."""
        held, plans = await self._planner.plan(connection, frame, header, again)
        self._show(connection, held, plans)
        if len(set(held.partitions)) != len(held.partitions):
            raise RemoteProtocolError("a partition is twice in a produce request: Kafka would lose the first silently")
        await self._prove(connection)
        await connection.cluster.until_identified()
        async with self._locks.held(held.partitions) as has_waited:
            self._require_same_cluster(connection)
            if has_waited and held.wants_answer:
                connection.require_client()  # it may have sent it again over another connection
            work = self._prepare(connection, held, plans)
            if any(isinstance(step, Retried) for step in work.values()):
                connection.require_client()  # also if it has waited elsewhere
            if work:
                await self._unwrap(connection, held, plans, work)
        if not work:
            await self._forward(connection, held, plans)

    async def _unwrap(
        self,
        connection: Connection,
        held: MirrorRequest,
        plans: Plans,
        work: Mapping[TopicPartition, _Work],
    ) -> None:
        fold = Fold(self.target, connection, held)
        located = await self._locate(connection, held, work, fold)
        schedule = await self._schedule(connection, held, plans, work, located, fold)
        await exchange(connection, held, schedule, fold)
        if located:
            copied = {partition: plan for partition, plan in work.items() if isinstance(plan, Plan)}
            await self.target.copies.follow_log_starts(connection, held.header.client_id or "", copied)
        fold.arrived(schedule)
        refused = {partition: plan for partition, plan in work.items() if isinstance(plan, Refused)}
        answer = fold.answer(held.header.correlation_id, refused, schedule.outcomes())
        if held.wants_answer:
            await connection.reply(answer)
        elif refused:  # a broker, too, lets its client know in this way
            raise RemoteProtocolError(f"with acks=0, and refused: {next(iter(refused.values())).message}")
        elif (why := fold.why_closed()) is not None:
            connection.note(CloseCause.UPSTREAM_CLOSED, why)
            raise UpstreamLost(why)  # what the client has sent behind it is not read

    async def _locate(
        self, connection: Connection, held: MirrorRequest, work: Mapping[TopicPartition, _Work], fold: Fold
    ) -> dict[TopicPartition, Located]:
        """Where the logs of mirror topics end. What is answered at once goes to `fold`."""
        plans = {partition: plan for partition, plan in work.items() if isinstance(plan, Plan) and plan.keeps_offsets}
        if not plans:
            return {}
        located = await self.target.copies.locate(connection, held.header.client_id or "", plans)
        self._require_same_cluster(connection)
        for partition, found in located.items():
            if found.outcome is not None:
                fold.answered_at_once(partition, found.outcome)
        return located

    def _show(self, connection: Connection, held: MirrorRequest, plans: Plans) -> None:
        """Show the interlock what arrived: envelopes, and plain records while it waits for evidence."""
        for partition, produced in zip(held.partitions, held.request.partitions, strict=True):
            plan = plans.get(partition)
            if isinstance(plan, Plan):
                self.tally.opened_envelopes += len(plan.envelopes)
                if plan.keeps_offsets:
                    continue
                self.interlocks.arrived(connection, plan.envelopes)
                if plan.tokens:
                    self.interlocks.returned(connection, partition, plan.tokens)
            elif not isinstance(plan, Refused):
                record_set = memoryview(held.frame)[produced.start : produced.end]
                self.interlocks.produced(connection, partition.topic, partition.partition, record_set)
                if isinstance(plan, BatchHeader):
                    self.monitors.arrived(partition, plan.record_count, plan.crc)
            elif plan is not UNKNOWN_TOPIC and plan.error_code != TRY_AGAIN:
                self.target.reconciliation.refused()

    async def _prove(self, connection: Connection) -> None:
        """Also before the first envelope: until a broker is proven, the mirror gets tiny batches raw."""
        node_id = connection.bound_port.node_id
        if not self.interlocks.paired or node_id is None:
            return
        proofs = connection.cluster.proofs
        if proofs.is_due(connection):
            with self.interlocks.learning_sets():
                await proofs.ensure(connection)
        self._takes_sets[node_id] = proofs.is_proven(node_id)
        self.interlocks.say_takes_sets(all(self._takes_sets.values()))

    def _require_same_cluster(self, connection: Connection) -> None:
        """Raises UpstreamLost for a connection to a former cluster: what is known does not apply to it."""
        led_to, leads_to = self._leads_to[connection], connection.cluster.cluster_id
        if led_to != leads_to:
            raise UpstreamLost(f"it leads to cluster {led_to}, and by now the addresses lead to {leads_to}")

    def _prepare(self, connection: Connection, held: MirrorRequest, plans: Plans) -> dict[TopicPartition, _Work]:
        """-> the partitions with envelopes, an idempotent mirror's batches, or a raw batch that comes again.

        The caller holds their locks.
        """
        work: dict[TopicPartition, _Work] = {}
        for partition, (_, _, start, end) in zip(held.partitions, held.request.partitions, strict=True):
            plan = plans.get(partition)
            if isinstance(plan, Plan) and plan.keeps_offsets and self.target.copies.is_foreign(plan):
                plan = read_batch_header(held.frame, start, end)
            if isinstance(plan, Plan) and plan.keeps_offsets:
                work[partition] = self.target.copies.refusal(partition, plan) or plan
                self._state.raw.passed(partition)
                continue
            if isinstance(plan, Refused):
                work[partition] = plan
                continue
            prepared = self._state.producers.prepare(partition, held.frame, start, end, plan)
            if prepared is not None:
                work[partition] = prepared
            elif isinstance(plan, BatchHeader) and held.wants_answer:
                now, is_answered = trio.current_time(), not connection.in_flight
                retried = self._state.raw.take(
                    partition, held.frame, start, end, plan, now, origin=connection.number, is_answered=is_answered
                )
                if retried is not None:
                    work[partition] = retried
                continue
            self._state.raw.passed(partition)
        self._state.warn_of_slots()
        return work

    # -- schedule ----------------------------------------------------------------------------------------------------

    async def _schedule(
        self,
        connection: Connection,
        held: MirrorRequest,
        planned: Plans,
        work: Mapping[TopicPartition, _Work],
        located: Mapping[TopicPartition, Located],
        fold: Fold,
    ) -> Schedule:
        """Raises UpstreamLost and UpstreamFault."""
        found = {partition: plan for partition, plan in work.items() if isinstance(plan, Plan)}
        plans = {partition: plan for partition, plan in found.items() if partition not in located}
        fenced = {partition: plan for partition, plan in found.items() if partition in located}
        stamped = {partition: plan for partition, plan in work.items() if isinstance(plan, Prepared)}
        retried = {partition: plan for partition, plan in work.items() if isinstance(plan, Retried)}
        plain = dict(self._plain_record_sets(held, planned, work))
        proofs = connection.cluster.proofs
        several = any(plan.several for plan in (*found.values(), *(prepared.plan for prepared in stamped.values())))
        sets = several and await proofs.ensure(connection)
        stamped_sets = sets and proofs.stamps_are_known(connection)
        self._require_same_cluster(connection)
        sequences = await self._sequences(connection, held, plans) if stamped_sets or not sets else None
        self._require_same_cluster(connection)
        ours = [self._begin(partition, plan, sequences, fold, sets=sets) for partition, plan in plans.items()]
        theirs = [self._go_on(partition, plan, fold, sets=stamped_sets) for partition, plan in stamped.items()]
        raw = [PartitionProgress(partition, plan, last) for partition, (plan, last) in retried.items()]
        copies = [
            self._fence(partition, plan, located[partition], fold, sets=sets) for partition, plan in fenced.items()
        ]
        made = [copy for copy in copies if copy is not None]
        return Schedule((*ours, *theirs, *raw, *made), plain, own_bytes=len(held.frame))

    async def _sequences(
        self, connection: Connection, held: MirrorRequest, plans: Mapping[TopicPartition, Plan]
    ) -> Sequences | None:
        if held.request.transactional_id is not None or not plans:
            return None
        wanted = [(partition, plan.sender) for partition, plan in plans.items()]
        return await self._state.ids.sequences_for(connection, held.header, wanted)

    def _begin(
        self, partition: TopicPartition, plan: Plan, sequences: Sequences | None, fold: Fold, *, sets: bool
    ) -> PartitionProgress:
        """With Shoal's own stamps, or without stamps."""
        sequence = sequences.of(partition, plan.sender) if sequences is not None else None
        progress = PartitionProgress(partition, plan, self._state.deliveries, sequence=sequence, sets=sets)
        fold.planned(partition, plan, repeats=progress.repeats)
        return progress

    def _fence(
        self, partition: TopicPartition, plan: Plan, located: Located, fold: Fold, *, sets: bool
    ) -> FencedPartition | None:
        """None: it is answered already."""
        if located.end is None:
            return None
        copies = self.target.copies
        fenced = FencedPartition(
            partition,
            plan,
            copies.ends,
            located.end,
            position=located.position,
            text=fold.text,
            begin=copies.source_start(plan),
        )
        fenced.sets = sets
        fold.take(fenced.findings())
        return fenced

    def _go_on(self, partition: TopicPartition, prepared: Prepared, fold: Fold, *, sets: bool) -> PartitionProgress:
        """With the mirror's stamps."""
        placed = prepared.deliveries.placed
        fold.planned(partition, prepared.plan, repeats=int(placed.appended > 0))
        return PartitionProgress(partition, prepared.plan, prepared.deliveries, sets=sets, again=placed.again)

    # -- a request without envelopes ---------------------------------------------------------------------------------

    async def _forward(self, connection: Connection, held: MirrorRequest, plans: Plans) -> None:
        """Unchanged, or with its plain batches compressed if the settings require it."""
        buffers: Sequence[Buffer] = [held.frame]
        if self._plain_codec is not None:
            buffers = held.encode(self._plain_record_sets(held, plans, {}))
        if not held.wants_answer:
            return await connection.broker.forward(buffers, Decision.SILENT, note=NOT_UNWRAPPED)
        answer = ADDRESSES if held.header.api_version >= ADDRESS_RESPONSES[ApiKey.PRODUCE] else None
        return await connection.broker.forward(buffers, answer, note=NOT_UNWRAPPED)

    def _plain_record_sets(
        self, held: MirrorRequest, plans: Plans, work: Mapping[TopicPartition, _Work]
    ) -> Iterator[tuple[TopicPartition, Sequence[Buffer]]]:
        """The partitions without work."""
        frame, codec = held.frame, self._plain_codec
        for partition, (_, _, start, end) in zip(held.partitions, held.request.partitions, strict=True):
            if partition not in work:
                plan, compressed = plans.get(partition), None
                if codec is not None and isinstance(plan, BatchHeader):
                    compressed = compress_plain(plan, frame, start, end, codec)
                yield partition, compressed or [memoryview(frame)[start:end]]
