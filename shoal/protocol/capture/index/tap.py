"""The tap on one connection to a broker: bytes of both directions in, rows of the index out.

    to the broker    RequestWalker ── a Request, waiting ──┐
    from the broker  AnswerWalker ─────────────────────────┴── rows

It is between Shoal and the *broker*, not between Shoal and the client. So the index has what the broker sent and
received, each batch once per direction: the batches of an envelope, never the envelope; and the joined request instead
of several clients' requests (`proxy/` assigns each batch to its client there). `proxy/` adds what the bytes do not
show: with `note` how it handles a request, with `judge` the outcome of a Fetch answer. What it has made itself is not
read again: with `post` it says what the next bytes are.

A row of a Produce request waits for the answer (base offset, error, throttle, latency), except with acks = 0; a row of
a Fetch answer that Shoal may wrap waits for its outcome. Every request has one answer, in order. Waiting rows are
limited: MAX_WAITING batches per connection; those of further requests are dropped and counted.

A repeated request and its answer are read by a template (template.py), others by the walkers. The feeder may lag
behind: the tap asks it to `catch_up` before any annotation or query of the connection.

Never raises; the traffic does not depend on it. It skips what it cannot read (stream.py).
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from shoal.protocol.capture.index.answers import AnswerWalker, ProduceAnswers, Said, read_produced
from shoal.protocol.capture.index.columns import Direction, Handling
from shoal.protocol.capture.index.pending import NO_NOTE, FetchOutcome, Request, RequestAnnotation, Treatment
from shoal.protocol.capture.index.record_sets import PartitionRows, RecordSetReader, RecordSets, as_rows
from shoal.protocol.capture.index.requests import RequestWalker, Template
from shoal.protocol.capture.index.rows import NO_ANSWER, UNKNOWN_ERROR, Answered, ConnectionInfo, RowMaker
from shoal.protocol.capture.index.sink import Sink
from shoal.protocol.capture.index.stream import is_several, whole_frames
from shoal.protocol.capture.index.template import Frame, Sent
from shoal.protocol.records.key_sample import KeySampler
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.wire.types import Buffer, Topic

__all__ = ["MAX_WAITING", "Tap"]

MAX_WAITING: Final = 100_000
"""Batches of one connection; a row takes about 200 bytes."""
_MAX_NOTES: Final = 10_000
_PRODUCE, _FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)
_NO_VERDICT: Final = FetchOutcome()


def _has_all() -> None:
    pass


class Tap:
    def __init__(
        self,
        place: ConnectionInfo,
        sink: Sink,
        sampler: KeySampler | None = None,
        *,
        most_waiting: int = MAX_WAITING,
    ) -> None:
        self.catch_up: Callable[[], None] = _has_all
        """Makes the feeder give all that has passed."""
        self._sink = sink
        self._make = RowMaker(place, sink)
        self._requests = RequestWalker(self._sent)
        self._answers = AnswerWalker(self._due, self._answered)
        self._produce_answers = ProduceAnswers()
        self._record_sets = RecordSetReader()
        self._requests.sampler = self._answers.sampler = self._record_sets.sampler = sampler
        self._posted: deque[tuple[Request, RecordSets]] = deque()
        self._posted_bytes = 0  # of the first of these that are sent
        self._is_left = False
        self._waiting: deque[Request | Sent] = deque()
        self._room = most_waiting  # batches that may still wait
        self._notes: dict[int, deque[RequestAnnotation]] = {}
        self._unjudged: dict[int, tuple[Request, Answered, list[PartitionRows], int]] = {}
        self._now_ns = self._began_ns = 0
        self.templates: Sequence[Template] = ()
        """Templates that may read the next request."""
        self._is_between = True  # between two answers

    # -- traffic ---------------------------------------------------------------------------------------------------

    def sent(self, chunk: Frame, now_ns: int) -> None:
        """The broker was sent these bytes. The chunk is borrowed."""
        if self.templates and self._sent_again(chunk, now_ns):
            return
        if self.templates and is_several(chunk):
            for frame in whole_frames(chunk):
                self.sent(frame, now_ns)
            return
        self._now_ns = now_ns
        self._requests.feed(memoryview(chunk))
        self.templates = self._requests.known

    def gathered(self, sent: tuple[Sequence[Buffer], int], now_ns: int) -> None:
        """The broker was sent so many bytes of these buffers, by one call."""
        buffers, size = sent
        if self._posted:
            self._sent_posted(size, now_ns)
            return
        for buffer in buffers:
            if size and len(buffer):
                self.sent(memoryview(buffer)[:size], now_ns)
                size -= min(size, len(buffer))

    def _sent_posted(self, size: int, now_ns: int) -> None:
        posted, requests = self._posted, self._requests
        self._posted_bytes += size
        while posted and self._posted_bytes >= posted[0][0].size:
            request, record_sets = posted.popleft()
            self._posted_bytes -= request.size
            requests.number += 1
            request.number, request.sent_ns = requests.number, now_ns
            request.partitions = self._record_sets.read(record_sets)
            if not (requests.lost or self._answers.lost):
                self._wait(request, self._record_sets.batches)

    def _sent_again(self, frame: Frame, now_ns: int) -> bool:
        requests = self._requests
        number = requests.number + 1
        for template in self.templates:
            found = template.read(frame, now_ns, number)
            if found is not None:
                break
        else:
            return False
        requests.number = number
        if self._notes and (note := self._noted(found[1])) is not NO_NOTE:
            found = (*found[:7], note)
        batches = found[0].batches
        if batches > self._room:
            self._wait(found[0].as_request(found), batches)
        else:
            self._room -= batches
            self._waiting.append(found)
        return True

    def received(self, chunk: Frame, now_ns: int) -> None:
        """The broker has sent these bytes."""
        waiting = self._waiting
        if waiting and self._is_between:
            first = waiting[0]
            if type(first) is tuple:
                template = first[0]
                if template.epoch != self._sink.epoch:
                    self._make.name(template)
                treated = None if first[7] is NO_NOTE else self._make.treated(template, first[7])
                row = template.row(first, chunk, now_ns, treated)
                if row is not None:
                    waiting.popleft()
                    self._room += template.batches
                    self._sink.add(row)
                    return
            if self._received_otherwise(first, chunk, now_ns):
                return
        self._now_ns = now_ns
        self._answers.feed(memoryview(chunk))
        self._is_between = self._answers.is_between_frames

    def _received_otherwise(self, first: Request | Sent, chunk: Frame, now_ns: int) -> bool:
        """-> whether it has read the chunk, which starts with the answer to the first waiting request."""
        request = first[0].as_request(first) if isinstance(first, tuple) else first
        if request.api_key == _PRODUCE:
            read = self._produce_answers.read(request, chunk)
            if read is not None:
                self._waiting.popleft()
                self._produced(request, Answered(now_ns, len(chunk), read[1]), read[0])
                return True
        if (request.api_key == _PRODUCE or isinstance(first, tuple)) and is_several(chunk):
            for frame in whole_frames(chunk):
                self.received(frame, now_ns)
            return True
        return False

    def expect_tokens(self, count: int) -> None:
        """`count` frames without a Kafka header follow in each direction (SASL after SaslHandshake v0)."""
        self.catch_up()
        self._requests.expect_tokens(count)
        self.templates = ()

    def close(self) -> None:
        """The connection has ended: waiting requests will not be answered."""
        self.catch_up()
        while (request := self._next()) is not None:
            self._produced(request, NO_ANSWER, {})
        for correlation_id in list(self._unjudged):
            self._judge(correlation_id, {})

    def leave(self) -> None:
        """It will get no more bytes."""
        self._is_left = True
        self._posted.clear()

    # -- annotations -------------------------------------------------------------------------------------------------

    def note(self, correlation_id: int, note: RequestAnnotation) -> None:
        """Annotate a request before it is sent: the first with this id after those that are annotated already."""
        self.catch_up()
        if len(self._notes) >= _MAX_NOTES:
            self._notes.clear()
        self._notes.setdefault(correlation_id, deque(maxlen=_MAX_NOTES)).append(note)

    def post(self, request: Request, record_sets: RecordSets) -> None:
        """The next bytes to the broker are this Produce request's. The record sets are borrowed until it is sent."""
        self.catch_up()
        if not self._is_left:
            self._posted.append((request, record_sets))

    def judge(
        self,
        correlation_id: int,
        verdicts: Mapping[tuple[Topic, int], FetchOutcome],
        otherwise: FetchOutcome = _NO_VERDICT,
    ) -> None:
        """The outcome of an answer whose request was noted as `judged`; `otherwise`: for all other partitions.

        An answer that has not fully arrived is raw, for the reason of `otherwise`.
        """
        self.catch_up()
        self._judge(correlation_id, verdicts, otherwise)

    def _judge(
        self,
        correlation_id: int,
        verdicts: Mapping[tuple[Topic, int], FetchOutcome],
        otherwise: FetchOutcome = _NO_VERDICT,
    ) -> None:
        on_its_way: tuple[Request | None, Answered, list[PartitionRows], int] = (
            self._answers.request,
            NO_ANSWER,
            [],
            0,
        )
        request, answered, partitions, error = self._unjudged.pop(correlation_id, on_its_way)
        if request is None or request.correlation_id != correlation_id:
            return
        if answered is NO_ANSWER:
            request.note = RequestAnnotation(treatment=Treatment(handling=Handling.RAW, reason=otherwise.reason))
            return
        self._room += sum(len(rows.tails) for rows in partitions)
        for rows in partitions:
            self._make.judged(request, answered, rows, verdicts.get((rows.topic, rows.partition), otherwise))
        if not partitions:
            self._make.request(request, answered, Direction.FETCHED, error)

    @property
    def lost(self) -> bool:
        """True if it has stopped reading one direction."""
        self.catch_up()
        return self._requests.lost or self._answers.lost

    @property
    def unread(self) -> int:
        """Number of frames and record sets that could not be read completely."""
        self.catch_up()
        walkers = (self._requests, self._answers)
        of_sets = self._record_sets.abandoned + self._record_sets.overlooked
        return of_sets + sum(walker.abandoned + walker.overlooked + walker.unknown + walker.lost for walker in walkers)

    def joined(self, request: Request, answered: Answered, rows: PartitionRows) -> None:
        """Batches of this client that were sent over another connection, joined with others."""
        self.catch_up()
        self._make.software = self._requests.software
        self._make.batches(request, answered, Direction.PRODUCED, request.note.treatment, rows)

    def next_number(self) -> int:
        """For a request over another connection."""
        self.catch_up()
        self._requests.number += 1
        return self._requests.number

    # -- requests ----------------------------------------------------------------------------------------------------

    def _sent(self, request: Request) -> None:
        request.sent_ns = self._now_ns
        if self._notes:
            request.note = self._noted(request.correlation_id)
        if self._make.software != self._requests.software:
            self._rename()
        batches = self._requests.batches
        if request.api_key == _PRODUCE and request.acks == 0:
            self._produced(request, NO_ANSWER, {})
            return
        self._wait(request, batches)

    def _wait(self, request: Request, batches: int) -> None:
        if not self._hold(batches):
            request.partitions = []
        self._waiting.append(request)

    def _noted(self, correlation_id: int) -> RequestAnnotation:
        notes = self._notes.get(correlation_id)
        if notes is None:
            return NO_NOTE
        note = notes.popleft()
        if not notes:
            del self._notes[correlation_id]
        return note

    def _rename(self) -> None:
        """Names used so far have changed."""
        self._make.software = self._requests.software
        self._requests.forget()
        self._waiting = deque(
            waiting[0].as_request(waiting) if isinstance(waiting, tuple) else waiting for waiting in self._waiting
        )

    def _hold(self, batches: int) -> bool:
        if batches > self._room:
            self._sink.drop(batches)
            return False
        self._room -= batches
        return True

    # -- answers -----------------------------------------------------------------------------------------------------

    def _due(self) -> Request | None:
        self._began_ns = self._now_ns
        return self._next()

    def _next(self) -> Request | None:
        if not self._waiting:
            return None
        first = self._waiting.popleft()
        return first[0].as_request(first) if isinstance(first, tuple) else first

    def _answered(self, answer: AnswerWalker) -> None:
        request = answer.request
        assert request is not None
        if request.is_token:
            return
        if request.api_key == _PRODUCE:
            said, throttle_ms = read_produced(request, answer.held)
            self._produced(request, Answered(self._began_ns, answer.size, throttle_ms), said)
            return
        answered = Answered(self._began_ns, answer.size, answer.throttle_ms)
        if request.api_key == _FETCH:
            self._fetched(request, answered, answer)
        else:
            self._make.request(request, answered, Direction.OTHER, UNKNOWN_ERROR)

    def _produced(self, request: Request, answered: Answered, said: Said) -> None:
        """A request is complete: its answer has arrived, or never will."""
        batches = self._make.produced(request, answered, said)
        self._room += batches if request.acks else 0

    def _fetched(self, request: Request, answered: Answered, answer: AnswerWalker) -> None:
        partitions = [as_rows(rows) for rows in answer.partitions]
        if request.note.judged:
            self._judge(request.correlation_id, {})  # an earlier one that was never judged
            if not self._hold(answer.batches):
                partitions = []
            self._unjudged[request.correlation_id] = (request, answered, partitions, answer.error)
            return
        for rows in partitions:
            self._make.batches(request, answered, Direction.FETCHED, request.note.treatment, rows)
        if not partitions:
            self._make.request(request, answered, Direction.FETCHED, answer.error)
