"""The source side: runs of batches in a mirror's Fetch answers become envelopes (docs/architecture.md has the calls).

    request   limits are lowered, so that the answer can be held; the fetch offset of each partition is recorded
    answer    (mirror_answers.py)
              read     partitions with records; the headers of each record set are read once
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
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import trio

from shoal.protocol.messages.fetch import (
    encode_fetch_error,
    limit_fetch,
    read_fetch_request,
)
from shoal.protocol.records.key_sample import KeySampler
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.shallow.interlock.flow import Fetched
from shoal.protocol.shallow.wrap.eligible import Topics
from shoal.protocol.transform.addresses import ADDRESS_RESPONSES
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.types import PartitionRef
from shoal.proxy.capture.annotations import raw
from shoal.proxy.connection.pending import Hold
from shoal.proxy.connection.routes import Route, RouteTable, table
from shoal.proxy.connection.topic_names import learn_names, topic_name, unknown_ids
from shoal.proxy.events.logs import event, more_of_this_kind
from shoal.proxy.listener.plain import FETCH_ADDRESSES, PLAIN_ROUTES
from shoal.proxy.shallow.annotations import JUDGED
from shoal.proxy.shallow.counters import ShallowTally
from shoal.proxy.shallow.wrap.followed import FollowedFetches
from shoal.proxy.shallow.wrap.mirror_answers import MirrorAnswers
from shoal.proxy.shallow.wrap.mirror_fetch import Consumer, MirrorFetch, Unseen
from shoal.proxy.shallow.wrap.oversized import OversizedAnswers
from shoal.proxy.shallow.wrap.same_offsets import SameOffsets
from shoal.proxy.shallow.wrap.source_knowledge import SourceKnowledge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.protocol.messages.fetch import FetchRequest
    from shoal.protocol.schema.headers import RequestHeader
    from shoal.protocol.wire.types import Topic
    from shoal.proxy.config.settings import ListenerSettings
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.listener.listener import Listener
    from shoal.proxy.shallow.cluster_pair import ClusterPair
    from shoal.proxy.shallow.interlock import Interlock
    from shoal.proxy.shallow.monitor.monitor import MirrorMonitor
    from shoal.proxy.statistics import PathStatistics

__all__ = ["WrapPath"]

log = logging.getLogger("shoal.fetch")

_NO_MIRROR = raw("none of mirror-clients")
_LOGGED_CLIENTS = 20  # client ids that are logged
_OLDEST = 4  # for older versions brokers convert batches to formats without headers
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
        self._clusters = clusters
        self._unknown_clients: set[str] = set()
        source = SourceKnowledge(
            tally=self.tally,
            interlock=self.interlock,
            clusters=clusters,
            unseen=self._unseen,
            followed=self._followed,
            same_offsets=self._same_offsets,
        )
        self._answers = MirrorAnswers(source, KeySampler(has_keys_sample) if has_keys_sample else None)
        self._oversized = OversizedAnswers(source)
        self.use(listener.settings)
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
        self._answers.use(settings, self._topics)
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
        hold = Hold(partial(self._answers.answer, fetch), self._oversized.edit(connection, fetch))
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


def _log_sent_back(connection: Connection) -> None:
    left_out = connection.throttle.admit("fetch-session-sent-back", connection.peer.host, connection.client_id)
    if left_out is not None:
        text = (
            f"{connection.client_id!r} of {connection.peer} goes on with the fetch session of another connection: "
            f"it is to begin anew{more_of_this_kind(left_out)}"
        )
        values = event(text, client_id=connection.client_id, peer=str(connection.peer), left_out=left_out or None)
        log.info("fetch-session-sent-back", extra=values)
