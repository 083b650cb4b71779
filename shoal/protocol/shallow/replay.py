"""What is in doubt is sent again as it was: the same batches cut in the same way, together, and with the same stamps.

A broker that was stopped in an orderly way remembers the last batch of a producer only (the snapshot in ProducerStateManager
has no more). If all five were appended, it calls the first four out of order. So such a parcel is passed over: where one behind
it is known or follows, it is appended, too, and its offset is not known; where none is, the broker has lost track. It has also
where the offsets leave no room for what was passed over: then a late request came to a broker that knew nothing of the id.
"""

from collections import deque

from shoal.protocol.shallow.ahead import Ahead, Piece
from shoal.protocol.shallow.parcel import Parcel
from shoal.protocol.shallow.sequence import Doubt, Sequence, Shape, Stamp

__all__ = ["MAX_POSTPONED", "Replay"]

# How often a mirror is told to come again while a set in doubt may not be sent: its retries come 0.1 to 1 s after each
# other (retry.backoff.ms, KIP-580), and a broker is proven again within seconds.
MAX_POSTPONED = 20


class Replay:
    """`prepare` until it returns None; then `batches` and `stamp` for each parcel until they say nothing."""

    def __init__(self, doubt: Doubt | None) -> None:
        self._shapes = deque(doubt.shapes if doubt else ())
        self.unanswered = len(self._shapes)  # of all these, also of what was sent again
        self._passed = list[Parcel]()
        self.failed = False  # the doubt is about something else than what is ahead

    def prepare(self, ahead: Ahead) -> int | None:
        """-> the number of the batch ahead that was cut before, and has to be cut again."""
        batches = enumerate(ahead.single())
        for shape in self._shapes:
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
        return None

    @property
    def next_is_set(self) -> bool:
        return bool(self._shapes) and len(self._shapes[0].records) > 1

    @property
    def batches(self) -> int:
        """Of the next parcel, so many; 0 when there is no doubt left."""
        return len(self._shapes[0].records) if self._shapes else 0

    def stamp(self) -> Stamp | None:
        return self._shapes.popleft().stamp if self._shapes else None

    def passes_over(self, parcel: Parcel) -> bool:
        """This parcel is out of order for the broker; -> whether one behind it may still tell that it is appended."""
        if self._shapes:
            self._passed.append(parcel)
        return bool(self._shapes)

    def leaves_room(self, end: int, base_offset: int) -> bool:
        """Between `end`, behind what was acknowledged last, and `base_offset`, for what was passed over (-1: not known)."""
        passed = sum(parcel.records for parcel in self._passed)
        return not passed or (end >= 0 and base_offset - end >= passed)

    def take_passed(self) -> list[Parcel]:
        """What was passed over, in order: it shares the fate of the next one."""
        passed, self._passed = self._passed, []
        return passed

    def answered(self, sequence: Sequence | None) -> None:
        """One parcel more was appended."""
        if self.unanswered:
            self.unanswered -= 1
            if not self.unanswered and sequence is not None:
                sequence.settle()

    def rest(self) -> list[Shape]:
        """Still in doubt, and not even sent again."""
        return list(self._shapes)


def _begin(piece: Piece, at: int) -> tuple[int, int, int]:
    """Where in the plan the batch of this place begins: item, batch, records."""
    return piece.item, piece.batch + at, piece.first
