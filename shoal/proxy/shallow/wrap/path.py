"""The source side: runs of batches in a mirror's Fetch answers become envelopes (docs/architecture.md has the calls).

    request   limits are lowered, so that the answer can be held; the fetch offset of each partition is recorded
    answer    read     partitions with records; the headers of each record set are read once
              hold     the whole answer, as long as the interlock requires it (hold.py)
              review   the interlock decides for each partition: wrap, raw, withhold, or a record with a token
              wrap     new record sets, spliced into the frame once
              commit   the records of each partition count as sent; the answer is sent

An answer that is too large to hold is streamed raw (oversized.py). Requests of other consumers pass as on a plain
listener. The interlock learns where they read, because records that they got are no evidence for a mirror.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import trio

from shoal.protocol.messages.fetch import (
    encode_fetch_error,
    limit_fetch,
    read_fetch_request,
    read_fetch_response,
    replace_record_sets,
)
from shoal.protocol.records.key_sample import KeySampler
from shoal.protocol.records.scan import scan
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.shallow.interlock.flow import Fetched
from shoal.protocol.shallow.interlock.rules import HandedOut, Raw, Withhold, Wrap
from shoal.protocol.shallow.token import Tokened
from shoal.protocol.shallow.wrap.eligible import Reason, Topics
from shoal.protocol.shallow.wrap.wrap import WrapContext, delivered, wrap
from shoal.protocol.transform.addresses import ADDRESS_RESPONSES, endpoint_edits
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.types import PartitionRef
from shoal.proxy.capture.annotations import raw
from shoal.proxy.config.identity import envelope_headers
from shoal.proxy.config.settings import LARGEST_BATCH
from shoal.proxy.connection.pending import Hold
from shoal.proxy.connection.routes import Route, RouteTable, table
from shoal.proxy.connection.topic_names import learn_names, topic_name, unknown_ids
from shoal.proxy.events.logs import event, more_of_this_kind
from shoal.proxy.listener.plain import FETCH_ADDRESSES, PLAIN_ROUTES
from shoal.proxy.shallow.annotations import JUDGED, Judgement
from shoal.proxy.shallow.counters import ShallowTally
from shoal.proxy.shallow.wrap.followed import FollowedFetches
from shoal.proxy.shallow.wrap.hold import EMPTY_HOLD, hold
from shoal.proxy.shallow.wrap.mirror_fetch import MOST_KEPT, AnsweredPartition, Consumer, MirrorFetch, Unseen
from shoal.proxy.shallow.wrap.oversized import OversizedAnswers
from shoal.proxy.shallow.wrap.same_offsets import SameOffsets

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from shoal.protocol.messages.fetch import FetchedPartition, FetchRequest, FetchResponse
    from shoal.protocol.records.scan import ScannedSet
    from shoal.protocol.schema.headers import RequestHeader
    from shoal.protocol.shallow.interlock.flow import Flow
    from shoal.protocol.shallow.interlock.rules import Decision
    from shoal.protocol.wire.splice import Edit
    from shoal.protocol.wire.types import Topic, TopicPartition
    from shoal.proxy.config.settings import ListenerSettings
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.pending import PendingAnswer
    from shoal.proxy.listener.listener import Listener
    from shoal.proxy.net.transport import Buffer
    from shoal.proxy.shallow.cluster_pair import ClusterPair
    from shoal.proxy.shallow.interlock import Interlock
    from shoal.proxy.shallow.monitor.monitor import MirrorMonitor
    from shoal.proxy.statistics import PathStatistics

__all__ = ["WrapPath"]

log = logging.getLogger("shoal.fetch")

_NO_MIRROR = raw("none of mirror-clients")
_LOGGED_CLIENTS = 20  # client ids that are logged
_OLDEST = 4  # for older versions brokers convert batches to formats without headers
_READ_COMMITTED = 1
_ASK_AGAIN_SECONDS = 5.0  # for the names of topic ids
# Until a flow is proven, its answers are small: records that the mirror has yet to produce delay the samples. Only for
# a while, so that a mirror that cannot be proven is as fast as without Shoal. The same applies to a new topic of a
# proven flow.
_PROVING_BYTES = 256 * 1024


class WrapPath:
    """The path of a wrapping listener. `clusters`: its own and its pair's; None without a pair.

    `has_keys_sample`: 1 in this many batches is inspected for keys; 0: none.
    """

    def __init__(
        self,
        listener: Listener,
        interlock: Interlock,
        clusters: ClusterPair | None,
        monitor: MirrorMonitor,
        *,
        has_keys_sample: int = 0,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self.tally = ShallowTally()
        self.monitor = monitor
        self._followed = FollowedFetches(monitor, listener.cluster)
        self._ended = ended
        self.interlock = interlock
        self._unseen = Unseen(self.interlock)
        self._checks = interlock.checks
        if self._checks is not None:
            self._checks.tally = self.tally
        self._same_offsets = SameOffsets(listener, interlock, self.tally, clusters)
        self._followed.leaves_out = self._same_offsets.has
        self._oversized = OversizedAnswers(self.interlock, self.tally, self._unseen, self._followed, self._same_offsets)
        self._clusters = clusters
        self._unknown_clients: set[str] = set()
        self.use(listener.settings)
        self._sampler = KeySampler(has_keys_sample) if has_keys_sample else None
        fetch = Route(since=_OLDEST, handle=self._handle)
        self.routes: RouteTable[Connection] = table({**PLAIN_ROUTES, ApiKey.FETCH: fetch})

    def begin(self) -> None:
        self.interlock.begin()

    def opened(self, connection: Connection) -> None:
        pass

    def closed(self, connection: Connection) -> None:
        if isinstance(connection.context, Consumer):
            self._followed.closed(connection.context)
            self._same_offsets.closed(connection.context)
            self.interlock.consumer_closed(connection.context.flow, connection.context.number)

    def tick(self, now: float) -> None:
        self.interlock.tick()  # a mirror that cannot produce does not fetch either
        self.monitor.tick(now)
        self._same_offsets.tick(now)
        if self._checks is not None:
            self._checks.tick(now)

    def use(self, settings: ListenerSettings) -> None:
        """From the next answer on. A mirror stays a mirror as long as it is connected."""
        self._settings = settings.shallow
        self._mirrors = re.compile(self._settings.mirror_clients)
        self._topics = Topics(self._settings.deep_topics)
        self._same_offsets.use(self._settings)
        self._tags = envelope_headers(settings)
        if self._checks is not None:
            self._checks.use(settings)

    def statistics(self) -> tuple[PathStatistics, ...]:
        return self.tally.statistics(), self.monitor.statistics()

    def gauges(self) -> Mapping[str, Mapping[str, float]]:
        ours = {"same_offsets": self._same_offsets.gauges()} if self._same_offsets.is_on else {}
        kept = {"held_bytes": {"claim-checks": self._checks.kept.held}} if self._checks is not None else {}
        return {"interlock_topics": self.interlock.standings(), **kept, **ours}

    def status(self) -> dict[str, object]:
        return {
            "flows": self.interlock.status(),
            "clusters_differ": None if self._clusters is None else self._clusters.differ,
            "not_mirrors": sorted(self._unknown_clients),
            "mirrors": self.monitor.status(),
            "same_offsets": self._same_offsets.status() if self._same_offsets.is_on else None,
        }

    def end(self) -> None:
        self.monitor.end()
        self._same_offsets.end()
        if self._checks is not None:
            self._checks.end()
        self._ended()

    # -- request -----------------------------------------------------------------------------------------------------

    async def _handle(self, connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        request = read_fetch_request(frame, header.api_version)
        consumer = self._consumer(connection, header.client_id or "")
        if not consumer.is_mirror:
            self._note_reader(connection, consumer, request)
            edited = header.api_version >= ADDRESS_RESPONSES[ApiKey.FETCH]
            return await connection.broker.forward([frame], FETCH_ADDRESSES if edited else None, note=_NO_MIRROR)
        self.interlock.rules.asked(consumer.flow, trio.current_time())
        if self._sends_back(connection, consumer, request):
            if not consumer.sessions.knows(request):
                _log_sent_back(connection)
            answer = encode_fetch_error(header.api_version, header.correlation_id, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return await connection.reply([answer])
        await self._learn_names(connection, consumer, request)
        fetch = MirrorFetch(consumer, request, consumer.sessions.request(request))
        self._followed.asked(connection, fetch)
        self._limit(connection, consumer, frame, request)
        self._limit_stopped(connection, frame, fetch)
        self._same_offsets.ask(connection, fetch, frame)
        hold = Hold(partial(self._answer, fetch), self._oversized.edit(connection, fetch))
        return await connection.broker.forward([frame], hold, note=JUDGED)

    def _sends_back(self, connection: Connection, consumer: Consumer, request: FetchRequest) -> bool:
        """True if Shoal does not know the session's partitions, so nothing of it could ever be wrapped; or if they must
        be requested again with other limits.

        The mirror gets the error of a broker that has evicted the session, and starts with a full request. Never twice
        in a row, whatever the client does.
        """
        must_begin = not consumer.sessions.knows(request) or (
            request.session_epoch > 0
            and (
                self._followed.has_old_limits(consumer) or self._same_offsets.must_begin(connection, consumer, request)
            )
        )
        consumer.sent_back = must_begin and not consumer.sent_back
        return consumer.sent_back

    def _limit(self, connection: Connection, consumer: Consumer, frame: bytearray, request: FetchRequest) -> None:
        limits, now = self._settings, trio.current_time()
        most = _PROVING_BYTES if consumer.is_proving(now) else limits.fetch_max_bytes
        limit_fetch(frame, request, max_bytes=most, partition_max_bytes=limits.partition_limit)
        new = tuple(
            asked for asked in request.partitions if self._expects_proof(connection, consumer, asked.topic, now)
        )
        if new:
            little = min(_PROVING_BYTES, limits.partition_limit)
            limit_fetch(frame, replace(request, partitions=new), max_bytes=most, partition_max_bytes=little)

    def _limit_stopped(self, connection: Connection, frame: bytearray, fetch: MirrorFetch) -> None:
        """The broker sends little of partitions that the mirror gets nothing of."""
        request = fetch.request
        refs = [PartitionRef(asked.topic, asked.partition) for asked in request.partitions]
        stopped = self._followed.stopped(connection, fetch, refs)
        if stopped:
            these = tuple(asked for asked, ref in zip(request.partitions, refs, strict=True) if ref in stopped)
            limit_fetch(frame, replace(request, partitions=these), max_bytes=request.max_bytes, partition_max_bytes=1)

    def _expects_proof(self, connection: Connection, consumer: Consumer, topic: Topic, now: float) -> bool:
        name = topic_name(connection, topic)
        return (
            name is not None
            and self.interlock.rules.expects_proof(consumer.flow, consumer.number, name, now)
            and self._topics.raw_reason(name) is None
        )

    def _consumer(self, connection: Connection, client_id: str) -> Consumer:
        if not isinstance(connection.context, Consumer):
            flow, number = self.interlock.consumer_opened(connection, client_id)
            is_mirror = self._mirrors.search(client_id) is not None
            connection.context = Consumer(flow, number, is_mirror=is_mirror)
            if is_mirror:
                self._followed.opened(connection, connection.context)
            else:
                self._log_unknown(client_id)
        return connection.context

    def _log_unknown(self, client_id: str) -> None:
        """Once for each client id, so that the operator sees which clients Shoal does not consider mirrors."""
        if client_id not in self._unknown_clients and len(self._unknown_clients) < _LOGGED_CLIENTS:
            self._unknown_clients.add(client_id)
            pattern = self._settings.mirror_clients
            text = (
                f"client id {client_id!r} is none of mirror-clients ({pattern}): it gets records as they are; if it is "
                "a mirror's consumer of data, correct mirror-clients"
            )
            log.info("client-is-no-mirror", extra=event(text, client_id=client_id, pattern=pattern))

    def _note_reader(self, connection: Connection, consumer: Consumer, request: FetchRequest) -> None:
        now = trio.current_time()
        for asked in request.partitions:
            name = topic_name(connection, asked.topic)
            if name is None:
                unknown = PartitionRef(asked.topic, asked.partition)
                self._unseen.note(connection, consumer.flow, unknown, asked.fetch_offset)
            else:
                read = Fetched(consumer.number, name, asked.partition, asked.fetch_offset, asked.fetch_offset)
                self.interlock.rules.gave_raw(consumer.flow, read, now)

    async def _learn_names(self, connection: Connection, consumer: Consumer, request: FetchRequest) -> None:
        now = trio.current_time()
        if now - consumer.asked_names_at < _ASK_AGAIN_SECONDS:
            return
        unknown = unknown_ids(connection, (asked.topic for asked in request.partitions))
        if unknown:
            consumer.asked_names_at = now
            await learn_names(connection, consumer.flow.client_id, unknown)

    # -- answer ------------------------------------------------------------------------------------------------------

    async def _answer(
        self, fetch: MirrorFetch, connection: Connection, entry: PendingAnswer, frame: bytearray
    ) -> Sequence[Buffer]:
        """The stages of the module's docstring, in order. Nothing awaits after `hold`."""
        flow, rules, version = fetch.consumer.flow, self.interlock.rules, entry.api_version
        response = read_fetch_response(frame, version)
        addresses = _our_addresses(connection, version, frame, response)
        if response.error_code == 0:
            fetch.consumer.sessions.answered(fetch.request, fetch.asked, response.session_id)
        judgement = Judgement()
        copies = self._followed.answered(connection, fetch, response)
        with_records = [one for one in response.partitions if one.start != one.end]
        refs = [PartitionRef(one.topic, one.partition) for one in with_records]
        stopped = self._followed.stopped(connection, fetch, refs)
        answered = (PartitionRef(one.topic, one.partition) for one in response.partitions)
        ours = self._same_offsets.of(connection, fetch.consumer, answered)
        partitions = self._read(connection, fetch, frame, response, judgement, stopped, ours)
        if stopped and not partitions:
            await trio.sleep(EMPTY_HOLD)
        if ours and not partitions and self._same_offsets.is_waiting(fetch, response, ours):
            await self.interlock.change(trio.current_time() + EMPTY_HOLD)
        kept = await self._make_room(connection, flow, partitions, len(frame))
        waits = await hold(self.interlock, flow, partitions, min_batch_bytes=self._settings.min_batch_bytes)
        if self._checks is not None and not self._checks.kept.has_room(flow.token, len(frame)):
            kept = ()
        now = self.interlock.tick()
        review = rules.review(flow, partitions, waits, now)
        record_sets: list[tuple[FetchedPartition, Sequence[Buffer]]] = [
            (one, ()) for one, ref in zip(with_records, refs, strict=True) if ref in stopped and ref not in ours
        ]
        if ours:
            context = partial(self._cover_context, connection, fetch)
            record_sets += self._same_offsets.give(fetch, frame, response, ours, context, judgement)
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
            if (copy := copies.get(partition.read.topic_partition)) is not None:
                self._followed.given(copy, partition, allowed, handed, now)
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
        self._unseen.resolve(connection)
        dropped: defaultdict[PartitionRef, list[tuple[int, int]]] = defaultdict(list)
        if fetch.request.isolation_level == _READ_COMMITTED:
            for topic, index, *transaction in response.aborted:
                dropped[PartitionRef(topic, index)].append((transaction[0], transaction[1]))
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
                self._unseen.note(connection, fetch.consumer.flow, ref, raw_next)
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
                        salt=self.interlock.rules.salt,
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
                self.tally.raw_batches[Reason.NO_EVIDENCE] += decision.batches
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
        if self._clusters is not None and not self._clusters.differ:
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
        self.tally.wrapped(wrapped)
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
            serials=self.interlock.rules.next_serial,
            read_committed=fetch.request.isolation_level == _READ_COMMITTED,
            first_raw=decision.first_raw,
            run_limit=settings.run_limit,
            min_batch_bytes=0 if self.interlock.takes_sets else settings.min_batch_bytes,
            partitions=connection.cluster.partition_count(read.topic) if settings.partition_by_key else None,
            tags=self._tags,
            sampler=self._sampler,
            refused=self.interlock.refused.of(cluster, read.topic, read.partition),
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
            serials=self.interlock.rules.next_serial,
            run_limit=settings.run_limit,
            largest_batch=LARGEST_BATCH,
            tags=self._tags,
        )

    def _count_raw(self, scanned: ScannedSet, reason: Reason) -> None:
        if scanned.is_readable:
            self.tally.raw_batches[reason] += len(scanned)
        else:
            self.tally.raw_batches[Reason.DAMAGED] += 1


def _credentials(connection: Connection) -> str | None:
    return None if connection.session is None else connection.session.credentials


def _our_addresses(connection: Connection, version: int, frame: Buffer, response: FetchResponse) -> list[Edit]:
    if response.node_endpoints is None:
        return []
    return endpoint_edits(ApiKey.FETCH, version, frame, connection.lookup)


def _log_sent_back(connection: Connection) -> None:
    left_out = connection.throttle.admit("fetch-session-sent-back", connection.peer.host, connection.client_id)
    if left_out is not None:
        text = (
            f"{connection.client_id!r} of {connection.peer} goes on with the fetch session of another connection: "
            f"it is to begin anew{more_of_this_kind(left_out)}"
        )
        values = event(text, client_id=connection.client_id, peer=str(connection.peer), left_out=left_out or None)
        log.info("fetch-session-sent-back", extra=values)
