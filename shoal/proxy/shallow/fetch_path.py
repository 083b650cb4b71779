"""The source side: fetch responses of a mirror's data consumer, with runs of batches put into envelopes (design section 1).

    request   lower its limits, so that the answer can be held; remember at which offset each partition is asked (KIP-227)
    answer    held whole ── wait while the interlock must not see it delivered ── wrap what may be wrapped ── send

What other consumers ask for passes as on a plain listener; the interlock hears where they read, because what they were given is no
evidence for a mirror.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
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
from shoal.protocol.records.recordset import split
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.shallow.interlock.flow import Fetched
from shoal.protocol.shallow.wrap.eligible import Reason, Topics
from shoal.protocol.shallow.wrap.wrap import WrapContext, delivered, next_offset, wrap_record_set
from shoal.protocol.transform.addresses import ADDRESS_RESPONSES, rewrite_endpoints
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.capture.annotations import JUDGED, Judgement, raw
from shoal.proxy.config.identity import envelope_headers
from shoal.proxy.connection.in_flight import Hold
from shoal.proxy.connection.routes import Route, RouteTable, table
from shoal.proxy.connection.topic_names import learn_names, topic_name, unknown_ids
from shoal.proxy.plain import FETCH_ADDRESSES, PLAIN_ROUTES
from shoal.proxy.shallow.counters import ShallowTally
from shoal.proxy.shallow.fetch_hold import Part, put_tokens, wait_for_interlock
from shoal.proxy.shallow.fetch_question import Consumer, MirrorFetch, Unseen
from shoal.proxy.shallow.fetch_streams import FetchStreams

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shoal.protocol.messages.fetch import FetchedPartition, FetchRequest, FetchResponse
    from shoal.protocol.schema.headers import RequestHeader
    from shoal.protocol.shallow.token import Tokened
    from shoal.protocol.wire.types import Topic
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.in_flight import PendingAnswer
    from shoal.proxy.listeners import Listener
    from shoal.proxy.net.transport import Buffer
    from shoal.proxy.shallow.cluster_pair import ClusterPair
    from shoal.proxy.shallow.interlock import Interlock
    from shoal.proxy.statistics import PathStatistics

__all__ = ["WrapPath"]

log = logging.getLogger("shoal.fetch")

_NO_MIRROR = raw("none of mirror-clients")
_STRANGERS = 20  # client ids that are told of
_OLDEST = 4  # below, batches are converted to formats without headers
_READ_COMMITTED = 1
_ASK_AGAIN_SECONDS = 5.0  # for the names of topic ids
# While a flow is to be proven, its answers are small: what the mirror has yet to digest delays the samples. Not for longer than
# this, so that a mirror that cannot be proven goes on as fast as without Shoal. Of each new topic of a proven flow, the same.
_PROVING_BYTES = 256 * 1024


class WrapPath:
    """What a wrapping listener plugs in. `clusters`: its own and its pair's, None where it has no pair. `has_keys_sample`: 1 in so many batches is looked into; 0: none."""

    def __init__(
        self, listener: Listener, interlock: Interlock, clusters: ClusterPair | None, *, has_keys_sample: int = 0
    ) -> None:
        self.tally = ShallowTally()
        self._settings = listener.settings.shallow
        self.interlock = interlock
        self._unseen = Unseen(self.interlock)
        self._streams = FetchStreams(self.interlock, self.tally, self._unseen)
        self._clusters = clusters
        self._mirrors = re.compile(self._settings.mirror_clients)
        self._strangers: set[str] = set()
        self._topics = Topics(self._settings.deep_topics)
        self._tags = envelope_headers(listener.settings)
        self._sampler = KeySampler(has_keys_sample) if has_keys_sample else None
        fetch = Route(since=_OLDEST, handle=self._handle)
        self.routes: RouteTable = table({**PLAIN_ROUTES, ApiKey.FETCH: fetch})

    def opened(self, connection: Connection) -> None:
        pass

    def closed(self, connection: Connection) -> None:
        if isinstance(connection.context, Consumer):
            self.interlock.consumer_closed(connection.context.flow, connection.context.number)

    def tick(self, now: float) -> None:
        self.interlock.tick()  # a mirror that cannot produce does not fetch either

    def statistics(self) -> tuple[PathStatistics, ...]:
        return (self.tally.statistics(),)

    def end(self) -> None:
        pass

    # -- request -----------------------------------------------------------------------------------------------------

    async def _handle(self, connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        request = read_fetch_request(frame, header.api_version)
        consumer = self._consumer(connection, header.client_id or "")
        if not consumer.is_mirror:
            self._note_reader(connection, consumer, request)
            edited = header.api_version >= ADDRESS_RESPONSES[ApiKey.FETCH]
            return await connection.forward([frame], FETCH_ADDRESSES if edited else None, note=_NO_MIRROR)
        self.interlock.rules.asked(consumer.flow, trio.current_time())
        if self._sends_back(consumer, request):
            log.info(
                "%s of %s goes on with the fetch session of another connection: it is to begin anew", *_who(connection)
            )
            answer = encode_fetch_error(header.api_version, header.correlation_id, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return await connection.reply([answer])
        await self._learn_names(connection, consumer, request)
        question = MirrorFetch(consumer, request, consumer.sessions.request(request))
        self._limit(connection, consumer, frame, request)
        hold = Hold(partial(self._answer, question), self._streams.edit(connection, question))
        return await connection.forward([frame], hold, note=JUDGED)

    def _sends_back(self, consumer: Consumer, request: FetchRequest) -> bool:
        """What the session asks for is not known here, so nothing of it could ever be wrapped. The mirror is answered as by a broker
        that has forgotten it, and begins with a full request; never twice in a row, whatever a client makes of that."""
        consumer.sent_back = not consumer.sessions.knows(request) and not consumer.sent_back
        return consumer.sent_back

    def _limit(self, connection: Connection, consumer: Consumer, frame: bytearray, request: FetchRequest) -> None:
        limits, now = self._settings, trio.current_time()
        most = _PROVING_BYTES if consumer.is_proving(now) else limits.fetch_max_bytes
        limit_fetch(frame, request, max_bytes=most, partition_max_bytes=limits.partition_limit)
        new = tuple(one for one in request.partitions if self._expects_proof(connection, consumer, one.topic, now))
        if new:
            little = min(_PROVING_BYTES, limits.partition_limit)
            limit_fetch(frame, replace(request, partitions=new), max_bytes=most, partition_max_bytes=little)

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
            if not is_mirror:
                self._tell_of(client_id)
            connection.context = Consumer(flow, number, is_mirror=is_mirror)
        return connection.context

    def _tell_of(self, client_id: str) -> None:
        """Once for each: who waits for envelopes in vain must see whom Shoal takes for no mirror."""
        if client_id not in self._strangers and len(self._strangers) < _STRANGERS:
            self._strangers.add(client_id)
            what = "client id %r is none of mirror-clients (%s): it gets records as they are"
            log.info(what, client_id, self._settings.mirror_clients)

    def _note_reader(self, connection: Connection, consumer: Consumer, request: FetchRequest) -> None:
        now = trio.current_time()
        for one in request.partitions:
            name = topic_name(connection, one.topic)
            if name is None:
                self._unseen.note(connection, consumer.flow, (one.topic, one.partition), one.fetch_offset)
            else:
                read = Fetched(consumer.number, name, one.partition, one.fetch_offset, one.fetch_offset)
                self.interlock.rules.fetched(consumer.flow, read, now)

    async def _learn_names(self, connection: Connection, consumer: Consumer, request: FetchRequest) -> None:
        now = trio.current_time()
        if now - consumer.asked_names_at < _ASK_AGAIN_SECONDS:
            return
        unknown = unknown_ids(connection, (one.topic for one in request.partitions))
        if unknown:
            consumer.asked_names_at = now
            await learn_names(connection, consumer.flow.client_id, unknown)

    # -- answer ------------------------------------------------------------------------------------------------------

    async def _answer(
        self, question: MirrorFetch, connection: Connection, entry: PendingAnswer, received: bytearray
    ) -> Sequence[Buffer]:
        consumer, request, asked = question
        version = entry.api_version
        frame = _with_our_addresses(connection, version, received)
        response = read_fetch_response(frame, version)
        if response.error_code == 0:
            consumer.sessions.answered(request, asked, response.session_id)
        judgement = Judgement()
        parts = self._parts(connection, question, frame, response, judgement)
        late = await wait_for_interlock(
            self.interlock,
            consumer.flow,
            frame,
            parts,
            self._topics,
            min_batch_bytes=self._settings.min_batch_bytes,
        )
        committed = request.isolation_level == _READ_COMMITTED
        now = self.interlock.tick()
        prompt = [part for part in parts if part not in late]
        tokens = put_tokens(self.interlock, consumer.flow, frame, prompt, self._topics, now)
        edits: list[tuple[FetchedPartition, Sequence[Buffer]]] = []
        for part in parts:
            if part in tokens:
                self.tally.raw_batches[Reason.NO_EVIDENCE] += tokens[part].batches
                judgement.raw(part.place, Reason.NO_EVIDENCE, given_below=tokens[part].next_offset)
                edits.append((part.one, tokens[part].record_set))
            elif part in late or _waits_for_token(consumer, part, tokens):
                judgement.withheld(part.place)
                edits.append((part.one, ()))
            else:
                pieces = self._give(connection, consumer, frame, part, (now, committed), judgement)
                edits += [(part.one, pieces)] if pieces is not None else []
        judgement.give(connection.tap, entry.correlation_id)
        return replace_record_sets(frame, version, edits) if edits else [frame]

    def _parts(
        self,
        connection: Connection,
        question: MirrorFetch,
        frame: Buffer,
        response: FetchResponse,
        judgement: Judgement,
    ) -> list[Part]:
        """Partitions with records, of which the name and the fetch offset are known. The others stay raw."""
        parts = []
        self._unseen.resolve(connection)
        dropped: defaultdict[tuple[Topic, int], list[tuple[int, int]]] = defaultdict(list)
        if question.request.isolation_level == _READ_COMMITTED:
            for topic, partition, *transaction in response.aborted:
                dropped[topic, partition].append((transaction[0], transaction[1]))
        for one in response.partitions:
            if one.start == one.end:
                continue
            following = next_offset(frame, one.start, one.end, 0)
            read = question.read(connection, (one.topic, one.partition), following, one.high_watermark)
            if read is None:
                raw_next = following if following >= 0 else one.high_watermark
                self._unseen.note(connection, question.consumer.flow, (one.topic, one.partition), raw_next)
                is_named = topic_name(connection, one.topic) is not None
                reason = Reason.UNKNOWN_OFFSET if is_named else Reason.UNKNOWN_TOPIC
                self._count_raw(frame, one, reason)
                judgement.raw((one.topic, one.partition), reason)
            else:
                parts.append(Part(one, read, tuple(dropped.get(one[:2], ()))))
        return parts

    def _give(
        self,
        connection: Connection,
        consumer: Consumer,
        frame: Buffer,
        part: Part,
        how: tuple[float, bool],
        judgement: Judgement,
    ) -> Sequence[Buffer] | None:
        """The partition's new record set, None = as it is. What it holds counts as given to the mirror from here on."""
        one, read, aborted = part
        now, committed = how
        rules = self.interlock.rules
        fresh = rules.fetched(consumer.flow, read, now)
        reason = self._topics.raw_reason(read.topic)
        if reason is None and not rules.may_wrap(consumer.flow, read, now):
            reason = Reason.NO_EVIDENCE
        if reason is None and self._clusters is not None and not self._clusters.differ:
            reason = Reason.UNKNOWN_CLUSTER
        if self._settings.partition_by_key and connection.cluster.partition_count(read.topic) is None:
            reason = reason or Reason.UNKNOWN_TOPIC
        if reason is not None:
            self._count_raw(frame, one, reason)
            judgement.raw(part.place, reason)
            rules.given(consumer.flow, read, now, read.next_offset)
            return None
        context = self._context(connection, consumer, read, committed)
        wrapped = wrap_record_set(frame, one.start, one.end, replace(context, first_raw=fresh))
        judgement.wrapped(part.place, wrapped)
        if wrapped.next_offset >= 0:
            read = read._replace(next_offset=wrapped.next_offset)
        raw_next = wrapped.raw_next if wrapped.next_offset >= 0 else read.next_offset
        awaited = delivered(frame, one.start, one.end, wrapped.envelopes, aborted)
        rules.given(consumer.flow, read, now, raw_next, awaited)
        tally = self.tally
        tally.envelopes += len(wrapped.envelopes)
        tally.wrapped_batches += wrapped.wrapped_batches
        tally.wrapped_records += wrapped.wrapped_records
        tally.wrapped_bytes += wrapped.wrapped_bytes
        tally.raw_batches.update(Counter({str(why): number for why, number in wrapped.raw.items()}))
        return wrapped.parts

    def _context(self, connection: Connection, consumer: Consumer, read: Fetched, committed: bool) -> WrapContext:
        settings = self._settings
        cluster = connection.cluster.cluster_id or connection.cluster.name
        return WrapContext(
            cluster=cluster,
            topic=read.topic,
            partition=read.partition,
            fetch_offset=read.fetch_offset,
            flow=consumer.flow.token,
            serials=self.interlock.rules.next_serial,
            read_committed=committed,
            run_limit=settings.run_limit,
            min_batch_bytes=0 if self.interlock.takes_sets else settings.min_batch_bytes,
            partitions=connection.cluster.partition_count(read.topic) if settings.partition_by_key else None,
            tags=self._tags,
            sampler=self._sampler,
            refused=self.interlock.refused.of(cluster, read.topic, read.partition),
        )

    def _count_raw(self, frame: Buffer, one: FetchedPartition, reason: Reason) -> None:
        try:
            self.tally.raw_batches[reason] += len(split(frame, one.start, one.end).spans)
        except RemoteProtocolError:
            self.tally.raw_batches[Reason.DAMAGED] += 1


def _who(connection: Connection) -> tuple[str, str]:
    return f"{connection.client_id!r}", str(connection.peer)


def _waits_for_token(consumer: Consumer, part: Part, tokens: Mapping[Part, Tokened]) -> bool:
    """What would be raw, and queue behind the record with the token or before the envelopes that it is to lead to."""
    return bool(tokens) and (
        not consumer.flow.is_proven or any(other.read.topic == part.read.topic for other in tokens)
    )


def _with_our_addresses(connection: Connection, version: int, frame: bytearray) -> Buffer:
    if version < ADDRESS_RESPONSES[ApiKey.FETCH]:
        return frame
    edited = rewrite_endpoints(ApiKey.FETCH, version, frame, connection.lookup)
    return edited if isinstance(edited, (bytes, bytearray, memoryview)) else b"".join(edited)
