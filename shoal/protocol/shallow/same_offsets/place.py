"""Where a mirror is in a partition whose copy keeps the offsets of the source.

The mirror's own position does not count: the target does. When a mirror comes with an unknown position (a start, a
restart, a seek), it gets a locator (locator.py). When that comes back, the end of the copy is known, and the source is
asked for what follows, whatever the mirror asks for. So a mirror that has committed more than the target has loses
nothing, and one that has committed less copies nothing again:

    UNKNOWN ── locator given ──> LOCATING ── it came back ──> KNOWN ── a request for another position ──> UNKNOWN

What is asked for first begins before the end of the copy, to be compared with it. Where the copy ends with a marker, an
aborted transaction or a batch with holes, nothing there can be compared: then it begins farther back.

`position` is the mirror's next offset, `offset` that of the source. Both are equal as long as the mirror is not ahead.
A place belongs to one connection of a mirror, so a mirror that connects again is located again.
"""

from dataclasses import dataclass
from enum import Enum

from shoal.protocol.shallow.same_offsets.covers import Since

__all__ = ["LOCATOR_SECONDS", "Place", "PlaceState"]

_BACK = (1, 16, 256, 4096)  # offsets before the end of the copy
LOCATOR_SECONDS = 30.0
"""A locator that has not come back is given again after this time. A mirror may have much to produce before it."""


class PlaceState(Enum):
    UNKNOWN = "unknown"
    LOCATING = "locating"
    KNOWN = "known"


@dataclass(slots=True, eq=False)
class Place:
    """`asked`: the source's offset in the broker's fetch session; -1: another. `version`: see `Places`. `steps_back`:
    of `_BACK`, while something is to be compared; `copy_start`: where the copy begins.
    """

    topic_id: bytes | None = None  # of the source
    position: int = -1
    standing: PlaceState = PlaceState.UNKNOWN
    asked: int = -1
    offset: int = -1
    covered: int = -1
    compare: bool = False
    steps_back: int = 0
    copy_start: int = 0
    token: bytes = b""
    given_at: float = 0.0
    version: int = 0
    in_session: bool = False  # the broker's fetch session has the partition now
    source_start: int = -1  # of the source's log, as the latest answer has it
    source_end: int = -1

    def read_from(self, topic_id: bytes) -> None:
        """The mirror's request names the source by id. One that was created again is compared as at a start: it may
        have other records from `offset` on, and nothing else would tell.
        """
        if self.topic_id is not None and topic_id != self.topic_id:
            self.forget()
            self.out_of_range()
        self.topic_id = topic_id

    def ask(self, position: int) -> int:
        """The mirror asks for this offset -> the source's offset to ask for instead."""
        if position != self.position:
            self.forget()
            self.position = position
        if self.standing is PlaceState.KNOWN:
            self.asked = self.offset
            return self.offset
        self.asked = -1
        if self.source_end < 0:
            return position
        return max(min(position, self.source_end), self.source_start)  # else the mirror would be sent to another one

    def out_of_range(self) -> None:
        """The source has no such offset: where it begins and ends is not known any more. A mirror that is sent to
        another offset must get it, or it would be sent there again and again.
        """
        self.source_start = self.source_end = -1

    def forget(self) -> None:
        """Where the copy ends is not known any more."""
        self.standing, self.token = PlaceState.UNKNOWN, b""

    @property
    def must_ask_again(self) -> bool:
        """The broker's fetch session has another offset than the one that is needed."""
        return self.standing is PlaceState.KNOWN and self.asked != self.offset

    def give_locator(self, token: bytes, now: float) -> None:
        """The mirror gets a locator at its position."""
        self.standing, self.token, self.given_at = PlaceState.LOCATING, token, now
        self.position += 1

    def locate(self, log_end: int, log_start: int) -> None:
        """The locator came back: the copy has the offsets `log_start` to `log_end` (exclusive)."""
        self.standing, self.token = PlaceState.KNOWN, b""
        self.compare = log_end > log_start
        self.steps_back, self.copy_start = 0, log_start
        self.covered = log_end
        self.offset = log_end - 1 if self.compare else log_end
        if log_end <= self.source_start:  # what is between is gone, and what was before
            self.offset, self.compare = self.source_start, False

    def go_back(self) -> bool:
        """Nothing in the answer can be compared -> whether the source must be asked again, for more of before."""
        start, self.steps_back = max(self.copy_start, self.source_start), self.steps_back + 1
        if not self.compare or self.offset <= start or self.steps_back == len(_BACK):
            return False
        self.offset = max(start, self.covered - _BACK[self.steps_back])
        return True

    def since(self, end: int) -> Since:
        """For the answer to the latest request; `end`: where the source ends."""
        return Since(self.covered, self.covered if self.compare else self.offset, end, self.compare)

    def gave(self, position: int, offset: int) -> None:
        """The mirror got envelopes, and continues at `position`, the source at `offset`."""
        self.position = position
        self.offset = max(offset, self.covered if self.compare else self.offset)
        self.covered, self.compare = max(offset, self.covered), False
