"""What is in doubt is sent again batch by batch, in order, cut as it was, each with the stamp it had.

The broker decides what of it is new:

    it remembers the batch (one of its last five)     known: it answers as it did the first time
    the batch is the next one                         appended
    anything else                                     out of order (45): appended long ago, or not at all

The leader may hold any number of the batches: what it received before the connection was lost, or, as a new leader,
what it had fetched by then, down to a part of a set. A broker that was stopped in an orderly way remembers only the
last batch of a producer (the snapshot in ProducerStateManager has no more). So a batch that is out of order is passed
over: where a batch behind it is known or follows, it is appended, too, at an unknown offset; where none is, the broker
has lost track. It has also lost track where the offsets leave no room for what was passed over: then a late request
reached a broker that knew nothing of the id.

A late copy of a set does no harm: its first batch is known or out of order by then, or it precedes all of this.
"""

from collections import deque

from shoal.protocol.shallow.unwrap.outgoing import OutgoingRecordSet
from shoal.protocol.shallow.unwrap.remaining import BatchRange, Remaining
from shoal.protocol.shallow.unwrap.sequence import InDoubt, Sequence, Shape, Stamp

__all__ = ["MAX_REPLAYED_IN_FLIGHT", "InDoubtReplay"]

# Batches, once the broker is seen to know the producer id. They are in doubt already, so it does not matter how many
# are in doubt when the connection is lost again; and thousands of tiny ones, five at a time, would outlast a mirror's
# patience on a distant broker.
MAX_REPLAYED_IN_FLIGHT = 64


class InDoubtReplay:
    """`prepare` until it returns None; then `take` for each batch until none is `due`.

    `batches`: so many of the first remaining ones may have been sent before, with the stamps that they bear (a mirror's
    own).
    """

    def __init__(self, doubt: InDoubt | None = None, *, batches: int = 0) -> None:
        self._shapes = deque(doubt.shapes if doubt else ())
        self.due = batches + sum(len(shape.records) for shape in self._shapes)
        self.unanswered = self.due  # of all these, not known to be appended
        self._passed = list[OutgoingRecordSet]()
        self.failed = False  # what is in doubt is not what remains

    def prepare(self, remaining: Remaining) -> int | None:
        """-> the number of the remaining batch that was cut before, and has to be cut again."""
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
        """The next batch is sent again; -> its stamp, where it does not bear it."""
        self.due -= 1
        return self._shapes.popleft().stamp if self._shapes else None

    def passes_over(self, record_set: OutgoingRecordSet) -> bool:
        """The broker says out of order; -> whether a record set behind it may still show that it is appended."""
        passes = self.unanswered > len(self._passed) + 1
        if passes:
            self._passed.append(record_set)
        return passes

    def leaves_room(self, end: int, base_offset: int) -> bool:
        """For what was passed over, between `end`, behind the last acknowledged record, and `base_offset` (-1:
        unknown).
        """
        passed = sum(record_set.records for record_set in self._passed)
        return not passed or base_offset - max(end, 0) >= passed

    def take_passed(self) -> list[OutgoingRecordSet]:
        """What was passed over, in order: it shares the fate of the next one."""
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
    """Where in the plan the batch at this index of the range begins: item, batch, record."""
    return batch_range.item, batch_range.batch + at, batch_range.first
