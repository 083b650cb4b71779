"""What conversions did, for reports and statistics."""

from dataclasses import dataclass

__all__ = ["Counts"]


@dataclass(slots=True, kw_only=True)
class Counts:
    messages: int = 0
    """A wrapper of the time before magic 2, which goes as it is, counts as one."""
    dropped_headers: int = 0
    left_out: int = 0
    """Batches: control, or of aborted transactions."""
    plain_bytes: int = 0
    """Read out of batches, decompressed, skipped ones too."""
