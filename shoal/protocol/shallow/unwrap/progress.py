"""One partition's plan, sent record set by record set, until its outcome is known.

The first error stops the sending. When everything in flight is answered:

    the first batch in doubt is now too old for the broker      continue after it
    nothing of it was appended, and it was in doubt before      all of it again, in a new epoch
    ... and the set can be divided                              continue with its first half
    ... and a single batch is too large                         cut its records into parts, continue with them
    ... and a single batch is refused permanently               continue after it
    ... and the broker lost track of the sequence               a new epoch, once
    else                                                        the mirror gets the error; what may be appended
                                                                is in doubt

So a bad batch is found by bisection, and everything else is appended, as with one request per batch, where a producer
sends the next batch whatever happens to this one. The answer, also to a retry, is then the error, when everything is
done. A plan with a mirror's own stamps ends at the bad batch: the broker accepts nothing after a gap in the sequence.

With stamps (`sequences/own.py`) up to five record sets are in flight. The first one is sent alone, because a broker
accepts any sequence of an unknown producer id, also after a gap. Without stamps only one is in flight. This also
applies to a mirror's own stamps: then only the first remaining set may have been sent before, even after a restart of
Shoal.
"""

from collections import deque
from collections.abc import Sequence as Row
from dataclasses import dataclass

from shoal.protocol.shallow.batch_row import OutgoingBatch
from shoal.protocol.shallow.unwrap.appended_items import AppendedItems
from shoal.protocol.shallow.unwrap.appended_log import Ledger
from shoal.protocol.shallow.unwrap.findings import (
    ALREADY_THERE,
    CUTTABLE,
    DIVISIBLE,
    LOST_TRACK,
    NEVER_APPENDED,
    NOT_APPENDED,
    OF_STAMPS,
    REFUSED_FOR_GOOD,
    TRY_AGAIN,
    BatchRefused,
    Finding,
    GapIgnored,
    Outcome,
    PartitionFailed,
    ProducerIdStale,
    RecordSetAppended,
    SetRefused,
    StampsRefused,
)
from shoal.protocol.shallow.unwrap.outgoing import OutgoingRecordSet
from shoal.protocol.shallow.unwrap.plan import Item, Plan
from shoal.protocol.shallow.unwrap.remaining import BatchRange
from shoal.protocol.shallow.unwrap.replay import MAX_REPLAYED_IN_FLIGHT, InDoubtReplay
from shoal.protocol.shallow.unwrap.sequences.own import MAX_IN_FLIGHT, InDoubt, Sequence
from shoal.protocol.wire.error_codes import ErrorCode, error_name
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import TopicPartition

__all__ = ["MAX_IN_DOUBT", "SET_BYTES", "PartitionProgress"]

# A set must fit into a segment (segment.bytes, since 4.0 at least this); otherwise RECORD_LIST_TOO_LARGE.
SET_BYTES = 1024 * 1024
# Most batches of a partition in doubt: each is sent again alone, which takes a broker one or two seconds and 64 round
# trips.
MAX_IN_DOUBT = 4096


@dataclass(frozen=True, slots=True)
class _Failure:
    """The first error, and the record sets from there on. `certain`: none of them was appended.

    `lost_track`: the broker lost the sequence, and all of them must be sent again, whatever it answers to later ones.
    """

    error_code: int
    record_sets: list[OutgoingRecordSet]
    certain: bool
    lost_track: bool = False

    def and_then(self, record_set: OutgoingRecordSet, *, certain: bool) -> "_Failure":
        certain = self.lost_track or (self.certain and certain)
        return _Failure(self.error_code, [*self.record_sets, record_set], certain, self.lost_track)


class PartitionProgress:
    """`cut_due`/`cut` and `next_record_set`/`answered`, until there is an `outcome`; `abandon` if no answer arrives.

    `sequence`: the partition's stamps; None: one record set in flight. `sets` (may change at any time): the broker is
    proven to accept several batches in one record set. `again`: the batches have a mirror's own stamps, and may have
    been sent before. Results other than the outcome are returned as findings.
    """

    def __init__(
        self,
        partition: TopicPartition,
        plan: Plan,
        ledger: Ledger,
        *,
        sequence: Sequence | None = None,
        sets: bool = False,
        again: bool = False,
    ) -> None:
        self.partition = partition
        self.outcome: Outcome | None = None
        self.sets = sets
        self.cut_due: OutgoingBatch | None = None
        self._cut_at = 0  # index among the remaining batches
        self._found = list[Finding]()  # not returned yet
        self._plan = plan
        self._has_envelopes = bool(plan.envelopes)
        self._sequence = sequence
        self._appended = AppendedItems(partition, plan, ledger)
        self._remaining = self._appended.remaining()
        self._in_flight: deque[OutgoingRecordSet] = deque()
        self._failure: _Failure | None = None
        self._primed = False
        self._renewed = False
        self._suspects = 0  # number of remaining batches that were refused together
        self._suspicion = 0  # their error
        self._set_bytes = SET_BYTES
        self._most = MAX_IN_DOUBT  # batches in a set: few after a refused one, because the next may be refused, too
        self._replay = InDoubtReplay(self._usable_doubt())
        self._prepare()
        self._is_stamped_replay = again  # until the first answer that resolves all of it
        self._replay_stamped()

    @property
    def items(self) -> Row[Item]:
        return self._plan.items

    @property
    def repeats(self) -> int:
        """Batches, or parts of one, that were appended earlier."""
        return self._appended.repeats

    def _findings(self) -> list[Finding]:
        found, self._found = self._found, []
        return found

    # -- before anything is sent -------------------------------------------------------------------------------------

    def _usable_doubt(self) -> InDoubt | None:
        """What an earlier request left in doubt, if it had the same data. Other data will not be sent again."""
        sequence = self._sequence
        if sequence is None or sequence.doubt is None:
            return None
        if sequence.doubt.plan != self._plan.identity:
            self._renew()
            return None
        return sequence.doubt

    def _replay_stamped(self) -> None:
        """A set's worth of the remaining batches may have been sent before; counted again after cuts."""
        if self._is_stamped_replay and self._remaining:
            self._replay = InDoubtReplay(batches=self._remaining.fitting(SET_BYTES, MAX_IN_DOUBT))

    def _renew(self) -> None:
        """Continue in a new epoch, or without stamps if there is no other epoch."""
        if self._sequence is not None and not self._sequence.raise_epoch():
            self._go_on_without_id()
        self._primed = False

    def _go_on_without_id(self) -> None:
        self._sequence = None
        self._found.append(ProducerIdStale(self.partition, self._plan.sender))

    def _prepare(self) -> None:
        """Skip appended records, and cut what was cut before; when done, `cut_due` is None."""
        if self.outcome is not None:
            return
        while self._remaining:
            first = self._remaining.first
            appended = self._appended.records_in(first)
            if appended <= first.first:
                break
            if appended < first.first + first.batches.records_of(0):
                return self._cut_next(0)
            self._remaining.drop(1)
        cut_before = self._replay.prepare(self._remaining)
        if cut_before is not None:
            return self._cut_next(cut_before)
        if self._replay.failed:
            self._replay = InDoubtReplay()
            self._renew()
        return self._finish()

    # -- cutting -----------------------------------------------------------------------------------------------------

    def _cut_next(self, number: int) -> None:
        self.cut_due, self._cut_at = self._remaining.batch(number), number

    def cut(self, parts: Row[OutgoingBatch] | RemoteProtocolError) -> list[Finding]:
        """The result of `halves` for `cut_due`. It may run in a thread; meanwhile call no other method."""
        batch, self.cut_due = self.cut_due, None
        assert batch is not None
        if isinstance(parts, RemoteProtocolError):
            self._refuse_for_size(f"cannot be cut in pieces that fit ({parts}): {batch}")
        elif len(parts) < 2:
            self._refuse_for_size(f"a single record is too large: {batch}")
        else:
            self._remaining.replace(self._cut_at, parts)
            self._replay_stamped()
        self._prepare()
        return self._findings()

    def _refuse_for_size(self, what: str) -> None:
        # On MESSAGE_TOO_LARGE a Java producer splits an outer batch of several records. Its plain records would then be
        # in another outer batch, and be appended twice, for no gain, because a single record is too large.
        code = ErrorCode.MESSAGE_TOO_LARGE if self._plan.outer_records == 1 else ErrorCode.RECORD_LIST_TOO_LARGE
        limit = "segment.bytes" if self._suspicion == ErrorCode.RECORD_LIST_TOO_LARGE else "max.message.bytes"
        answered = f"the target broker answered {error_name(self._suspicion)}"
        message = f"{answered}, so the batch is over {limit} of the target topic, and {what}"
        if self._cut_at:  # it was cut before, so it can be cut now
            return self._fail(TRY_AGAIN, message)
        return self._refuse(code, message)

    # -- sending -----------------------------------------------------------------------------------------------------

    def next_record_set(self, room: int | None = None) -> OutgoingRecordSet | None:
        """The next one to send, at most `room` bytes; None: nothing now. Without `room` at least one batch."""
        if not self._may_send():
            return None
        is_replayed = self._replay.due > 0
        count = 1 if is_replayed or not self.sets else self._gather(self._set_bytes if room is None else room)
        record_set = OutgoingRecordSet(self._remaining.peek(count), None)
        if room is not None and record_set.size > room:
            return None
        self._remaining.drop(count)
        if is_replayed:
            record_set.stamp = self._replay.take()
        elif self._sequence is not None:
            record_set.stamp = self._sequence.take(record_set.records)
        self._in_flight.append(record_set)
        return record_set

    def _may_send(self) -> bool:
        if self.outcome or self._failure or self.cut_due or not self._remaining:
            return False
        in_flight = len(self._in_flight)
        if not in_flight:
            return True
        if self._replay.unanswered:  # nothing new until all of it is resolved
            return self._primed and self._replay.due > 0 and in_flight < MAX_REPLAYED_IN_FLIGHT
        return self._sequence is not None and self._primed and not self._suspects and in_flight < MAX_IN_FLIGHT

    def _gather(self, room: int) -> int:
        """Number of batches that may be sent as one set."""
        in_doubt = sum(record_set.batches for record_set in self._in_flight)
        most = (self._suspects + 1) // 2 if self._suspects else min(self._most, MAX_IN_DOUBT - in_doubt)
        return self._remaining.fitting(min(room, self._set_bytes), most)

    # -- answers -----------------------------------------------------------------------------------------------------

    def answered(self, error_code: int, base_offset: int) -> list[Finding]:
        """The broker's partition response to the oldest record set in flight (base_offset -1: unknown)."""
        return self.answered_all([(error_code, base_offset)])

    def answered_all(self, answers: Row[tuple[int, int]]) -> list[Finding]:
        """`answered` for each of the oldest record sets in flight. What follows each other in an envelope and in the
        log is recorded as one.
        """
        at = 0
        while at < len(answers):
            error_code, base_offset = answers[at]
            record_set, count = self._oldest(answers, at)
            if error_code:
                self._found.append(PartitionFailed(self.partition, error_code))
            elif self._has_envelopes:
                what = RecordSetAppended(self.partition, record_set.batches, record_set.records, record_set.size, count)
                self._found.append(what)
            self._judge(record_set, error_code, base_offset, count)
            at += count
        return self._findings()

    def _oldest(self, answers: Row[tuple[int, int]], at: int) -> tuple[OutgoingRecordSet, int]:
        """-> the oldest record set in flight, with those that the broker has appended right behind it; their number."""
        record_set, count = self._in_flight.popleft(), 1
        error_code, base_offset = answers[at]
        if error_code or base_offset < 0 or self._failure or self._replay.unanswered:
            return record_set, count
        while at + count < len(answers) and answers[at + count] == (0, base_offset + record_set.records):
            both = record_set.joined(self._in_flight[0])
            if both is None:
                break
            self._in_flight.popleft()
            record_set, count = both, count + 1
        return record_set, count

    def _judge(self, record_set: OutgoingRecordSet, error_code: int, base_offset: int, count: int) -> None:
        out_of_order = error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if out_of_order and not self._failure and self._replay.passes_over(record_set):
            self._primed = True  # this error implies that the broker knows the producer id
            return
        certain = error_code in (NEVER_APPENDED if self._replay.unanswered else NOT_APPENDED)
        offset = -1 if error_code else base_offset
        if self._failure is not None:
            if self._failure.certain and not error_code and not self._replay.unanswered:
                self._found.append(GapIgnored(self.partition))
            self._failure = self._failure.and_then(record_set, certain=certain)
        elif error_code and error_code not in ALREADY_THERE:
            self._failure = _Failure(error_code, [*self._replay.take_passed(), record_set], certain)
        elif self._sequence and not self._replay.leaves_room(self._sequence.end, offset):
            record_sets = [*self._replay.take_passed(), record_set]
            code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            self._failure = _Failure(code, record_sets, certain=True, lost_track=True)
        else:
            self._append(record_set, offset, count)
        if self._failure is not None and not self._in_flight:
            failure, self._failure = self._failure, None
            self._decide(failure)
        self._finish()

    def _append(self, record_set: OutgoingRecordSet, base_offset: int, count: int) -> None:
        """`count`: how many record sets it was."""
        self._primed = True
        skipped = self._replay.take_passed()  # at `end` or later: an answer that is too low skips nothing
        if skipped:
            end = self._sequence.end if self._sequence else -1
            fills = end >= 0 and base_offset - end == sum(passed.records for passed in skipped)  # so it is at `end`
            for passed in skipped:
                self._record(passed, self._sequence.end if self._sequence else -1, is_exact=fills)
        self._record(record_set, base_offset)
        self._clear(record_set.batches)
        self._most = min(self._most << count, MAX_IN_DOUBT)

    def _record(self, record_set: OutgoingRecordSet, base_offset: int, *, is_exact: bool = True) -> None:
        self._found += self._appended.add(record_set, base_offset, is_exact=is_exact)
        self._replay.answered(self._sequence)
        self._is_stamped_replay &= self._replay.unanswered > 0
        if self._sequence is not None:
            self._sequence.end = base_offset + record_set.records if base_offset >= 0 else base_offset

    def _clear(self, taken: int) -> None:
        """`taken` of the suspects are appended now."""
        if not self._suspects:
            return
        self._suspects -= taken
        if not self._suspects and self._suspicion in CUTTABLE:
            self._set_bytes //= 2  # the cause was the total size
        elif not self._suspects:
            reason = f"{error_name(self._suspicion)} to a set of batches that were then taken one by one"
            self._found.append(SetRefused(self.partition, reason))

    def _decide(self, failure: _Failure) -> None:
        code, first = failure.error_code, failure.record_sets[0]
        if not failure.certain:
            return self._leave_in_doubt(failure)
        again = self._replay.unanswered > 0 and self._sequence is not None
        if again and code == ErrorCode.INVALID_TIMESTAMP and len(failure.record_sets) == 1:
            return self._refuse_aged(first)
        self._take_back(failure.record_sets)
        if again:  # requests still in flight on a lost connection could follow other record sets with the same stamps
            return self._renew()
        if code in DIVISIBLE and first.batches > 1:
            return self._suspect(first.batches, code)
        if code in CUTTABLE:
            self._suspect(0, code)
            return self._cut_next(0)
        if code in LOST_TRACK and first.stamp and not self._renewed:
            self._renewed = True
            return self._renew()
        if code in OF_STAMPS and first.stamp:
            return self._drop_stamps(code)
        end = self._refuse if code in REFUSED_FOR_GOOD else self._fail
        return end(*self._answer_for(code, first))

    def _refuse_aged(self, record_set: OutgoingRecordSet) -> None:
        """In doubt, and now too old for the broker, appended or not. Later batches continue with the known stamps."""
        self._remaining.put_back(list(record_set.ranges))
        self._refuse(*self._answer_for(ErrorCode.INVALID_TIMESTAMP, record_set))
        self._replay.answered(self._sequence)

    def _suspect(self, batches: int, error_code: int) -> None:
        self._suspects, self._suspicion = batches, error_code

    def _drop_stamps(self, error_code: int) -> None:
        if error_code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return self._go_on_without_id()
        self._sequence = None
        self._found.append(StampsRefused(self.partition))
        return None

    def _refuse(self, error_code: int, message: str) -> None:
        """The first remaining batch, or part of one, is refused. It has used no sequence, so the next one gets it."""
        (batch_range,) = self._remaining.peek(1)
        source = self._appended.source_of(batch_range)
        if source is not None:
            self._found.append(BatchRefused(self.partition, source))
        if self._plan.stamp is not None or self._is_whole(batch_range):
            return self._fail(error_code, message)
        self._remaining.drop(1)
        self._suspects, self._most, self._primed = 0, 1, False
        self._found += self._appended.refuse(batch_range, error_code, message)
        return None

    def _is_whole(self, batch_range: BatchRange) -> bool:
        """It is the mirror's own batch, so the broker's answer is the mirror's."""
        return not self._has_envelopes and batch_range.records == self._plan.outer_records

    def _take_back(self, record_sets: Row[OutgoingRecordSet]) -> None:
        """None of these were appended."""
        self._remaining.put_back([batch_range for record_set in record_sets for batch_range in record_set.ranges])
        self._replay = InDoubtReplay()
        self._replay_stamped()
        if self._sequence is not None and record_sets[0].stamp is not None:
            self._sequence.doubt = None
            self._sequence.give_back(record_sets[0].stamp)

    def _leave_in_doubt(self, failure: _Failure) -> None:
        self._doubt(failure.record_sets)
        code, message = self._answer_for(failure.error_code, failure.record_sets[0])
        # A refused batch is handled when the batches after it are answered.
        self._fail(TRY_AGAIN if code in NEVER_APPENDED else code, message)

    def _doubt(self, record_sets: Row[OutgoingRecordSet]) -> None:
        sent = (*self._replay.take_passed(), *record_sets)
        shapes = [record_set.shape() for record_set in sent if record_set.stamp] + self._replay.rest()
        if self._sequence is not None:
            self._sequence.doubt = InDoubt(plan=self._plan.identity, shapes=tuple(shapes)) if shapes else None

    @property
    def unstamped(self) -> bool:
        """True if something is in flight that no retry can resolve."""
        return any(record_set.stamp is None for record_set in self._in_flight) and self._plan.stamp is None

    def abandon(self) -> None:
        """No more answers will arrive."""
        if self.outcome is None:
            self._doubt([*(self._failure.record_sets if self._failure else ()), *self._in_flight])
            self._in_flight.clear()

    # -- the end -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _answer_for(error_code: int, record_set: OutgoingRecordSet) -> tuple[int, str]:
        """The error for the mirror, which does not know of Shoal's stamps."""
        code = TRY_AGAIN if error_code in OF_STAMPS and record_set.stamp else error_code
        return code, f"the target broker answered {error_name(error_code)} to {record_set}"

    def _fail(self, error_code: int, message: str) -> None:
        self.outcome = Outcome(error_code=error_code, message=message)

    def _finish(self) -> None:
        if not (self.outcome or self._remaining or self._in_flight or self._failure or self.cut_due):
            self.outcome = self._appended.outcome()
