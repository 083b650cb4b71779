"""The target side: a mirror's produce requests, whose envelopes are opened.

    plan        each record set -> items (`_plan`), stamped if the mirror is idempotent (`_prepare`)
    schedule    what is appended, in doubt, and stamped how (`_schedule`)    ┐
    exchange    requests to the broker until all is done (exchange.py)       │ with the partitions' locks
    fold        findings -> knowledge; outcomes -> one answer (fold.py)      ┘

A request without any envelope is forwarded unchanged after the plan (`_forward`).

Meanwhile nothing more is read from the connection, as at a broker. Only one connection at a time writes to a partition:
a mirror that lost its connection sends everything again over a new one, and until then the batches in flight on the old
one must be either known to be appended, or failed. This also keeps the order.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from shoal.protocol.messages.produce import encode_produce_request, read_produce_request
from shoal.protocol.records.batch import BatchHeader, read_batch_header
from shoal.protocol.records.rebatch import compress_plain
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.shallow.same_offsets.fenced import FencedPartition
from shoal.protocol.shallow.unwrap.findings import TRY_AGAIN
from shoal.protocol.shallow.unwrap.mirror_producers import MirrorProducers, Prepared
from shoal.protocol.shallow.unwrap.plan import Missing, Plan, Refused, Stripped
from shoal.protocol.shallow.unwrap.plan_record_set import MAX_OUTER_BYTES, plan_record_set
from shoal.protocol.shallow.unwrap.progress import PartitionProgress
from shoal.protocol.shallow.unwrap.raw_retries import RawRetries, Retried
from shoal.protocol.shallow.unwrap.schedule import Schedule
from shoal.protocol.transform.addresses import ADDRESS_RESPONSES
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.connection.routes import Decision, Route, RouteTable, table
from shoal.proxy.connection.topic_names import Naming
from shoal.proxy.events.logs import event
from shoal.proxy.listener.plain import ADDRESSES, PLAIN_ROUTES
from shoal.proxy.net.upstream import UpstreamLost
from shoal.proxy.shallow.annotations import NOT_UNWRAPPED
from shoal.proxy.shallow.claims.redemption import Redemption, read_again
from shoal.proxy.shallow.counters import ShallowTally
from shoal.proxy.shallow.files.deliveries import DeliveriesLog
from shoal.proxy.shallow.files.doubt import load_doubt, save_doubt
from shoal.proxy.shallow.files.producers import ProducersFile
from shoal.proxy.shallow.unwrap.answer import MirrorRequest
from shoal.proxy.shallow.unwrap.copies import Copies
from shoal.proxy.shallow.unwrap.exchange import exchange
from shoal.proxy.shallow.unwrap.fold import Fold, TargetKnowledge
from shoal.proxy.shallow.unwrap.partition_locks import PartitionLocks
from shoal.proxy.shallow.unwrap.producer_ids import WATCHED_VERSIONS, ProducerIds
from shoal.proxy.shallow.unwrap.reconciliation import Reconciliation
from shoal.proxy.shallow.unwrap.translation import Translation
from shoal.proxy.statistics import CloseCause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from shoal.protocol.messages.produce import ProducePartition, ProduceRequest
    from shoal.protocol.schema.headers import RequestHeader
    from shoal.protocol.shallow.envelope import EnvelopeKey
    from shoal.protocol.shallow.unwrap.sequences.own import Sequences
    from shoal.protocol.wire.types import Topic, TopicPartition
    from shoal.proxy.config.settings import ListenerSettings
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.listener.listener import Listener
    from shoal.proxy.net.transport import Buffer
    from shoal.proxy.shallow.claims.background_reads import Found
    from shoal.proxy.shallow.claims.claim_checks import ClaimChecks
    from shoal.proxy.shallow.interlock import Interlocks
    from shoal.proxy.shallow.monitor.monitor import MirrorMonitors
    from shoal.proxy.shallow.unwrap.copies import Located
    from shoal.proxy.statistics import PathStatistics

    _Planned = Plan | Stripped | Refused | BatchHeader | None
    _Plans = Mapping[TopicPartition, Plan | Refused | BatchHeader]
    _Work = Plan | Prepared | Retried | Refused

__all__ = ["UnwrapPath"]

log = logging.getLogger("shoal.unwrap")

_OLDEST = 3  # older requests have records without headers, so no envelopes
_TOO_MUCH = Refused(
    error_code=ErrorCode.MESSAGE_TOO_LARGE,
    message=f"a request has compressed batches with envelopes, or claim checks, for more than {MAX_OUTER_BYTES} bytes",
)
_READ_SECONDS = 10.0  # for batches that must be read again; a mirror gives up after 30 s (request.timeout.ms)
_BUSY_SECONDS = 0.05  # other connections wait at most this long, or for one partition
_SLOTS_USED_UP = (
    "more than {} pairs of producer id and partition of idempotent mirrors are in use: those unused for the longest "
    "time are forgotten, and a mirror that continues with one gets error 45 (OUT_OF_ORDER_SEQUENCE_NUMBER): raise "
    "producer-slots (shoal mirror: --producer-slots) and restart Shoal"
)
_UNKNOWN = Refused(
    error_code=ErrorCode.UNKNOWN_TOPIC_ID, message="the broker does not know a topic with this id (yet, or any more)"
)


class _BatchesMissing(Exception):
    """Those of these claim checks must be read from the source before the request can be planned."""

    def __init__(self, wanted: Mapping[EnvelopeKey, Sequence[ClaimChecks]], *, wants_answer: bool) -> None:
        super().__init__()
        self.wanted = wanted
        self.wants_answer = wants_answer


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
        self.deliveries = DeliveriesLog()
        self.ids = ProducerIds(settings.name, clock=clock)
        self.refused = interlocks.refused
        self._translation = Translation(
            settings.name, monitors, _beside(settings.producers_file, ".offsets"), listener.state_failed
        )
        self.target = TargetKnowledge(
            tally=self.tally,
            ids=self.ids,
            refused=self.refused,
            reconciliation=Reconciliation(self.tally),
            monitors=monitors,
            translation=self._translation,
            copies=Copies(settings.name, interlocks),
            interlocks=interlocks,
            sets_lost=Counter(),
        )
        self._name = settings.name
        self._listener = listener
        self._ended = ended
        self._cluster = listener.cluster
        self._state_failed = listener.state_failed
        self.interlocks = interlocks
        self.monitors = monitors
        self._locks = PartitionLocks()
        self._takes_sets: dict[int, bool] = {}  # by node id
        codec = settings.shallow.plain_compression
        self._plain_codec = Codec[codec.upper()] if codec else None
        self._slots = settings.shallow.producer_slots
        self._file = ProducersFile(settings.name, None, slots=0)
        self._has_begun = False
        self._warned_of_slots = False
        self._leads_to: dict[Connection, str | None] = {}  # the cluster's id, if it was known
        self._producers = self._mirror_producers()
        self._raw = RawRetries(self._plain_codec)
        self._kept = settings.producers_file
        produce = Route(since=_OLDEST, handle=self._handle)
        own: RouteTable[Connection] = {ApiKey.PRODUCE: produce, ApiKey.API_VERSIONS: WATCHED_VERSIONS}
        self.routes: RouteTable[Connection] = table({**PLAIN_ROUTES, **own})

    # -- called by the listener --------------------------------------------------------------------------------------

    def begin(self) -> None:
        if self._has_begun:  # the path of the listener that this one replaces
            return
        self._file = ProducersFile(self._name, self._kept, slots=self._slots, gave_up=self._state_failed)
        self._producers = self._mirror_producers()
        if self._kept is not None:
            self.deliveries.open(self._kept.with_suffix(".deliveries"), self._state_failed)
            for doubt in load_doubt(self._kept.with_suffix(".doubt"), failed=self._state_failed):
                self.ids.restore(*doubt)
        self._translation.begin()
        self._has_begun = True
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
        if self._has_begun:
            self._translation.tick(self._listener, now)

    def use(self, settings: ListenerSettings) -> None:
        pass

    def statistics(self) -> tuple[PathStatistics, ...]:
        return (self.tally.statistics(),)

    def gauges(self) -> Mapping[str, Mapping[str, float]]:
        return {}

    def status(self) -> dict[str, object]:
        slots = self._producers.statistics()
        return {
            "takes_sets": {str(node): takes for node, takes in sorted(self._takes_sets.items())},
            "translation": self._translation.statistics(),
            "producer_slots": {"known": slots.known, "forgotten": slots.forgotten, "refused": slots.refused},
        }

    def end(self) -> None:
        if self._kept is not None and self._has_begun:
            save_doubt(self._kept.with_suffix(".doubt"), self.ids.in_doubt(), failed=self._state_failed)
            self._translation.end()
        self.deliveries.close()
        self._file.close()  # the last one: it has the lock
        for called, ours in (
            (self._cluster.when_made_anew, self._forget),
            (self._cluster.when_identified, self._identified),
        ):
            with suppress(ValueError):
                called.remove(ours)
        self._ended()

    def _mirror_producers(self) -> MirrorProducers:
        file = self._file
        return MirrorProducers(file.slots, keep=file.write, plain_codec=self._plain_codec)

    def _identified(self, cluster: str) -> None:
        """The cluster is known now. Knowledge about mirrors that is of another cluster is dropped."""
        self._leads_to = {connection: known or cluster for connection, known in self._leads_to.items()}
        self._translation.identified(cluster)
        if self._file.of(cluster):
            self._producers = self._mirror_producers()
            self.deliveries = self.deliveries.for_another_cluster()
            self._raw = RawRetries(self._plain_codec)

    def _forget(self, topic: str) -> None:
        """The topic was deleted: forget it, because a new one may have its name."""
        self.deliveries.forget(topic)
        self.ids.forget_topic(topic)
        self._raw.forget(topic)
        self.target.reconciliation.forget(topic)
        self._translation.forget_target(topic)
        self.target.copies.forget_topic(topic)

    # -- one request, from top to bottom -----------------------------------------------------------------------------

    async def _handle(self, connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        found: dict[EnvelopeKey, Found] = {}
        deadline = trio.current_time() + _READ_SECONDS
        while True:
            try:
                return await self._open(connection, frame, header, found)
            except _BatchesMissing as missing:
                wanted, wants_answer = missing.wanted, missing.wants_answer
            found |= await read_again(wanted, deadline)
            if wants_answer:
                connection.require_client()  # a mirror that was killed may have begun again, and this is older

    async def _open(
        self, connection: Connection, frame: bytearray, header: RequestHeader, again: Mapping[EnvelopeKey, Found]
    ) -> None:
        """`again`: batches of claim checks that were read again. Raises _BatchesMissing before it does anything."""
        held, plans = await self._plan(connection, frame, header, again)
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
            if any(isinstance(one, Retried) for one in work.values()):
                connection.require_client()  # also if it has waited elsewhere
            if work:
                await self._unwrap(connection, held, plans, work)
        if not work:
            await self._forward(connection, held, plans)

    async def _unwrap(
        self,
        connection: Connection,
        held: MirrorRequest,
        plans: _Plans,
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

    # -- plan --------------------------------------------------------------------------------------------------------

    async def _plan(
        self, connection: Connection, frame: bytearray, header: RequestHeader, again: Mapping[EnvelopeKey, Found]
    ) -> tuple[MirrorRequest, _Plans]:
        """-> the request without tokens, and what is known of its partitions."""
        request = read_produce_request(frame, header.api_version)
        naming = await Naming.learn(connection, header.client_id, [produced.topic for produced in request.partitions])
        planned = await self._plan_record_sets(frame, request, again)
        if any(isinstance(plan, Stripped) for plan in planned):
            sets = list(self._stripped(connection, frame, naming, zip(request.partitions, planned, strict=True)))
            frame = bytearray().join(encode_produce_request(frame, request, header.correlation_id, sets))
            request = read_produce_request(frame, header.api_version)
            planned = await self._plan_record_sets(frame, request, again)
        plans: dict[TopicPartition, Plan | Refused | BatchHeader] = {}
        partitions = [naming.target(produced.topic, produced.partition) for produced in request.partitions]
        for partition, plan in zip(partitions, planned, strict=True):
            if partition.topic in naming.unknown:
                plans[partition] = _UNKNOWN
            elif isinstance(plan, Plan | Refused | BatchHeader):
                plans[partition] = plan
        return MirrorRequest(frame=frame, header=header, request=request, naming=naming, partitions=partitions), plans

    async def _plan_record_sets(
        self, frame: bytearray, request: ProduceRequest, again: Mapping[EnvelopeKey, Found]
    ) -> list[_Planned]:
        plans: list[_Planned] = []
        redemption = Redemption(list(self.interlocks.checks), again, self.interlocks.have_left)
        opened, began = 0, trio.current_time()
        for _, _, start, end in request.partitions:
            plan = plan_record_set(frame, start, end, plain_codec=self._plain_codec, find=redemption.find)
            if isinstance(plan, Missing):
                continue
            if isinstance(plan, Plan):
                opened += plan.opened
            is_within = opened <= MAX_OUTER_BYTES or not isinstance(plan, Plan) or not plan.opened
            plans.append(plan if is_within else _TOO_MUCH)
            if trio.current_time() - began >= _BUSY_SECONDS:  # searching one of many partitions may be slow
                await trio.lowlevel.checkpoint()
                began = trio.current_time()
        if redemption.missing:
            raise _BatchesMissing(redemption.missing, wants_answer=request.acks != 0)
        return plans

    def _stripped(
        self,
        connection: Connection,
        frame: bytearray,
        naming: Naming,
        planned: Iterator[tuple[ProducePartition, _Planned]],
    ) -> Iterator[tuple[Topic, list[tuple[int, Sequence[Buffer]]]]]:
        """The record sets by topic, without tokens in batches that have no envelope. The tokens count as returned."""
        topics: dict[Topic, list[tuple[int, Sequence[Buffer]]]] = {}
        for (topic, index, start, end), plan in planned:
            record_set: Buffer = memoryview(frame)[start:end]
            if isinstance(plan, Stripped):
                self.interlocks.returned(connection, naming.target(topic, index), plan.tokens)
                record_set = plan.record_set
            topics.setdefault(topic, []).append((index, [record_set]))
        yield from topics.items()

    def _show(self, connection: Connection, held: MirrorRequest, plans: _Plans) -> None:
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
            elif plan is not _UNKNOWN and plan.error_code != TRY_AGAIN:
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

    def _prepare(self, connection: Connection, held: MirrorRequest, plans: _Plans) -> dict[TopicPartition, _Work]:
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
                self._raw.passed(partition)
                continue
            if isinstance(plan, Refused):
                work[partition] = plan
                continue
            prepared = self._producers.prepare(partition, held.frame, start, end, plan)
            if prepared is not None:
                work[partition] = prepared
            elif isinstance(plan, BatchHeader) and held.wants_answer:
                now, is_answered = trio.current_time(), not connection.in_flight
                retried = self._raw.take(
                    partition, held.frame, start, end, plan, now, origin=connection.number, is_answered=is_answered
                )
                if retried is not None:
                    work[partition] = retried
                continue
            self._raw.passed(partition)
        if not self._warned_of_slots and self._producers.statistics().forgotten:
            self._warned_of_slots = True
            text = f"listener {self._name!r}: {_SLOTS_USED_UP.format(self._producers.slots)}"
            log.warning("producer-slots-used-up", extra=event(text, listener=self._name, slots=self._producers.slots))
        return work

    # -- schedule ----------------------------------------------------------------------------------------------------

    async def _schedule(
        self,
        connection: Connection,
        held: MirrorRequest,
        planned: _Plans,
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
        return await self.ids.sequences_for(connection, held.header, wanted)

    def _begin(
        self, partition: TopicPartition, plan: Plan, sequences: Sequences | None, fold: Fold, *, sets: bool
    ) -> PartitionProgress:
        """With Shoal's own stamps, or without stamps."""
        sequence = sequences.of(partition, plan.sender) if sequences is not None else None
        progress = PartitionProgress(partition, plan, self.deliveries, sequence=sequence, sets=sets)
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

    async def _forward(self, connection: Connection, held: MirrorRequest, plans: _Plans) -> None:
        """Unchanged, or with its plain batches compressed if the settings require it."""
        buffers: Sequence[Buffer] = [held.frame]
        if self._plain_codec is not None:
            buffers = held.encode(self._plain_record_sets(held, plans, {}))
        if not held.wants_answer:
            return await connection.broker.forward(buffers, Decision.SILENT, note=NOT_UNWRAPPED)
        answer = ADDRESSES if held.header.api_version >= ADDRESS_RESPONSES[ApiKey.PRODUCE] else None
        return await connection.broker.forward(buffers, answer, note=NOT_UNWRAPPED)

    def _plain_record_sets(
        self, held: MirrorRequest, plans: _Plans, work: Mapping[TopicPartition, _Work]
    ) -> Iterator[tuple[TopicPartition, Sequence[Buffer]]]:
        """The partitions without work."""
        frame, codec = held.frame, self._plain_codec
        for partition, (_, _, start, end) in zip(held.partitions, held.request.partitions, strict=True):
            if partition not in work:
                plan, compressed = plans.get(partition), None
                if codec is not None and isinstance(plan, BatchHeader):
                    compressed = compress_plain(plan, frame, start, end, codec)
                yield partition, compressed or [memoryview(frame)[start:end]]


def _beside(file: Path | None, suffix: str) -> Path | None:
    return None if file is None else file.with_suffix(suffix)
