"""A Fetch answer for a mirror, stage by stage (path.py): read, hold, review, wrap, commit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import trio

from shoal.protocol.messages.fetch import (
    read_fetch_response,
    replace_record_sets,
)
from shoal.protocol.records.scan import scan
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.shallow.interlock.rules import HandedOut, Raw, Withhold, Wrap
from shoal.protocol.shallow.token import Tokened
from shoal.protocol.shallow.wrap.eligible import Reason, Topics
from shoal.protocol.shallow.wrap.wrap import WrapContext, delivered, wrap
from shoal.protocol.transform.addresses import endpoint_edits
from shoal.protocol.wire.types import PartitionRef
from shoal.proxy.config.identity import envelope_headers
from shoal.proxy.config.settings import LARGEST_BATCH
from shoal.proxy.connection.topic_names import topic_name
from shoal.proxy.shallow.annotations import Judgement
from shoal.proxy.shallow.wrap.hold import EMPTY_HOLD, hold
from shoal.proxy.shallow.wrap.mirror_fetch import MOST_KEPT, AnsweredPartition, MirrorFetch

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from shoal.protocol.messages.fetch import FetchedPartition, FetchResponse
    from shoal.protocol.records.key_sample import KeySampler
    from shoal.protocol.records.scan import ScannedSet
    from shoal.protocol.shallow.interlock.flow import Fetched, Flow
    from shoal.protocol.shallow.interlock.rules import Decision
    from shoal.protocol.wire.splice import Edit
    from shoal.protocol.wire.types import TopicPartition
    from shoal.proxy.config.settings import ListenerSettings
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.pending import PendingAnswer
    from shoal.proxy.net.transport import Buffer
    from shoal.proxy.shallow.wrap.source_knowledge import SourceKnowledge

__all__ = ["MirrorAnswers"]


class MirrorAnswers:
    """`sampler`: which batches are inspected for keys; None: none."""

    def __init__(self, source: SourceKnowledge, sampler: KeySampler | None) -> None:
        self._source = source
        self._checks = source.interlock.checks
        self._sampler = sampler

    def use(self, settings: ListenerSettings, topics: Topics) -> None:
        """From the next answer on."""
        self._settings, self._topics = settings.shallow, topics
        self._tags = envelope_headers(settings)

    async def answer(
        self, fetch: MirrorFetch, connection: Connection, entry: PendingAnswer, frame: bytearray
    ) -> Sequence[Buffer]:
        """Nothing awaits after `hold`."""
        flow, rules, version = fetch.consumer.flow, self._source.interlock.rules, entry.api_version
        response = read_fetch_response(frame, version)
        addresses = _our_addresses(connection, version, frame, response)
        if response.error_code == 0:
            fetch.consumer.sessions.answered(fetch.request, fetch.asked, response.session_id)
        judgement = Judgement()
        self._source.followed.answered(connection, fetch, response)
        with_records = [row for row in response.partitions if row.start != row.end]
        refs = [PartitionRef(row.topic, row.partition) for row in with_records]
        stopped = self._source.followed.stopped(connection, fetch, refs)
        answered = (PartitionRef(row.topic, row.partition) for row in response.partitions)
        ours = self._source.same_offsets.of(connection, fetch.consumer, answered)
        partitions = self._read(connection, fetch, frame, response, judgement, stopped, ours)
        if stopped and not partitions:
            await trio.sleep(EMPTY_HOLD)
        if ours and not partitions and self._source.same_offsets.is_waiting(fetch, response, ours):
            await self._source.interlock.change(trio.current_time() + EMPTY_HOLD)
        kept = await self._make_room(connection, flow, partitions, len(frame))
        waits = await hold(self._source.interlock, flow, partitions, min_batch_bytes=self._settings.min_batch_bytes)
        if self._checks is not None and not self._checks.kept.has_room(flow.token, len(frame)):
            kept = ()
        now = self._source.interlock.tick()
        review = rules.review(flow, partitions, waits, now)
        record_sets: list[tuple[FetchedPartition, Sequence[Buffer]]] = [
            (row, ()) for row, ref in zip(with_records, refs, strict=True) if ref in stopped and ref not in ours
        ]
        if ours:
            context = partial(self._cover_context, connection, fetch)
            record_sets += self._source.same_offsets.give(fetch, frame, response, ours, context, judgement)
        handed_out: list[HandedOut | None] = []
        envelope_bytes = 0
        for partition, decision in zip(partitions, review.decisions, strict=True):
            is_used_up = isinstance(decision, Wrap) and envelope_bytes >= review.allowance
            allowed = Raw() if is_used_up else decision
            record_set, handed = self._give(connection, fetch, partition, allowed, judgement, kept)
            if record_set is not None:
                record_sets.append((partition.fetched, record_set))
            envelope_bytes += sum(key.payload for key in handed.envelopes) if handed is not None else 0
            handed_out.append(handed)
            self._source.followed.given(flow, partition, allowed, handed, now)
        rules.commit(flow, review, handed_out, now)
        judgement.give(connection.tap, entry.correlation_id)
        return replace_record_sets(frame, version, record_sets, addresses) if record_sets or addresses else [frame]

    async def _make_room(
        self, connection: Connection, flow: Flow, partitions: Sequence[AnsweredPartition], answer: int
    ) -> Collection[str]:
        """-> the topics whose batches may stay here; none before envelopes come back at all."""
        checks, credentials, kept = self._checks, _credentials(connection), set[str]()
        if checks is None or not checks.is_on or not flow.arrived:
            return kept
        for partition in partitions:
            scanned = partition.scanned
            if partition.may_be_wrapped and scanned.headers:
                batch = memoryview(partition.frame)[scanned.starts[0] : scanned.ends[0]]
                source, offset = partition.read.topic_partition, scanned.headers[0][0]
                checks.prove(credentials, source, offset, batch)
                if checks.may_keep(credentials, source.topic):
                    kept.add(source.topic)
        if kept:
            await checks.room(flow.token, answer)
        return kept

    def _read(
        self,
        connection: Connection,
        fetch: MirrorFetch,
        frame: Buffer,
        response: FetchResponse,
        judgement: Judgement,
        without: Collection[PartitionRef],
        same_offsets: Collection[PartitionRef],
    ) -> list[AnsweredPartition]:
        """Partitions that have records and whose name and fetch offset are known. The others are raw, or withheld if
        they are in `without`. Those in `same_offsets` are left out.
        """
        partitions, room = [], MOST_KEPT
        self._source.unseen.resolve(connection)
        dropped = response.aborted_by_partition() if fetch.request.reads_committed else {}
        for fetched in response.partitions:
            if fetched.start == fetched.end:
                continue
            ref = PartitionRef(fetched.topic, fetched.partition)
            if ref in same_offsets:
                continue
            if ref in without:
                judgement.withheld(ref)
                continue
            scanned = scan(frame, fetched.start, fetched.end)
            next_offset = scanned.next_offset(0)
            read = fetch.read(connection, ref, next_offset, fetched.high_watermark)
            if read is None:
                raw_next = next_offset if next_offset >= 0 else fetched.high_watermark
                self._source.unseen.note(connection, fetch.consumer.flow, ref, raw_next)
                is_named = topic_name(connection, fetched.topic) is not None
                reason = Reason.UNKNOWN_OFFSET if is_named else Reason.UNKNOWN_TOPIC
                self._count_raw(scanned, reason)
                judgement.raw(ref, reason)
            else:
                is_kept = len(scanned) <= room
                room -= len(scanned) * is_kept
                partitions.append(
                    AnsweredPartition(
                        frame=frame,
                        ref=ref,
                        fetched=fetched,
                        kept=scanned if is_kept else None,
                        read=read,
                        salt=self._source.interlock.rules.salt,
                        raw_reason=self._topics.raw_reason(read.topic),
                        aborted=dropped.get(ref, ()),
                    )
                )
        return partitions

    def _give(
        self,
        connection: Connection,
        fetch: MirrorFetch,
        partition: AnsweredPartition,
        decision: Decision,
        judgement: Judgement,
        kept: Collection[str],
    ) -> tuple[Sequence[Buffer] | None, HandedOut | None]:
        """-> the partition's new record set (None: unchanged), and the offsets that the mirror gets, if reviewed."""
        match decision:
            case Tokened():
                self._source.tally.raw_batches[Reason.NO_EVIDENCE] += decision.batches
                judgement.raw(partition.ref, Reason.NO_EVIDENCE, given_below=decision.next_offset)
                return decision.record_set, None
            case Withhold():
                judgement.withheld(partition.ref)
                return (), None
            case Raw():
                return self._give_raw(partition, partition.raw_reason or Reason.NO_EVIDENCE, judgement)
            case Wrap():
                reason = self._not_yet(connection, partition.read)
                if reason is not None:
                    return self._give_raw(partition, reason, judgement)
                context = self._context(connection, fetch, partition, decision)
                checks, flow, source = self._checks, fetch.consumer.flow.token, partition.read.topic_partition
                if checks is not None and source.topic in kept and not checks.kept.is_overdue(flow, source):
                    context = replace(context, keep=checks.keep)
                return self._wrap(context, partition, judgement)

    def _not_yet(self, connection: Connection, read: Fetched) -> Reason | None:
        """What must be known before the partition may be wrapped, and is not."""
        if self._source.clusters is not None and not self._source.clusters.differ:
            return Reason.UNKNOWN_CLUSTER
        if self._settings.partition_by_key and read.partition >= (connection.cluster.partition_count(read.topic) or 0):
            return Reason.UNKNOWN_TOPIC
        return None

    def _give_raw(self, partition: AnsweredPartition, reason: Reason, judgement: Judgement) -> tuple[None, HandedOut]:
        self._count_raw(partition.scanned, reason)
        judgement.raw(partition.ref, reason)
        return None, HandedOut(partition.read, partition.read.next_offset)

    def _wrap(
        self, context: WrapContext, partition: AnsweredPartition, judgement: Judgement
    ) -> tuple[Sequence[Buffer] | None, HandedOut]:
        scanned = partition.scanned
        wrapped = wrap(partition.frame, scanned, context)
        judgement.wrapped(partition.ref, wrapped)
        self._source.tally.wrapped(wrapped)
        awaited = delivered(partition.frame, scanned, wrapped.envelopes, partition.aborted)
        if self._checks is not None and len(awaited) < len(wrapped.envelopes):
            for key in {*wrapped.envelopes} - {*awaited}:  # of aborted transactions: the mirror drops them
                self._checks.done(key)
        read = partition.read
        if wrapped.next_offset < 0:
            return wrapped.parts, HandedOut(read, read.next_offset, awaited)
        return wrapped.parts, HandedOut(read._replace(next_offset=wrapped.next_offset), wrapped.raw_next, awaited)

    def _context(
        self, connection: Connection, fetch: MirrorFetch, partition: AnsweredPartition, decision: Wrap
    ) -> WrapContext:
        settings, read = self._settings, partition.read
        cluster = connection.cluster.cluster_id or connection.cluster.name
        return WrapContext(
            cluster=cluster,
            topic=read.topic,
            partition=read.partition,
            fetch_offset=read.fetch_offset,
            flow=fetch.consumer.flow.token,
            serials=self._source.interlock.rules.next_serial,
            read_committed=fetch.request.reads_committed,
            first_raw=decision.first_raw,
            run_limit=settings.run_limit,
            min_batch_bytes=0 if self._source.interlock.takes_sets else settings.min_batch_bytes,
            partitions=connection.cluster.partition_count(read.topic) if settings.partition_by_key else None,
            tags=self._tags,
            sampler=self._sampler,
            refused=self._source.interlock.refused.of(cluster, read.topic, read.partition),
        )

    def _cover_context(
        self, connection: Connection, fetch: MirrorFetch, partition: TopicPartition, position: int
    ) -> WrapContext:
        settings, cluster = self._settings, connection.cluster
        return WrapContext(
            cluster=cluster.cluster_id or cluster.name,
            topic=partition.topic,
            partition=partition.partition,
            fetch_offset=position,
            flow=fetch.consumer.flow.token,
            serials=self._source.interlock.rules.next_serial,
            run_limit=settings.run_limit,
            largest_batch=LARGEST_BATCH,
            tags=self._tags,
        )

    def _count_raw(self, scanned: ScannedSet, reason: Reason) -> None:
        if scanned.is_readable:
            self._source.tally.raw_batches[reason] += len(scanned)
        else:
            self._source.tally.raw_batches[Reason.DAMAGED] += 1


def _credentials(connection: Connection) -> str | None:
    return None if connection.session is None else connection.session.credentials


def _our_addresses(connection: Connection, version: int, frame: Buffer, response: FetchResponse) -> list[Edit]:
    if response.node_endpoints is None:
        return []
    return endpoint_edits(ApiKey.FETCH, version, frame, connection.lookup)
