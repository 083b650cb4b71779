"""What happens to one committed offset: it is copied as it is, but not beyond the target's log, and not backwards.

A consumer that starts beyond the end of a log is reset by its `auto.offset.reset`; with `latest` it would miss records.
An offset below the start of the log is copied as it is: the consumer finds at the target what it would at a source that
has deleted these records.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

__all__ = ["Decision", "Verdict", "decide"]


class Verdict(Enum):
    COPY = auto()
    IN_PLACE = auto()  # the target has this offset already
    AHEAD = auto()  # the target has a higher one


class Decision(NamedTuple):
    """`offset`: what the target's group should have. `target`: what it has; None: nothing."""

    verdict: Verdict
    offset: int
    source: int
    target: int | None

    @property
    def is_short(self) -> bool:
        """The target does not have all records before the source's offset yet."""
        return self.offset < self.source


def decide(source: int, target: int | None, log_end: int, *, allow_backwards: bool) -> Decision:
    offset = min(source, log_end)
    if target == offset:
        verdict = Verdict.IN_PLACE
    elif target is not None and target > offset and not allow_backwards:
        verdict = Verdict.AHEAD
    else:
        verdict = Verdict.COPY
    return Decision(verdict, offset, source, target)
