"""Answers to a mirror that are too large to hold: they are streamed raw, and what they give is noted all the same.

An answer is larger than what is held (limits.held-response-bytes) where its first batch alone is: Kafka sends one batch at least,
whatever the limits say. The fetch session it opens must be known, or its partitions would stay raw for as long as it lasts; and the
interlock must know that these records were given, or they could pass for evidence of another mirror. A mirror can do nothing with
an answer that is not complete, so it is time enough to note all of it before the last piece goes out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.protocol.capture.index.pending import FetchOutcome
from shoal.protocol.shallow.wrap.eligible import Reason
from shoal.protocol.transform.watch import FetchWatcher
from shoal.proxy.connection.in_flight import Edit

if TYPE_CHECKING:
    from shoal.protocol.transform.watch import WatchedPartition
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.in_flight import PendingAnswer
    from shoal.proxy.net.transport import Buffer
    from shoal.proxy.shallow.counters import ShallowTally
    from shoal.proxy.shallow.fetch_question import MirrorFetch, Unseen
    from shoal.proxy.shallow.interlock import Interlock

__all__ = ["FetchStreams"]

_LARGE = FetchOutcome(reason=Reason.LARGE_ANSWER)


class FetchStreams:
    def __init__(self, interlock: Interlock, tally: ShallowTally, unseen: Unseen) -> None:
        self._interlock = interlock
        self._unseen = unseen
        self._tally = tally

    def edit(self, connection: Connection, question: MirrorFetch) -> Edit:
        """For `Hold.too_large`."""

        def stream(entry: PendingAnswer, size: int) -> _Stream:
            connection.listener.complain(
                f"a fetch answer of {size} bytes is larger than what is held: it passes raw (limits.held-response-bytes)"
            )
            if connection.tap is not None:
                connection.tap.judge(entry.correlation_id, {}, _LARGE)
            return _Stream(self, connection, question, FetchWatcher(entry.api_version, size))

        def whole(_connection: Connection, entry: PendingAnswer, frame: Buffer) -> Buffer:
            streamed = bytearray(frame)
            one = stream(entry, len(streamed))
            passed = one.feed(memoryview(streamed))
            return streamed[:passed] + one.finish(streamed[passed:]) if passed < len(streamed) else streamed

        return Edit(whole, stream)

    def note(self, connection: Connection, question: MirrorFetch, answer: FetchWatcher) -> None:
        """The answer is about to be given."""
        consumer, request, asked = question
        if answer.error_code == 0:
            consumer.sessions.answered(request, asked, answer.session_id)
        now = self._interlock.tick()
        for one in answer.partitions:
            self._tally.raw_batches[Reason.LARGE_ANSWER] += max(one.batches, 1)
            self._give(connection, question, one, now)

    def _give(self, connection: Connection, question: MirrorFetch, one: WatchedPartition, now: float) -> None:
        read = question.read(connection, (one.topic, one.partition), one.next_offset, one.high_watermark)
        rules, flow = self._interlock.rules, question.consumer.flow
        if read is None:
            raw_next = one.next_offset if one.next_offset >= 0 else one.high_watermark
            self._unseen.note(connection, flow, (one.topic, one.partition), raw_next)
        else:
            rules.fetched(flow, read, now)
            rules.given(flow, read, now, read.next_offset)


class _Stream:
    """One such answer. Hides addresses, too."""

    def __init__(
        self, streams: FetchStreams, connection: Connection, question: MirrorFetch, watcher: FetchWatcher
    ) -> None:
        self._streams = streams
        self._connection = connection
        self._question = question
        self._watcher = watcher

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
        self._streams.note(self._connection, self._question, self._watcher)
