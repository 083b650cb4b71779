"""One partition of a mirror topic: the batches of its envelopes, with fences, until the mirror can be answered.

The field partitionLeaderEpoch, which no CRC covers, says where the log must end for a batch to be appended (see the
package shoal.agent.mirror of the Java agent). So several sets may be in flight: after a refused one, the broker refuses
all that follow. What the log has already is sent, too: the broker compares it, and leaves it out. Such a set moves no
fence: what is new waits until it is answered.

The first error ends the sending. When everything in flight is answered:

    a set of several batches is too large       its batches one by one
    the log does not end where it should        the rest from the end that the broker says
    the content can never be appended           the partition waits (`CopyStopped`), and the mirror goes on: what was
                                                not appended is fetched again, from where the copy ends
    else                                        the mirror gets the error and retries; then the leader is asked again
"""

import re
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from struct import Struct
from typing import Final

from shoal.protocol.records.batch import encode_batch
from shoal.protocol.shallow.batch_row import OutgoingBatch
from shoal.protocol.shallow.envelope import Cover, EnvelopeKey
from shoal.protocol.shallow.same_offsets.log_ends import LogEnd, LogEnds
from shoal.protocol.shallow.unwrap.findings import (
    CUTTABLE,
    TRY_AGAIN,
    CopyGrown,
    CopyMisplaced,
    CopyStopped,
    Finding,
    Outcome,
    PartitionFailed,
    RecordSetAppended,
)
from shoal.protocol.shallow.unwrap.inner_batches import MirroredBatch
from shoal.protocol.shallow.unwrap.plan import Item, Plan
from shoal.protocol.wire.crc import Buffer
from shoal.protocol.wire.error_codes import ErrorCode, error_name
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import TopicPartition

__all__ = ["NOT_STORED", "FencedPartition", "FencedSet"]

MAX_IN_FLIGHT: Final = 8
MAX_RESTARTS: Final = 8
"""In one request, from ends that the broker has said; then the mirror retries."""
SET_BYTES: Final = 1024 * 1024
_NO_GAP: Final = -2
_START: Final = -(2**31)
_WIDEST_GAP: Final = 2**30
_WIDEST_SET: Final = 2**30
_WIDEST_STEP: Final = 1000 * _WIDEST_GAP  # without a record; no source has it, but anybody could state it
_BASE = Struct(">q")
_EPOCH = Struct(">i")
_JOINED_BELOW = 8 * 1024
_log_end = re.compile(r"expected .*, the log ends at ([0-9]{1,18})$").search  # Refusal.java
_is_before_start = re.compile(r" can't be compared: the log starts at [0-9]+$").search  # MirrorTopics.java

STOPPING = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""The same batch gets the same answer again, until an operator changes something."""

NOT_STORED = Outcome(error_code=0, base_offset=-1)
"""A success without an offset: MirrorMaker 2 makes no offset sync of it, which could send a group where its records
are not."""


class FencedSet:
    """One record set. `end`: where the log ends behind it; `before`: where it must end."""

    __slots__ = ("batches", "before", "end", "flags", "made", "records", "size", "stamp")

    def __init__(self, made: Sequence[MirroredBatch], flags: Sequence[int], before: int, end: int) -> None:
        self.made = made
        self.flags = flags
        self.before = before
        self.end = end
        self.batches = len(made)
        self.records = sum(batch.records for batch in made)
        self.size = sum(batch.size for batch in made)
        self.stamp = None

    def buffers(self) -> Sequence[Buffer]:
        buffers = list[Buffer]()
        for batch, flag in zip(self.made, self.flags, strict=True):
            head = batch.header
            buffers += (_BASE.pack(batch.base) + head[8:12] + _EPOCH.pack(flag) + head[16:], batch.payload)
        return [b"".join(buffers)] if self.size < _JOINED_BELOW * len(buffers) else buffers

    def __str__(self) -> str:
        return f"{self.batches} batches, offsets {self.made[0].base}..{self.made[-1].last}"


class FencedPartition:
    """Used like `PartitionProgress`. `known`: where the log ends now. `position`: the mirror's, of the first record.
    `text`: what the broker said about its latest error for the partition. `begin`: where the source's log begins.
    """

    def __init__(
        self,
        partition: TopicPartition,
        plan: Plan,
        ends: LogEnds,
        known: LogEnd,
        *,
        position: int = 0,
        text: Callable[[TopicPartition], str | None] = lambda _: None,
        begin: int | None = None,
    ) -> None:
        self.partition = partition
        self.outcome: Outcome | None = None
        self.sets = False
        self.cut_due: OutgoingBatch | None = None
        self.unstamped = False
        self._plan = plan
        self._position = position
        self._text = text
        self._begin = begin
        self._ends = ends
        self._known = known
        self._end = known.end  # behind everything that was sent
        self._covered = known.covered
        self._misplaced: EnvelopeKey | None = None
        self._too_far: EnvelopeKey | None = None
        self._restarts = 0
        self._most = 1 << 30  # batches in a set
        self._queue: deque[MirroredBatch] = deque(self._batches())
        self._in_flight: deque[FencedSet] = deque()
        self._failed: list[FencedSet] = []  # from the first error on
        self._error = 0
        self._found: list[Finding] = []
        self._finish()

    @property
    def items(self) -> Sequence[Item]:
        return self._plan.items

    def _batches(self) -> list[MirroredBatch]:
        """Those to send, with fillers up to the source's end. Sets `_covered` and `_misplaced`."""
        batches, end = list[MirroredBatch](), self._end
        for item in self._plan.items:
            cover = item.key.cover if item.key is not None else None
            assert cover is not None
            if cover.start > self._covered:
                self._misplaced = item.key
                break
            is_empty = not end and bool(item.mirrored or cover.fill)
            end = self._first_offset(item, cover) if is_empty else end
            bounds = [end, *(batch.base for batch in item.mirrored), *((cover.end,) if cover.fill else ())]
            if any(after - before > _WIDEST_STEP for before, after in pairwise(bounds)):
                self._too_far = item.key
                break
            for batch in item.mirrored:
                if batch.last < self._known.end and batch.base < self._known.start:
                    continue  # nothing is left to compare it with
                batches += _fillers(end, batch.base if is_empty else batch.base - _WIDEST_GAP)
                batches.append(batch)
                end, is_empty = max(end, batch.last + 1), False
            self._covered = max(self._covered, cover.end)
            if cover.fill and end < cover.end:
                batches += _fillers(end, cover.end)
                end = cover.end
        return batches

    def _first_offset(self, item: Item, cover: Cover) -> int:
        """Where an empty log begins: with its source's, so that a consumer's offset that is valid there is valid here,
        although there may be no record before the first batch (aborted ones, markers, holes).
        """
        first = item.mirrored[0].base if item.mirrored else cover.end - 1
        if item.mirrored and (self._begin is None or first - self._begin > _WIDEST_STEP):
            return first
        return min(self._begin or 0, first)

    # -- sending

    def next_record_set(self, room: int | None = None) -> FencedSet | None:
        """The next one, at most `room` bytes; None: nothing now. Without `room` at least one batch."""
        if self.outcome or self._error or not self._queue or len(self._in_flight) >= MAX_IN_FLIGHT:
            return None
        made, flags, size, before = list[MirroredBatch](), list[int](), 0, self._end
        most = SET_BYTES if room is None else min(room, SET_BYTES)
        limit = self._most if self.sets else 1
        only_known = any(sent.end == sent.before for sent in self._in_flight)
        while self._queue and len(made) < limit:
            batch = self._queue[0]
            if only_known and batch.last >= self._end:
                break
            if made and (size + batch.size > most or not self._may_follow(batch, made)):
                break
            if not made and room is not None and batch.size > room:
                return None
            flags.append(self._flag(batch, made))
            made.append(self._queue.popleft())
            size += batch.size
            self._end = max(self._end, batch.last + 1)
        if not made:
            return None
        sent = FencedSet(made, flags, before, self._end)
        self._in_flight.append(sent)
        return sent

    def _may_follow(self, batch: MirroredBatch, made: Sequence[MirroredBatch]) -> bool:
        """In a set, each fence is the end of the batch before."""
        is_known = batch.base < self._end
        return (is_known or made[-1].last + 1 == self._end) and batch.last - made[0].base < _WIDEST_SET

    def _flag(self, batch: MirroredBatch, made: Sequence[MirroredBatch]) -> int:
        if not made and self._end == self._known.start == 0 and batch.base > 0:
            return _START  # an empty log begins where the source does
        before = made[-1].last + 1 if made else min(self._end, batch.base)
        return _NO_GAP - (batch.base - before)

    # -- answers

    def answered_all(self, answers: Sequence[tuple[int, int]]) -> list[Finding]:
        """`answered` for each of the oldest record sets in flight."""
        return [finding for answer in answers for finding in self.answered(*answer)]

    def answered(self, error_code: int, base_offset: int) -> list[Finding]:
        """The broker's partition response to the oldest record set in flight."""
        del base_offset  # it is that of the set's first batch
        sent = self._in_flight.popleft()
        if error_code:
            self._found.append(PartitionFailed(self.partition, error_code))
            self._error = self._error or error_code
            self._failed.append(sent)
        else:
            self._found.append(RecordSetAppended(self.partition, sent.batches, sent.records, sent.size))
            if self._failed:
                self._failed.append(sent)
            else:
                self._known = LogEnd(self._start_behind(sent), sent.end, max(sent.end, self._known.covered))
                self._ends.learn(self.partition, self._known)
        if self._error and not self._in_flight:
            self._decide()
        self._finish()
        found, self._found = self._found, []
        return found

    def _start_behind(self, sent: FencedSet) -> int:
        return sent.made[0].base if sent.flags[0] == _START else self._known.start

    def _decide(self) -> None:
        code, refused, self._error = self._error, self._failed, 0
        self._failed = []
        if code in CUTTABLE and refused[0].batches > 1:
            self._most = 1
            self._queue.extendleft(reversed([batch for sent in refused for batch in sent.made]))
            self._end = refused[0].before
            return
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._goes_on_at_end(refused[0]):
            return
        self._ends.forget(self.partition)
        if self._was_begun():
            code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if code in STOPPING:
            key = self._key_of(refused[0])
            self._found.append(CopyStopped(self.partition, key, code))
            self.outcome = NOT_STORED
            return
        code = TRY_AGAIN if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER else code
        message = f"the target broker answered {error_name(code)} to {refused[0]}"
        self.outcome = Outcome(error_code=code, message=message)

    def _goes_on_at_end(self, refused: FencedSet) -> bool:
        """The log does not end where it was expected to: another mirror was faster, or its tail was lost."""
        found, known = _log_end(self._text(self.partition) or ""), self._known
        end = int(found[1]) if found is not None else -1
        if end == known.end or not known.start < min(end, known.end) or self._restarts == MAX_RESTARTS:
            return False
        self._restarts += 1
        self._known = LogEnd(known.start, end, max(end, known.covered) if end > known.end else end)
        self._end, self._covered = end, self._known.covered
        self._misplaced = self._too_far = None
        first = refused.made[0].base  # what is from there on was not compared
        self._queue = deque(batch for batch in self._batches() if batch.last >= min(end, first))
        return True

    def _was_begun(self) -> bool:
        """Another mirror has begun the copy since the leader was asked, and knew a later start of the source's log."""
        return not self._known.end and _is_before_start(self._text(self.partition) or "") is not None

    def _key_of(self, sent: FencedSet) -> EnvelopeKey:
        keys = [item.key for item in self._plan.items if item.key is not None]
        return next((key for key in keys if sent.made[0].base <= key.last_offset), keys[-1])

    def abandon(self) -> None:
        """No more answers will arrive."""
        if self.outcome is None:
            self._ends.forget(self.partition)
            self._in_flight.clear()

    # -- cutting: a batch has its offsets, and is never cut

    def cut(self, parts: Sequence[OutgoingBatch] | RemoteProtocolError) -> list[Finding]:
        raise AssertionError("no batch of a mirror topic is cut")

    # -- the end

    def _finish(self) -> None:
        if self.outcome or self._queue or self._in_flight or self._error:
            return
        if self._too_far is not None:
            self._ends.forget(self.partition)
            self._found.append(CopyStopped(self.partition, self._too_far, ErrorCode.OFFSET_OUT_OF_RANGE))
            self.outcome = NOT_STORED
        elif self._misplaced is not None:
            self._ends.forget(self.partition)
            self._found.append(CopyMisplaced(self.partition, self._misplaced))
            self.outcome = NOT_STORED
        else:
            self._ends.learn(self.partition, self._known._replace(covered=self._covered))
            keys = self._plan.envelopes
            if keys:
                self._found.append(CopyGrown(self.partition, keys[-1]))
            self.outcome = self._success()

    def findings(self) -> list[Finding]:
        """Those from before the first answer."""
        found, self._found = self._found, []
        return found

    def _success(self) -> Outcome:
        """The mirror's first record has the offset of the last one that its envelope covers."""
        keys = self._plan.envelopes
        cover = keys[0].cover if keys else None
        return Outcome(error_code=0, base_offset=cover.end - 1 if cover is not None else self._position)


def _fillers(start: int, end: int) -> list[MirroredBatch]:
    """Batches without records from `start` to `end` (exclusive)."""
    fillers = list[MirroredBatch]()
    while start < end:
        stop = min(end, start + _WIDEST_GAP)
        made = encode_batch((), base_timestamp=-1, max_timestamp=-1, last_offset_delta=stop - start - 1)
        fillers.append(MirroredBatch(start, stop - 1, 0, made, memoryview(b"")))
        start = stop
    return fillers
