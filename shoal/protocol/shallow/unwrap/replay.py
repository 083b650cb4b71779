"""Batches in doubt are sent again one by one, in order, with the same cuts and stamps.

The broker decides which are new:

    it remembers the batch (one of its last five)     known: it answers as at the first time
    the batch is the next one                         appended
    anything else                                     out of order (45): appended earlier, or not at all

The leader may have any number of the batches: those received before the connection was lost or, as a new leader, those
that it had fetched by then, which may be a part of a set. After an orderly restart a broker remembers only the last
batch of a producer (the snapshot of ProducerStateManager has no more). So a batch that is out of order is skipped: if a
later batch is known or is the next one, the skipped batch is appended, too, at an unknown offset; otherwise the broker
has lost track. It has also lost track if the offsets leave no room for the skipped batches: then a late request reached
a broker that did not know the id.

A late copy of a set does no harm: its first batch is then known or out of order, or the set precedes all of this.
"""

from collections import deque

from shoal.protocol.shallow.unwrap.outgoing import OutgoingRecordSet
from shoal.protocol.shallow.unwrap.remaining import BatchRange, Remaining
from shoal.protocol.shallow.unwrap.sequences.own import InDoubt, Sequence, Shape, Stamp

__all__ = ["MAX_REPLAYED_IN_FLIGHT", "InDoubtReplay"]

# Batches in flight, when the broker is known to have the producer id. They are already in doubt, so their number does
# not matter if the connection is lost again; and thousands of tiny ones, five at a time, would take longer than a
# mirror waits on a distant broker.
MAX_REPLAYED_IN_FLIGHT = 64


class InDoubtReplay:
    """Call `prepare` until it returns None; then `take` for each batch until none is `due`.

    `batches`: number of the first remaining ones that may have been sent before, with a mirror's own stamps.
    """

    def __init__(self, doubt: InDoubt | None = None, *, batches: int = 0) -> None:
        self._shapes = deque(doubt.shapes if doubt else ())
        self.due = batches + sum(len(shape.records) for shape in self._shapes)
        self.unanswered = self.due  # those not known to be appended
        self._passed = list[OutgoingRecordSet]()
        self.failed = False  # the batches in doubt do not match the remaining ones

    def prepare(self, remaining: Remaining) -> int | None:
        """-> the number of the remaining batch that was cut before, and must be cut again."""
        batches, singles = enumerate(remaining.single()), deque[Shape]()
        for shape in self._shapes:
            stamp = shape.stamp
            for index, records in enumerate(shape.records):
                number, (batch_range, at) = next(batches, (0, (None, 0)))
                if (
                    batch_range is None
                    or batch_range.batches.records_of(at) < records
                    or (index == 0 and _start(batch_range, at) != shape[:3])
                ):
                    self.failed = True
                    return None
                if batch_range.batches.records_of(at) > records:
                    return number
                singles.append(Shape(*_start(batch_range, at), (records,), stamp))
                stamp = stamp.behind(records)
        self._shapes = singles
        return None

    def take(self) -> Stamp | None:
        """The next batch is sent again; -> its stamp, unless it already has it."""
        self.due -= 1
        return self._shapes.popleft().stamp if self._shapes else None

    def passes_over(self, record_set: OutgoingRecordSet) -> bool:
        """The broker answered out of order; -> whether a later record set may still show that it is appended."""
        passes = self.unanswered > len(self._passed) + 1
        if passes:
            self._passed.append(record_set)
        return passes

    def leaves_room(self, end: int, base_offset: int) -> bool:
        """For skipped batches, between `end` (after the last acknowledged record) and `base_offset` (-1: unknown)."""
        if not self._passed:
            return True
        return base_offset - max(end, 0) >= sum(record_set.records for record_set in self._passed)

    def take_passed(self) -> list[OutgoingRecordSet]:
        """The skipped record sets, in order: they share the fate of the next one."""
        passed, self._passed = self._passed, []
        return passed

    def answered(self, sequence: Sequence | None) -> None:
        """One more record set was appended."""
        if self.unanswered:
            self.unanswered -= 1
            if not self.unanswered and sequence is not None:
                sequence.doubt = None

    def rest(self) -> list[Shape]:
        """Still in doubt, and not yet sent again."""
        return list(self._shapes)


def _start(batch_range: BatchRange, at: int) -> tuple[int, int, int]:
    """Position in the plan of the batch at this index of the range: item, batch, record."""
    return batch_range.item, batch_range.batch + at, batch_range.first
