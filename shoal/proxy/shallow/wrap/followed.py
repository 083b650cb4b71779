"""What the monitor sees of a mirror's Fetch requests and answers: offsets that are asked for, ends, what is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from shoal.protocol.shallow.monitor.in_transit import Span
from shoal.protocol.shallow.monitor.spans import spans_of
from shoal.protocol.shallow.token import Tokened
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.types import PartitionRef, TopicPartition
from shoal.proxy.connection.topic_names import topic_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from shoal.protocol.messages.fetch import FetchResponse
    from shoal.protocol.shallow.interlock.flow import Fetched, Flow
    from shoal.protocol.shallow.interlock.rules import Decision, HandedOut
    from shoal.protocol.wire.types import Topic
    from shoal.proxy.cluster.cluster import Cluster
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.shallow.monitor.monitor import MirrorMonitor
    from shoal.proxy.shallow.wrap.mirror_fetch import AnsweredPartition, Consumer, MirrorFetch

__all__ = ["FollowedFetches"]


class FollowedFetches:
    """Those of all mirrors of a wrapping listener. Calls in the order of the methods.

    `leaves_out`: topics in which the mirror's own offsets do not count.
    """

    def __init__(self, monitor: MirrorMonitor, cluster: Cluster) -> None:
        self._monitor = monitor
        self._cluster = cluster
        self._live: set[Consumer] = set()
        monitor.covered = self._covered
        self.leaves_out: Callable[[str], bool] = lambda topic: False

    def opened(self, connection: Connection, consumer: Consumer) -> None:
        self._monitor.connected(connection, consumer.flow)
        self._live.add(consumer)
        consumer.limits_of = self._monitor.gaps.limits

    def closed(self, consumer: Consumer) -> None:
        self._live.discard(consumer)

    def asked(self, connection: Connection, fetch: MirrorFetch) -> None:
        flow, now = fetch.consumer.flow, trio.current_time()
        if fetch.request.session_epoch <= 0:
            fetch.consumer.limits_of = self._monitor.gaps.limits
        for asked in fetch.request.partitions:
            partition = topic_partition(connection, asked.topic, asked.partition)
            if partition is not None and not self.leaves_out(partition.topic):
                self._monitor.ask(flow, partition, asked.fetch_offset, now)
        self._monitor.requested(flow, read_committed=fetch.request.reads_committed)

    def stopped(self, connection: Connection, fetch: MirrorFetch, refs: Iterable[PartitionRef]) -> set[PartitionRef]:
        """Those that the mirror gets nothing of, until a gap is acknowledged."""
        if not self._monitor.gaps.stopped:
            return set()
        named = ((ref, topic_partition(connection, *ref)) for ref in refs)
        flow = fetch.consumer.flow
        return {ref for ref, partition in named if partition is not None and self._monitor.is_stopped(flow, partition)}

    def has_old_limits(self, consumer: Consumer) -> bool:
        """A partition was stopped, or goes on, since the consumer has listed its partitions."""
        return consumer.limits_of != self._monitor.gaps.limits

    def answered(self, connection: Connection, fetch: MirrorFetch, response: FetchResponse) -> None:
        """Where each partition begins and ends."""
        flow, now = fetch.consumer.flow, trio.current_time()
        fetch.consumer.answered_at, fetch.consumer.covered = now, fetch.asked
        for fetched in response.partitions:
            partition = topic_partition(connection, fetched.topic, fetched.partition)
            offset = fetch.asked.get(PartitionRef(fetched.topic, fetched.partition))
            if partition is None or offset is None or self.leaves_out(partition.topic):
                continue
            copy = self._monitor.asked(flow, partition, offset)
            if copy is None:
                continue
            if fetched.error_code:
                copy.refuse(is_out_of_range=fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE)
            else:
                end = fetched.last_stable if fetch.request.reads_committed else fetched.high_watermark
                self._monitor.answered(flow, partition, copy, (fetched.log_start, end), now)

    def streamed(self, flow: Flow, read: Fetched, end: int) -> None:
        """An answer that was too large to hold had these records, raw. It is not known where the log starts."""
        copy, now = self._monitor.asked(flow, read.topic_partition, read.fetch_offset), trio.current_time()
        if copy is not None:
            self._monitor.answered(flow, read.topic_partition, copy, (copy.log.start, end), now)
            copy.give([Span(read.next_offset, read.next_offset - read.fetch_offset)], 0, now)
        else:
            self._given_also(flow, read, read.next_offset)

    def given(
        self, flow: Flow, partition: AnsweredPartition, decision: Decision, handed: HandedOut | None, now: float
    ) -> None:
        """In envelopes, raw, or up to the record with a token."""
        read, scanned = partition.read, partition.scanned
        if handed is not None:
            next_offset, envelopes = handed.read.next_offset, handed.envelopes
        elif isinstance(decision, Tokened):
            next_offset, envelopes = decision.next_offset, ()
        else:
            return
        if not scanned.headers or next_offset <= read.fetch_offset:
            return
        copy = self._monitor.asked(flow, read.topic_partition, read.fetch_offset)
        if copy is not None and copy.is_known:
            spans = spans_of(scanned, read.fetch_offset, next_offset, envelopes, partition.aborted)
            copy.give(spans, partition.fetched.end - partition.fetched.start, now)
        else:
            self._given_also(flow, read, next_offset)

    def _given_also(self, flow: Flow, read: Fetched, next_offset: int) -> None:
        copy = self._monitor.copied(flow, read.topic_partition)
        if copy is not None:
            copy.give_also(read.fetch_offset, next_offset)

    def _covered(self, since: float) -> Iterator[tuple[str, list[TopicPartition]]]:
        """What requests cover that have been answered since then: unchanged, unless the answer had it."""
        for consumer in self._live:
            if consumer.answered_at >= since:
                named = ((self._name(topic), index) for topic, index in consumer.covered)
                partitions = [
                    TopicPartition(name, index)
                    for name, index in named
                    if name is not None and not self.leaves_out(name)
                ]
                yield consumer.flow.client_id, partitions

    def _name(self, topic: Topic) -> str | None:
        return self._cluster.topic_name(topic) if isinstance(topic, bytes) else topic
