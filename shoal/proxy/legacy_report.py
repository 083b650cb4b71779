"""What serving legacy clients did between two reports, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.proxy.quantities import counted, megabytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.proxy.legacy_statistics import LegacyStatistics

__all__ = ["legacy_text"]


def legacy_text(more: LegacyStatistics) -> Iterator[str]:
    """Parts of a line; none where nothing happened."""
    if more.conversions:
        yield (
            f"converted {counted(more.conversions, 'record set')} for old consumers ({more.records:,} records, "
            f"{megabytes(more.source_bytes)} to {megabytes(more.converted_bytes)}, {counted(more.chunks, 'chunk')}, "
            f"{more.seconds:.2f} s)"
        )
    if more.up_conversions:
        yield (
            f"converted {counted(more.up_conversions, 'message set')} of old producers ({more.up_records:,} records, "
            f"{megabytes(more.up_source_bytes)} to {megabytes(more.up_converted_bytes)}, {more.up_seconds:.2f} s)"
        )
    if more.waits or more.evictions:
        taken = counted(more.evictions, "source")
        yield f"{counted(more.waits, 'wait')} for the budget ({more.waited_seconds:.1f} s), {taken} taken back"
    if more.dropped_headers:
        yield f"{counted(more.dropped_headers, 'record header')} dropped"
    if errors := more.fetch_errors + more.up_errors:
        yield f"{counted(errors, 'partition')} with records that could not be converted"
