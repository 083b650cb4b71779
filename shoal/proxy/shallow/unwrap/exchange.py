"""The third stage of unwrapping, and its only I/O: requests to the broker until every partition has its outcome.

    cut what is due ── post requests ── take the answers ──┐
          ^   several in flight, in order                  │ findings go to the fold
          └────────────────────────────────────────────────┘ until nothing is in flight or due

`schedule` decides what is sent and what an answer means. Batches in flight on a lost connection remain in doubt in
their partition until the mirror's retry.

An envelope becomes a dozen requests or more. So the response pump takes the answers and posts the next requests in the
step that has read the answers (`flush`). The handler's task is only woken at the end, and for whatever must be awaited.

A broker works on one request of a connection after the other, so answers come one by one, and a step for each of them
would be most of the cost. So the pump waits until several are there (`_await_answers`). If as many requests are in
flight as may be, the last answer is not awaited: the broker has its request to work on when the next ones are sent. A
broker that is far away would have nothing to do until these arrive: there, each answer is taken at once. (A peer with
Nagle's algorithm would be slow here: Shoal's kernel acknowledges an answer that is not read after 40 ms. Brokers and
proxies turn it off.)
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import trio
from trio.lowlevel import checkpoint

from shoal.protocol.shallow.unwrap.outgoing import halves
from shoal.protocol.shallow.unwrap.replay import MAX_REPLAYED_IN_FLIGHT
from shoal.protocol.shallow.unwrap.sequences.own import MAX_IN_FLIGHT
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.connection.pending import OwnRequests
from shoal.proxy.net.upstream import UpstreamFault, UpstreamLost
from shoal.proxy.shallow.annotations import Unwrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.protocol.capture.index.pending import Request as IndexedRequest
    from shoal.protocol.capture.index.record_sets import RecordSets
    from shoal.protocol.messages.produce import Topics
    from shoal.protocol.shallow.batch_row import OutgoingBatch
    from shoal.protocol.shallow.unwrap.schedule import Answers, Request, Schedule
    from shoal.protocol.wire.types import TopicPartition
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.net.transport import Buffer
    from shoal.proxy.shallow.unwrap.answer import MirrorRequest
    from shoal.proxy.shallow.unwrap.fold import Fold

__all__ = ["answers_due", "exchange"]

# Cutting a batch takes about 3 us per record. Above this number a thread does it, so that other tasks are not blocked.
_RECORDS_CUT_HERE = 300
_POSTED_AT_ONCE = 8  # requests by one system call; as many are built before any is sent
_NEAR = 0.0005  # seconds of a round trip: about as long as a broker takes for a request of 64 kB
_CUTS_IN_A_ROW = 16  # of at most 1 ms each; then other tasks run


def answers_due(in_flight: int, round_trip: float) -> int:
    """With how many answers there is something to do, if so many requests are in flight.

    With fewer than a partition may have, nothing follows, or not before all of them. With more (several partitions, or
    a replay), one step more does no harm.
    """
    if round_trip > _NEAR:
        return min(in_flight, 1)
    return in_flight - (in_flight >= MAX_IN_FLIGHT)


async def exchange(connection: Connection, held: MirrorRequest, schedule: Schedule, fold: Fold) -> None:
    """Raises UpstreamLost and UpstreamFault; then it is unknown which batches in flight were appended."""
    await _Exchange(connection, held, schedule, fold).run()


class _Exchange(OwnRequests):
    __slots__ = (
        "_answers",
        "_connection",
        "_error",
        "_fold",
        "_held",
        "_is_lost",
        "_news",
        "_posted",
        "_round_trip",
        "_schedule",
        "_unsent",
        "_unwrapped",
    )

    def __init__(self, connection: Connection, held: MirrorRequest, schedule: Schedule, fold: Fold) -> None:
        self.gate = None
        self._connection = connection
        self._held = held
        self._schedule = schedule
        self._fold = fold
        self._posted: deque[Request] = deque()
        self._answers: deque[bytearray] = deque()  # to the first of these
        self._unsent: Sequence[Buffer] = ()
        self._unwrapped = Unwrapped(schedule.items, held.naming)  # for the index
        self._round_trip = connection.broker_round_trip
        self._is_lost = False  # no more answers will arrive
        self._news: trio.Event | None = None  # the task waits for it; None: the task runs
        self._error: Exception | None = None

    async def run(self) -> None:
        connection, schedule, fold = self._connection, self._schedule, self._fold
        try:
            while await self._turn():
                pass
        except UpstreamLost:
            fold.connection_lost(sets_in_flight=any(request.has_sets for request in self._posted))
            raise
        except trio.Cancelled:
            fold.cancelled(schedule.unstamped())
            raise
        finally:
            self._news = None
            connection.responses.await_bytes(1)
            schedule.abandon()
            fold.close()

    # -- the task ----------------------------------------------------------------------------------------------------

    async def _turn(self) -> bool:
        """-> whether there is more to do."""
        connection = self._connection
        await self._cut(self._schedule.cuts_due())
        if self._unsent:
            await connection.broker.post_rest(self._unsent)
            self._unsent = ()
        await connection.broker.log_in_if_due()
        self._post()
        if self._unsent:
            return True
        if not self._posted:
            return False
        if not self._answers:
            await self._wait()
        self._take()
        return True

    async def _wait(self) -> None:
        """Until an answer has arrived, or there is something to do that `flush` leaves to the task."""
        if self._is_lost:
            raise UpstreamLost("the connection to the broker ended before it had answered")
        self._news = trio.Event()
        await self._news.wait()
        if self._error is not None:
            raise self._error

    async def _cut(self, partitions: Sequence[TopicPartition]) -> None:
        cuts, schedule = 0, self._schedule
        for partition in partitions:
            while (batch := schedule.cut_due(partition)) is not None:
                here = batch.records <= _RECORDS_CUT_HERE
                parts = _halves(batch) if here else await trio.to_thread.run_sync(partial(_halves, batch))
                self._fold.take(schedule.cut(partition, parts))
                cuts += 1
                if not cuts % _CUTS_IN_A_ROW:
                    await checkpoint()

    # -- without the task --------------------------------------------------------------------------------------------

    def deliver(self, frame: bytearray | None) -> None:
        if frame is not None:
            self._answers.append(frame)
            return
        self._is_lost = True
        self._wake()

    def flush(self) -> None:
        if self._news is None:
            return
        try:
            self._take()
            if not self._schedule.cuts_due() and not self._connection.broker.login_is_due:
                self._post()
                if self._posted and not self._unsent:
                    return
        except Exception as error:
            self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set()
            self._news = None

    # -- both --------------------------------------------------------------------------------------------------------

    def _post(self) -> None:
        """Post what may be sent now."""
        connection, held, is_indexed = self._connection, self._held, self._connection.tap is not None
        while not self._unsent and (requests := self._next_requests()):
            topics = [held.by_topic(request.buffers()) for request in requests]
            frames = [held.encode_answered(each) for each in topics]
            made = zip(requests, topics, frames, strict=True)
            indexed = [self._indexed(*each) for each in made] if is_indexed else ()
            self._unsent = connection.broker.post_at_once(frames, self, indexed)
            self._posted += requests
        self._await_answers()

    def _await_answers(self) -> None:
        posted, connection = self._posted, self._connection
        is_alone = len(posted) == len(connection.in_flight)
        due = answers_due(len(posted), self._round_trip) if is_alone else 0
        size = sum(self._fold.shortest_answer(request.partitions) for request in islice(posted, due))
        connection.responses.await_bytes(size or 1)

    def _next_requests(self) -> list[Request]:
        requests: list[Request] = []
        sets = self._fold.may_send_sets
        while len(requests) < _POSTED_AT_ONCE and len(self._posted) + len(requests) < MAX_REPLAYED_IN_FLIGHT:
            request = self._schedule.next_request(sets=sets)
            if request is None:
                break
            self._fold.sent()
            requests.append(request)
        return requests

    def _indexed(self, request: Request, topics: Topics, frame: Sequence[Buffer]) -> tuple[IndexedRequest, RecordSets]:
        indexed = self._held.indexed(sum(map(len, frame)))
        indexed.note = self._unwrapped.note(request.record_sets)
        return indexed, [(topic, *each) for topic, partitions in topics for each in partitions]

    def _take(self) -> None:
        """Take the answers that have arrived, together. Raises UpstreamFault."""
        taken: list[tuple[Request, Answers]] = []
        try:
            while self._answers:
                request, answers = self._posted.popleft(), self._fold.read(self._answers.popleft())
                taken.append((request, answers))
                for partition in request.partitions:
                    if partition not in answers:
                        raise UpstreamFault(f"the broker's answer to Produce says nothing about {partition}")
        finally:
            self._fold.take(self._schedule.answered(taken))


def _halves(batch: OutgoingBatch) -> list[OutgoingBatch] | RemoteProtocolError:
    try:
        return halves(batch)
    except RemoteProtocolError as error:
        return error
