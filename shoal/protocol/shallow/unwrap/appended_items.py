"""The appended part of each item of one plan, and the mirror's answer that follows from it.

The mirror sent k outer records and assumes that record i has the offset `base_offset + i`. It writes offset syncs from
these, which move consumer groups, so an answer that is too high skips data. Let u_i be the target offset of the last
record in outer record i. If `base_offset + i <= u_i` for every i, no group skips a record; and u_i - i never decreases.
So the largest safe answer is u_0: the last record of the first envelope, or the first record of a plain item. With one
envelope per outer batch it is exact. If an outer record was left out, the answer has no offset.

Each success is recorded in the ledger at once.
"""

from functools import reduce

from shoal.protocol.shallow.batch_row import BatchSlice
from shoal.protocol.shallow.refused import SourceRange
from shoal.protocol.shallow.unwrap.appended_log import Appended, Ledger, Refusal, recall
from shoal.protocol.shallow.unwrap.findings import EnvelopeAppended, OffsetsAppended, Outcome
from shoal.protocol.shallow.unwrap.outgoing import OutgoingRecordSet
from shoal.protocol.shallow.unwrap.plan import Plan
from shoal.protocol.shallow.unwrap.remaining import BatchRange, Remaining
from shoal.protocol.wire.types import TopicPartition

__all__ = ["AppendedItems"]


class AppendedItems:
    """`repeats`: batches, or parts of one, that were already appended before this plan."""

    def __init__(self, partition: TopicPartition, plan: Plan, ledger: Ledger) -> None:
        self._partition = partition
        self._plan = plan
        self._ledger = ledger
        self._appended = list(recall(ledger, partition, plan.items))
        self._begun_before = [bool(appended.batches or appended.records) for appended in self._appended]
        self.repeats = sum(appended.batches + bool(appended.records) for appended in self._appended)

    def remaining(self) -> Remaining:
        """The batches that are not appended. The first one of an item may be partly appended (`records_in`)."""
        return Remaining(
            BatchRange(index, appended.batches, 0, item.batches[appended.batches :])
            for index, (item, appended) in enumerate(zip(self._plan.items, self._appended, strict=True))
            if appended.batches < len(item.batches)
        )

    def records_in(self, batch_range: BatchRange) -> int:
        """How many records of the range's first batch are appended."""
        appended = self._appended[batch_range.item]
        return appended.records if appended.batches == batch_range.batch else 0

    def add(
        self, record_set: OutgoingRecordSet, base_offset: int, *, is_exact: bool = True
    ) -> list[EnvelopeAppended | OffsetsAppended]:
        """The broker appended this (base_offset -1: it states no offset; not `is_exact`: there, or further on)."""
        found, ranges = list[EnvelopeAppended | OffsetsAppended](), record_set.ranges
        for following, batch_range in enumerate(ranges, 1):
            item, records = batch_range.item, batch_range.records
            before = self._appended[item]
            first = before.first if before.batches or before.records else base_offset
            last = base_offset + records - 1 if base_offset >= 0 else -1
            self._appended[item] = Appended(*self._behind(batch_range), first, last, before.refusal)
            if base_offset >= 0:
                found += self._offsets(batch_range, base_offset) if is_exact else ()
                base_offset += records
            if following == len(ranges) or ranges[following].item != item:
                found += self._record(item)
        return found

    def _offsets(self, batch_range: BatchRange, base_offset: int) -> list[OffsetsAppended]:
        """One for all batches, unless source offsets are missing between them; each batch is dense."""
        item, at, first, _ = batch_range
        key, batches = self._plan.items[item].key, self._plan.items[item].batches
        if key is None:
            return []
        source_first = _base_offset(batches, at) + first
        if key.last_offset - key.first_offset + 1 == key.records:
            return [OffsetsAppended(self._partition, key, source_first, base_offset, batch_range.records)]
        found = list[OffsetsAppended]()
        begun, taken = source_first, 0
        for number, records in enumerate(batch_range.batches.records, at):
            source = source_first if number == at else _base_offset(batches, number)
            if source != begun + taken:
                found.append(OffsetsAppended(self._partition, key, begun, base_offset, taken))
                begun, base_offset, taken = source, base_offset + taken, 0
            taken += records
        return [*found, OffsetsAppended(self._partition, key, begun, base_offset, taken)]

    def refuse(
        self, batch_range: BatchRange, error_code: int, message: str
    ) -> list[EnvelopeAppended | OffsetsAppended]:
        """The broker refuses this one batch, or part of one, permanently."""
        appended = self._appended[batch_range.item]
        refusal = appended.refusal or Refusal(error_code, (), 0)
        joined = refusal.joined(Refusal(error_code, (message,)))
        batches, records = self._behind(batch_range)
        self._appended[batch_range.item] = appended._replace(batches=batches, records=records, refusal=joined)
        return self._record(batch_range.item)

    def source_of(self, batch_range: BatchRange) -> SourceRange | None:
        """The source range of the first batch; None: plain records."""
        item = self._plan.items[batch_range.item]
        return None if item.key is None else SourceRange.of(item.key, item.batches, batch_range.batch)

    def _behind(self, batch_range: BatchRange) -> tuple[int, int]:
        """Batches and records of the range's item that precede the end of this range."""
        item, at, first, batches = batch_range
        if len(batches) == 1:
            records = first + batches.record_count
            if records < self._plan.items[item].batches.records_of(at):
                return at, records
        return at + len(batches), 0

    def _record(self, index: int) -> list[EnvelopeAppended | OffsetsAppended]:
        item, appended = self._plan.items[index], self._appended[index]
        self._ledger.record(self._partition, item.identity, appended)
        if item.key is None or appended.batches < len(item.batches):
            return []
        is_known = appended.refusal is None and not self._begun_before[index]
        offsets = (appended.first, appended.last) if is_known else (-1, -1)
        return [EnvelopeAppended(self._partition, item.key, *offsets)]

    def outcome(self) -> Outcome:
        """Call it when nothing remains."""
        refusals = [appended.refusal for appended in self._appended if appended.refusal is not None]
        if refusals:
            refusal = reduce(Refusal.joined, refusals)
            message = f"{refusal} (the rest of the request is appended)"
            return Outcome(error_code=refusal.error_code, message=message, is_own=True)
        if self._plan.left_out:
            return Outcome(error_code=0)
        first = self._appended[0]
        return Outcome(error_code=0, base_offset=first.last if self._plan.items[0].key else first.first)


def _base_offset(batches: BatchSlice, at: int) -> int:
    """At the source, of a batch of an envelope."""
    base = batches.source_of(at)
    assert isinstance(base, int)
    return base
