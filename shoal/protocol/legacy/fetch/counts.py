"""Counters of conversions, for reports and statistics."""

from dataclasses import dataclass

__all__ = ["Counts"]


@dataclass(slots=True, kw_only=True)
class Counts:
    messages: int = 0
    """A wrapper of magic 0 or 1 that is sent unchanged counts as one."""
    dropped_headers: int = 0
    left_out: int = 0
    """Batches: control batches, or those of aborted transactions."""
    plain_bytes: int = 0
    """Decompressed bytes read from batches, including skipped ones."""
