"""A mirror's answers that are too large to hold: they are streamed raw, and their offsets are still recorded.

An answer exceeds limits.held-response-bytes if its first batch does: Kafka sends at least one batch, whatever the
limits are. Shoal must know the fetch session that the answer opens, otherwise its partitions would be raw as long as it
lasts. The interlock must know that these records were sent, otherwise they could be mistaken for evidence of another
mirror. A mirror cannot use an incomplete answer, so everything is recorded just before the last piece is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.protocol.capture.index.pending import FetchOutcome
from shoal.protocol.shallow.wrap.eligible import Reason
from shoal.protocol.transform.watch import FetchWatcher
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import PartitionRef
from shoal.proxy.connection.pending import EditAnswer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.protocol.transform.watch import WatchedPartition
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.pending import PendingAnswer
    from shoal.proxy.net.transport import Buffer
    from shoal.proxy.shallow.wrap.mirror_fetch import MirrorFetch
    from shoal.proxy.shallow.wrap.source_knowledge import SourceKnowledge

__all__ = ["OversizedAnswers"]

_LARGE = FetchOutcome(reason=Reason.LARGE_ANSWER)


class OversizedAnswers:
    def __init__(self, source: SourceKnowledge) -> None:
        self._source = source

    def edit(self, connection: Connection, fetch: MirrorFetch) -> EditAnswer[Connection]:
        """For `Hold.too_large`."""

        def stream(entry: PendingAnswer, size: int) -> _Stream:
            limit = connection.limits.held_response_bytes
            too_large = f"a fetch answer of {size} bytes is above limits.held-response-bytes ({limit})"
            if stopped := self._source.followed.stopped(connection, fetch, fetch.asked):
                names = _names(connection, stopped)
                raise RemoteProtocolError(
                    f"{too_large}, and {names} must be taken out of it until its gap is acknowledged: raise that "
                    "limit, or acknowledge it (shoal gaps --acknowledge)"
                )
            if ours := self._source.same_offsets.of(connection, fetch.consumer, iter(fetch.asked)):
                names = _names(connection, ours)
                raise RemoteProtocolError(f"{too_large}, and {names} must not be raw (same-offsets): raise that limit")
            connection.listener.complain(
                "fetch-answer-too-large",
                f"{too_large}: it passes raw. Raise the limit above the largest batch, or let producers make smaller "
                "ones (batch.size)",
                bytes=size,
            )
            if connection.tap is not None:
                connection.tap.judge(entry.correlation_id, {}, _LARGE)
            return _Stream(self, connection, fetch, FetchWatcher(entry.api_version, size))

        def whole(_connection: Connection, entry: PendingAnswer, frame: Buffer) -> Buffer:
            streamed = bytearray(frame)
            answer = stream(entry, len(streamed))
            passed = answer.feed(memoryview(streamed))
            return streamed[:passed] + answer.finish(streamed[passed:]) if passed < len(streamed) else streamed

        return EditAnswer(whole, stream)

    def note(self, connection: Connection, fetch: MirrorFetch, answer: FetchWatcher) -> None:
        """The end of the answer is about to be sent."""
        consumer, request, asked = fetch
        if answer.error_code == 0:
            consumer.sessions.answered(request, asked, answer.session_id)
        now = self._source.interlock.tick()
        for partition in answer.partitions:
            self._source.tally.raw_batches[Reason.LARGE_ANSWER] += max(partition.batches, 1)
            self._give(connection, fetch, partition, now)

    def _give(self, connection: Connection, fetch: MirrorFetch, partition: WatchedPartition, now: float) -> None:
        key = PartitionRef(partition.topic, partition.partition)
        read = fetch.read(connection, key, partition.next_offset, partition.high_watermark)
        flow = fetch.consumer.flow
        if read is None:
            raw_next = partition.next_offset if partition.next_offset >= 0 else partition.high_watermark
            self._source.unseen.note(connection, flow, key, raw_next)
        else:
            self._source.interlock.rules.gave_raw(flow, read, now)
            self._source.followed.streamed(flow, read, partition.high_watermark)


def _names(connection: Connection, refs: Iterable[PartitionRef]) -> str:
    return ", ".join(sorted(connection.cluster.partition_name(*ref) for ref in refs))


class _Stream:
    """One such answer. Also hides addresses."""

    def __init__(
        self, streams: OversizedAnswers, connection: Connection, fetch: MirrorFetch, watcher: FetchWatcher
    ) -> None:
        self._streams = streams
        self._connection = connection
        self._fetch = fetch
        self._watcher = watcher

    @property
    def unread(self) -> int:
        return self._watcher.unread

    def passed(self, size: int, /) -> None:
        self._watcher.passed(size)

    def feed(self, chunk: memoryview, /) -> int:
        passed = self._watcher.feed(chunk)
        if not self._watcher.left:
            self._note()
        return passed

    def finish(self, rest: bytearray, /) -> bytes:
        sent = self._watcher.finish(rest)
        self._note()
        return sent

    def _note(self) -> None:
        self._streams.note(self._connection, self._fetch, self._watcher)
