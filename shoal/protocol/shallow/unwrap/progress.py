"""Produce side: one partition's plan, sent parcel by parcel, and its answers folded into one.

The mirror sent k outer records and takes `base_offset + i` for the offset of record i. It writes offset syncs from that, and
consumer groups are moved by them, so an answer that is too high skips data. Let u_i be the target offset of the last record
that outer record i stands for. `base_offset + i <= u_i` for every i is what keeps any group from skipping a record, and
u_i - i never decreases, so the largest safe answer is u_0: the last record of the first envelope, or the first record of a
plain row. With one envelope per outer batch it is exact.

Each success is remembered at once. The first error stops the sending; when all that is in flight is answered, it is decided:

    the first in doubt is too old by now, there or not          go on behind it
    nothing of it was appended, and it was in doubt before      all of it again, in a new epoch
    ... and the set can be divided                              go on with the first half of it
    ... and one batch is too large                              it is cut, deep, and its pieces go on
    ... and one batch is refused for good                       go on behind it
    ... and the broker lost track of the sequence               a new epoch, once
    else                                                        the mirror is told, and what may be appended is in doubt

So a bad batch is found by bisection, and everything else is delivered, as it is where each batch has a request of its own: a
producer sends the next one whatever became of this one. The answer is the error then, once all is done, and so is that to a retry.
A plan with a mirror's own stamps ends at the bad batch: behind a gap in the sequence nothing would be taken.
With stamps (`sequence.py`) up to five parcels are in flight. The first parcel goes alone: a broker that knows nothing of a
producer id takes any sequence from it, also one behind a gap. Without stamps only one is in flight, and so it is with a mirror's own:
what of those may have been sent before is then the first set ahead, whatever became of the process.
"""

from collections import deque
from collections.abc import Sequence as Row
from dataclasses import dataclass
from functools import reduce

from shoal.protocol.shallow.batch_row import OutgoingBatch
from shoal.protocol.shallow.refused import SourceRange
from shoal.protocol.shallow.unwrap.ahead import BatchRange, Remaining
from shoal.protocol.shallow.unwrap.answers import (
    ALREADY_THERE,
    CUTTABLE,
    DIVISIBLE,
    LOST_TRACK,
    NEVER_APPENDED,
    NOT_APPENDED,
    OF_STAMPS,
    REFUSED_FOR_GOOD,
    TRY_AGAIN,
    Outcome,
)
from shoal.protocol.shallow.unwrap.delivery import Appended, Ledger, Refusal, Target, recall
from shoal.protocol.shallow.unwrap.parcel import OutgoingRecordSet
from shoal.protocol.shallow.unwrap.plan import Plan
from shoal.protocol.shallow.unwrap.replay import MAX_REPLAYED_IN_FLIGHT, InDoubtReplay
from shoal.protocol.shallow.unwrap.sequence import MAX_IN_FLIGHT, InDoubt, Sequence
from shoal.protocol.wire.error_codes import ErrorCode, error_name
from shoal.protocol.wire.errors import RemoteProtocolError

__all__ = ["MAX_IN_DOUBT", "SET_BYTES", "PartitionProgress"]

# A set must fit in a segment (segment.bytes, since 4.0 at least this) or it is refused as RECORD_LIST_TOO_LARGE.
SET_BYTES = 1024 * 1024
# Batches of a partition that are in doubt at most: each is sent again alone, which takes a broker a second or two, and 64 round trips.
MAX_IN_DOUBT = 4096


@dataclass(frozen=True, slots=True)
class _Failure:
    """The first error, the parcels from there on, and whether it is sure that none of them was appended; or that the broker has lost
    track, and all of them have to come again, whatever it says of those behind the first."""

    error_code: int
    parcels: list[OutgoingRecordSet]
    certain: bool
    lost_track: bool = False

    def and_then(self, parcel: OutgoingRecordSet, *, certain: bool) -> "_Failure":
        certain = self.lost_track or (self.certain and certain)
        return _Failure(self.error_code, [*self.parcels, parcel], certain, self.lost_track)


class PartitionProgress:
    """`cut_due`/`cut` and `next_parcel`/`answered`, until `outcome` is there; `abandon` where the answers will never come.

    `sequence`: the partition's stamps; None = one parcel in flight. `sets` (it may be changed at any time): the broker is proven
    to take several batches in one record set. `again`: the batches bear a mirror's own stamps, and may have been sent before.
    """

    def __init__(
        self,
        target: Target,
        plan: Plan,
        deliveries: Ledger,
        *,
        sequence: Sequence | None = None,
        sets: bool = False,
        again: bool = False,
    ) -> None:
        self.target = target
        self.outcome: Outcome | None = None
        self.sets = sets
        self.cut_due: OutgoingBatch | None = None
        self._cut_at = 0  # its place among what is ahead
        self.refused_set: str | None = None  # a set was refused whose batches were then taken
        self.refused = list[SourceRange]()  # what the broker does not take, whatever is done about it
        self.ids_refused = False  # the broker does not let this client use a producer id
        self.id_is_stale = False  # the partition needs another producer id
        self.gap_ignored = False  # the broker appended what stood behind a gap: it keeps no order by sequences
        self._plan = plan
        self._deliveries = deliveries
        self._sequence = sequence
        self._delivered = list(recall(deliveries, target, plan.items))
        self._ahead = Remaining(
            BatchRange(at, done.batches, 0, item.batches[done.batches :])
            for at, (item, done) in enumerate(zip(plan.items, self._delivered, strict=True))
            if done.batches < len(item.batches)
        )
        self._in_flight: deque[OutgoingRecordSet] = deque()
        self._failure: _Failure | None = None
        self._primed = False
        self._renewed = False
        self._suspects = 0  # so many pieces ahead were refused together
        self._suspicion = 0  # with this error
        self._set_bytes = SET_BYTES
        self._most = MAX_IN_DOUBT  # of batches in a set: it begins small behind a refused one, for the next may be, too
        self._replay = InDoubtReplay(self._usable_doubt())
        self._prepare()
        self._is_stamped_replay = again  # until the first answer that leaves nothing of it open
        self._replay_stamped()

    # -- before anything is sent -------------------------------------------------------------------------------------

    def _usable_doubt(self) -> InDoubt | None:
        """What an earlier request for the same data left in doubt; what it left for other data nobody will ask for again."""
        sequence = self._sequence
        if sequence is None or sequence.doubt is None:
            return None
        if sequence.doubt.plan != self._plan.identity:
            self._renew()
            return None
        return sequence.doubt

    def _replay_stamped(self) -> None:
        """A set's worth of what is ahead may have been sent before; counted anew when some of it was cut or taken back."""
        if self._is_stamped_replay and self._ahead:
            self._replay = InDoubtReplay(batches=self._ahead.fitting(SET_BYTES, MAX_IN_DOUBT))

    def _renew(self) -> None:
        """Go on in a new epoch, or without stamps where there is none."""
        if self._sequence is not None and not self._sequence.raise_epoch():
            self._without_stamps(stale=True)
        self._primed = False

    def _without_stamps(self, *, stale: bool) -> None:
        self._sequence = None
        self.id_is_stale = self.id_is_stale or stale

    def _prepare(self) -> None:
        """Go over what is appended, in records, and cut what was cut before; then `cut_due` is None."""
        if self.outcome is not None:
            return
        while self._ahead and self._done_in(self._ahead.first) > self._ahead.first.first:
            piece = self._ahead.first
            if self._done_in(piece) < piece.first + piece.row.records_of(0):
                return self._cut_next(0)
            self._ahead.drop(1)
        cut_before = self._replay.prepare(self._ahead)
        if cut_before is not None:
            return self._cut_next(cut_before)
        if self._replay.failed:
            self._replay = InDoubtReplay()
            self._renew()
        return self._finish()

    def _done_in(self, piece: BatchRange) -> int:
        done = self._delivered[piece.item]
        return done.records if done.batches == piece.batch else 0

    # -- cutting -----------------------------------------------------------------------------------------------------

    def _cut_next(self, at: int) -> None:
        self.cut_due, self._cut_at = self._ahead.batch(at), at

    def cut(self, pieces: Row[OutgoingBatch] | RemoteProtocolError) -> None:
        """What `halves` made of `cut_due`. It may be called in a thread; nothing may be asked of this partition meanwhile."""
        batch, self.cut_due = self.cut_due, None
        assert batch is not None
        if isinstance(pieces, RemoteProtocolError):
            self._refuse_for_size(f"cannot be cut in pieces that fit ({pieces}): {batch}")
        elif len(pieces) < 2:
            self._refuse_for_size(f"a single record is too large: {batch}")
        else:
            self._ahead.replace(self._cut_at, pieces)
            self._replay_stamped()
        return self._prepare()

    def _refuse_for_size(self, what: str) -> None:
        # A Java producer splits a batch of several records that is too large. The plain ones among them would have another
        # outer batch then, and so be appended twice; nothing would be gained, since a single record is what is too large.
        code = ErrorCode.MESSAGE_TOO_LARGE if self._plan.outer_records == 1 else ErrorCode.RECORD_LIST_TOO_LARGE
        limit = "segment.bytes" if self._suspicion == ErrorCode.RECORD_LIST_TOO_LARGE else "max.message.bytes"
        why = f"the target broker answered {error_name(self._suspicion)}, so the batch is over {limit} of the target topic"
        if self._cut_at:  # it was cut before, so it can be cut now
            return self._fail(TRY_AGAIN, f"{why}, and {what}")
        return self._refuse(code, f"{why}, and {what}")

    # -- sending -----------------------------------------------------------------------------------------------------

    def next_parcel(self, room: int | None = None) -> OutgoingRecordSet | None:
        """The next record set to send, of at most `room` bytes; None: nothing (now). Without `room` it is one piece at least."""
        if not self._may_send():
            return None
        count = 1 if self._replay.due else self._gather(self._set_bytes if room is None else room)
        parcel = OutgoingRecordSet(self._ahead.peek(count), None)
        if room is not None and parcel.size > room:
            return None
        self._ahead.drop(count)
        if self._replay.due:
            parcel = parcel._replace(stamp=self._replay.take())
        elif self._sequence is not None:
            parcel = parcel._replace(stamp=self._sequence.take(parcel.records))
        self._in_flight.append(parcel)
        return parcel

    def _may_send(self) -> bool:
        if self.outcome or self._failure or self.cut_due or not self._ahead:
            return False
        in_flight = len(self._in_flight)
        if not in_flight:
            return True
        if self._replay.unanswered:  # nothing new before all of that is decided
            return self._primed and self._replay.due > 0 and in_flight < MAX_REPLAYED_IN_FLIGHT
        return self._sequence is not None and self._primed and not self._suspects and in_flight < MAX_IN_FLIGHT

    def _gather(self, room: int) -> int:
        """As many batches as may go together."""
        if not self.sets:
            return 1
        in_doubt = sum(parcel.batches for parcel in self._in_flight)
        most = (self._suspects + 1) // 2 if self._suspects else min(self._most, MAX_IN_DOUBT - in_doubt)
        return self._ahead.fitting(min(room, self._set_bytes), most)

    # -- answers -----------------------------------------------------------------------------------------------------

    def answered(self, error_code: int, base_offset: int) -> OutgoingRecordSet:
        """The broker's partition response to the oldest parcel in flight, which is returned (base_offset -1: it states none)."""
        parcel = self._in_flight.popleft()
        if (
            error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            and not self._failure
            and self._replay.passes_over(parcel)
        ):
            self._primed = True  # to call it that, the broker must know the producer id
            return parcel
        certain = error_code in (NEVER_APPENDED if self._replay.unanswered else NOT_APPENDED)
        if self._failure is not None:
            so_far = self._failure
            self.gap_ignored |= so_far.certain and not error_code and not self._replay.unanswered
            self._failure = so_far.and_then(parcel, certain=certain)
        elif error_code and error_code not in ALREADY_THERE:
            self._failure = _Failure(error_code, [*self._replay.take_passed(), parcel], certain)
        elif self._sequence and not self._replay.leaves_room(self._sequence.end, -1 if error_code else base_offset):
            parcels = [*self._replay.take_passed(), parcel]
            self._failure = _Failure(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, parcels, certain=True, lost_track=True)
        else:
            self._appended(parcel, -1 if error_code else base_offset)
        if self._failure is not None and not self._in_flight:
            failure, self._failure = self._failure, None
            self._decide(failure)
        self._finish()
        return parcel

    def _appended(self, parcel: OutgoingRecordSet, base_offset: int) -> None:
        self._primed = True
        for passed in self._replay.take_passed():  # there, or farther on: an answer too low skips nothing
            self._remember(passed, self._sequence.end if self._sequence else -1)
        self._remember(parcel, base_offset)
        self._clear(parcel.batches)
        self._most = min(2 * self._most, MAX_IN_DOUBT)

    def _done_with(self, piece: BatchRange) -> Appended:
        """What is done of its item with this piece, which is the next one of it; the offsets are as they were."""
        last = piece.batch + len(piece.row) - 1
        records = piece.first + piece.records
        if len(piece.row) == 1 and records < self._plan.items[piece.item].batches.records_of(last):
            return self._delivered[piece.item]._replace(batches=piece.batch, records=records)
        return self._delivered[piece.item]._replace(batches=last + 1, records=0)

    def _remember(self, parcel: OutgoingRecordSet, base_offset: int) -> None:
        for index, piece in enumerate(parcel.pieces, 1):
            item, records = piece.item, piece.records
            before = self._delivered[item]
            started = before.batches or before.records
            self._delivered[item] = self._done_with(piece)._replace(
                first=before.first if started else base_offset,
                last=base_offset + records - 1 if base_offset >= 0 else -1,
            )
            base_offset += records if base_offset >= 0 else 0
            if index == len(parcel.pieces) or parcel.pieces[index].item != item:
                self._deliveries.record(self.target, self._plan.items[item].identity, self._delivered[item])
        self._replay.answered(self._sequence)
        self._is_stamped_replay &= self._replay.unanswered > 0
        if self._sequence is not None:
            self._sequence.end = base_offset

    def _clear(self, taken: int) -> None:
        """So many of the suspects were taken after all."""
        if not self._suspects:
            return
        self._suspects -= taken
        if not self._suspects and self._suspicion in CUTTABLE:
            self._set_bytes //= 2  # it was the size of the whole
        elif not self._suspects:
            self.refused_set = f"{error_name(self._suspicion)} to a set of batches that were then taken one by one"

    def _decide(self, failure: _Failure) -> None:
        code, first = failure.error_code, failure.parcels[0]
        if not failure.certain:
            return self._leave_in_doubt(failure)
        again = self._replay.unanswered > 0 and self._sequence is not None
        if again and code == ErrorCode.INVALID_TIMESTAMP and len(failure.parcels) == 1:
            return self._refuse_aged(first)
        self._take_back(failure.parcels)
        if again:  # what is still under way on a lost connection could fit behind other parcels with the same stamps
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
            self.ids_refused = code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return self._without_stamps(stale=not self.ids_refused)
        end = self._refuse if code in REFUSED_FOR_GOOD else self._fail
        return end(*self._told(code, first))

    def _refuse_aged(self, parcel: OutgoingRecordSet) -> None:
        """In doubt, and too old by now, whether it is there or not. What is behind it goes on with the stamps by which the broker knows it."""
        self._ahead.put_back(list(parcel.pieces))
        self._refuse(*self._told(ErrorCode.INVALID_TIMESTAMP, parcel))
        self._replay.answered(self._sequence)

    def _suspect(self, pieces: int, error_code: int) -> None:
        self._suspects, self._suspicion = pieces, error_code

    def _refuse(self, error_code: int, message: str) -> None:
        """The first batch ahead, or part of one. It has taken no sequence, so what is behind it follows what was before it."""
        (piece,) = self._ahead.peek(1)
        item = self._plan.items[piece.item]
        if item.key is not None:
            self.refused.append(SourceRange.of(item.key, item.batches, piece.batch))
        if self._plan.stamp is not None:
            return self._fail(error_code, message)
        self._ahead.drop(1)
        self._suspects, self._most, self._primed = 0, 1, False
        done = self._done_with(piece)
        refusal = done.refusal or Refusal(error_code, (), 0)
        self._delivered[piece.item] = done._replace(refusal=refusal.joined(Refusal(error_code, (message,))))
        self._deliveries.record(self.target, item.identity, self._delivered[piece.item])
        return None

    def _take_back(self, parcels: Row[OutgoingRecordSet]) -> None:
        """Nothing of these was appended."""
        self._ahead.put_back([piece for parcel in parcels for piece in parcel.pieces])
        self._replay = InDoubtReplay()
        self._replay_stamped()
        if self._sequence is not None and parcels[0].stamp is not None:
            self._sequence.doubt = None
            self._sequence.give_back(parcels[0].stamp)

    def _leave_in_doubt(self, failure: _Failure) -> None:
        self._doubt(failure.parcels)
        code, message = self._told(failure.error_code, failure.parcels[0])
        # A batch that is refused is dealt with when it is known what became of those behind it.
        self._fail(TRY_AGAIN if code in NEVER_APPENDED else code, message)

    def _doubt(self, parcels: Row[OutgoingRecordSet]) -> None:
        sent = (*self._replay.take_passed(), *parcels)
        shapes = [parcel.shape() for parcel in sent if parcel.stamp] + self._replay.rest()
        if self._sequence is not None:
            self._sequence.doubt = InDoubt(plan=self._plan.identity, shapes=tuple(shapes)) if shapes else None

    @property
    def unstamped(self) -> bool:
        """Something is in flight that no retry can resolve."""
        return any(parcel.stamp is None for parcel in self._in_flight) and self._plan.stamp is None

    def abandon(self) -> None:
        """No more answers will come."""
        if self.outcome is None:
            self._doubt([*(self._failure.parcels if self._failure else ()), *self._in_flight])
            self._in_flight.clear()

    # -- the end -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _told(error_code: int, parcel: OutgoingRecordSet) -> tuple[int, str]:
        """What the mirror is told: stamps are Shoal's own business."""
        code = TRY_AGAIN if error_code in OF_STAMPS and parcel.stamp else error_code
        return code, f"the target broker answered {error_name(error_code)} to {parcel}"

    def _fail(self, error_code: int, message: str) -> None:
        self.outcome = Outcome(error_code=error_code, message=message)

    def _finish(self) -> None:
        if not (self.outcome or self._ahead or self._in_flight or self._failure or self.cut_due):
            refusals = [done.refusal for done in self._delivered if done.refusal is not None]
            if refusals:
                refusal = reduce(Refusal.joined, refusals)
                self.outcome = Outcome(
                    error_code=refusal.error_code,
                    message=f"{refusal} (the rest of the request is appended)",
                    is_own=True,
                )
                return
            first = self._delivered[0]
            base_offset = first.last if self._plan.items[0].key else first.first
            self.outcome = Outcome(error_code=0, base_offset=base_offset)
