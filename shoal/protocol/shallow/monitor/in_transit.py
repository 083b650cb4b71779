"""What a mirror was given of one partition and is not known to be appended: adjacent spans of offsets, in order.

    run in an envelope    appended when its envelope is: exact
    raw records           come back as plain records, without their offsets. A mirror keeps the order of a partition, so
                          they are counted: the n-th plain record that arrives is the n-th that was given

The count may be wrong, and corrects itself at the next envelope, or as soon as nothing is in transit:

- a span's count is the least number of records that the mirror may produce of it (none for control batches and aborted
  transactions), so that nothing remains in transit for ever. What arrives beyond it counts for the next raw span.
- a mirror that drops records (a filter) produces fewer: `settle` ends that after a while.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["MAX_SPANS", "InTransit", "Span"]

MAX_SPANS = 512
"""Spans of a partition, ~150 bytes each; a mirror buffers far fewer. Above it, the last ones are joined."""

_ENVELOPE = -1


class Span(NamedTuple):
    """Offsets up to `end`. `records`: of raw records, how many arrive at the target at least; None: in an envelope."""

    end: int
    records: int | None


class InTransit:
    """`mirrored`: every record below this source offset is appended at the target, as far as is known."""

    __slots__ = ("_left", "_spans", "mirrored")

    def __init__(self, mirrored: int) -> None:
        self.mirrored = mirrored
        self._spans: deque[list[int]] = deque()  # start, end, records (or _ENVELOPE); adjacent
        self._left = 0  # records that have arrived of the first raw span

    def __bool__(self) -> bool:
        return bool(self._spans)

    @property
    def has_envelopes(self) -> bool:
        return any(records == _ENVELOPE for _, _, records in self._spans)

    @property
    def end(self) -> int:
        return self._spans[-1][1] if self._spans else self.mirrored

    def give(self, start: int, spans: Iterable[Span]) -> None:
        """The mirror gets these from `start` on, which is the end of what it got before, or after `rewind`."""
        for end, records in spans:
            if end <= start:
                continue
            count = _ENVELOPE if records is None else records
            if len(self._spans) < MAX_SPANS:
                self._spans.append([start, end, count])
            else:
                last = self._spans[-1]
                last[1] = end
                last[2] = _ENVELOPE if _ENVELOPE in (last[2], count) else last[2] + count
            start = end
        self._advance()

    def rewind(self, offset: int) -> None:
        """The consumer continues at `offset`: what it got from there on, it gets again."""
        while self._spans and self._spans[-1][0] >= offset:
            self._spans.pop()
        if self._spans and self._spans[-1][1] > offset:
            start, end, records = self._spans[-1]
            kept = records if records == _ENVELOPE else records * (offset - start) // (end - start)
            self._spans[-1] = [start, offset, kept]
        self._left = min(self._left, self._spans[0][2]) if self._spans and self._spans[0][2] != _ENVELOPE else 0
        self._advance()

    def appended(self, offset: int) -> None:
        """Every record below `offset` is appended: an envelope ends there."""
        self.mirrored = max(self.mirrored, offset)
        while self._spans and self._spans[0][0] < offset:
            if self._spans[0][1] > offset:
                self._spans[0][0] = offset
                break
            self._drop()
        self._advance()

    def arrived(self, records: int) -> None:
        """Plain records of this partition are at the target listener. Those in an envelope before are, too."""
        for span in self._spans:
            if records <= 0:
                break
            if span[2] == _ENVELOPE:
                continue
            is_first = span is self._spans[0]
            taken = min(records, span[2] - (self._left if is_first else 0))
            records -= taken
            if is_first:
                self._left += taken
            else:
                span[2] -= taken
        self._advance()

    def settle(self, offset: int) -> None:
        """The mirror got everything below `offset` long ago, and sends no more of it."""
        self.appended(offset)

    def clear(self, mirrored: int) -> None:
        self._spans.clear()
        self._left = 0
        self.mirrored = mirrored

    def _advance(self) -> None:
        while self._spans and self._spans[0][2] == self._left and self._spans[0][2] != _ENVELOPE:
            self.mirrored = max(self.mirrored, self._spans[0][1])
            self._drop()
        if self._spans and self._spans[0][2] != _ENVELOPE:
            self.mirrored = max(self.mirrored, min(self._spans[0][0] + self._left, self._spans[0][1] - 1))

    def _drop(self) -> None:
        self._spans.popleft()
        self._left = 0
