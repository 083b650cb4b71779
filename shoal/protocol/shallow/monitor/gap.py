"""Source records that a mirror passes over, as one value per event."""

from enum import StrEnum
from typing import NamedTuple

__all__ = ["Gap", "GapKind"]


class GapKind(StrEnum):
    DELETED = "deleted"  # expired, or removed by DeleteRecords, before they were mirrored
    SKIPPED = "skipped"  # the log has them, and the mirror continues after them: it was reset, or ran without Shoal
    TRUNCATED = "truncated"  # mirrored, or given to the mirror, and no longer in the log (unclean leader election)
    RECREATED = "recreated"  # the topic has another id: these were not mirrored, and the new topic starts again


class Gap(NamedTuple):
    """Offsets from `first` up to, but not including, `end`; none if they are equal (`RECREATED` only)."""

    kind: GapKind
    first: int
    end: int

    @property
    def records(self) -> int:
        """Offsets; fewer records in a compacted or transactional topic."""
        return self.end - self.first
