"""What is in doubt is sent again batch by batch, in order, cut as it was, each with the stamp it had. The broker decides what of it is new.

    it remembers the batch (one of its last five)     known: it answers as it did the first time
    it is the next one                                appended
    anything else                                     out of order (45): appended long ago, or not at all

The leader may hold any number of the batches: what it was sent before the connection was lost, or, as a new leader, what it had
fetched of it by then, down to a part of a set. A broker that was stopped in an orderly way remembers the last batch of a producer
only (the snapshot in ProducerStateManager has no more). So what is out of order is passed over: where a batch behind it is known or
follows, it is appended, too, and its offset is not known; where none is, the broker has lost track. It has also where the offsets
leave no room for what was passed over: then a late request came to a broker that knew nothing of the id.

A late copy of a set does no harm: its first batch is known or out of order by then, or it comes before any of this.
"""

from collections import deque

from shoal.protocol.shallow.unwrap.ahead import BatchRange, Remaining
from shoal.protocol.shallow.unwrap.parcel import OutgoingRecordSet
from shoal.protocol.shallow.unwrap.sequence import InDoubt, Sequence, Shape, Stamp

__all__ = ["MAX_REPLAYED_IN_FLIGHT", "InDoubtReplay"]

# Batches, once the broker is seen to know the producer id. They are in doubt already, so it does not matter how many are in doubt when
# the connection is lost again; and thousands of tiny ones, five at a time, would outlast a mirror's patience on a distant broker.
MAX_REPLAYED_IN_FLIGHT = 64


class InDoubtReplay:
    """`prepare` until it returns None; then `take` for each batch until none is `due`.

    `batches`: the first ones ahead may have been sent before, with the stamps that they bear (a mirror's own).
    """

    def __init__(self, doubt: InDoubt | None = None, *, batches: int = 0) -> None:
        self._shapes = deque(doubt.shapes if doubt else ())
        self.due = batches + sum(len(shape.records) for shape in self._shapes)
        self.unanswered = self.due  # not known to be appended, of all these
        self._passed = list[OutgoingRecordSet]()
        self.failed = False  # the doubt is about something else than what is ahead

    def prepare(self, ahead: Remaining) -> int | None:
        """-> the number of the batch ahead that was cut before, and has to be cut again."""
        batches, singles = enumerate(ahead.single()), deque[Shape]()
        for shape in self._shapes:
            stamp = shape.stamp
            for number, records in enumerate(shape.records):
                place, (piece, at) = next(batches, (0, (None, 0)))
                if (
                    piece is None
                    or piece.row.records_of(at) < records
                    or (number == 0 and _begin(piece, at) != shape[:3])
                ):
                    self.failed = True
                    return None
                if piece.row.records_of(at) > records:
                    return place
                singles.append(Shape(*_begin(piece, at), (records,), stamp))
                stamp = stamp.behind(records)
        self._shapes = singles
        return None

    def take(self) -> Stamp | None:
        """The next batch is sent again; -> its stamp, where it does not bear it."""
        self.due -= 1
        return self._shapes.popleft().stamp if self._shapes else None

    def passes_over(self, parcel: OutgoingRecordSet) -> bool:
        """This parcel is out of order for the broker; -> whether one behind it may still tell that it is appended."""
        passes = self.unanswered > len(self._passed) + 1
        if passes:
            self._passed.append(parcel)
        return passes

    def leaves_room(self, end: int, base_offset: int) -> bool:
        """Between `end`, behind what was acknowledged last, and `base_offset`, for what was passed over (-1: not known)."""
        passed = sum(parcel.records for parcel in self._passed)
        return not passed or base_offset - max(end, 0) >= passed

    def take_passed(self) -> list[OutgoingRecordSet]:
        """What was passed over, in order: it shares the fate of the next one."""
        passed, self._passed = self._passed, []
        return passed

    def answered(self, sequence: Sequence | None) -> None:
        """One parcel more was appended."""
        if self.unanswered:
            self.unanswered -= 1
            if not self.unanswered and sequence is not None:
                sequence.doubt = None

    def rest(self) -> list[Shape]:
        """Still in doubt, and not even sent again."""
        return list(self._shapes)


def _begin(piece: BatchRange, at: int) -> tuple[int, int, int]:
    """Where in the plan the batch of this place begins: item, batch, records."""
    return piece.item, piece.batch + at, piece.first
