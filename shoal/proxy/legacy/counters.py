"""Statistics of legacy clients: the counters of one listener, and a frozen snapshot.

Fetch: a record set of the broker is opened (`conversions`) and sent in pieces (`chunks`). A set that was evicted and
fetched again counts again. Source bytes are those of the log (compressed), converted bytes those for clients.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from shoal.proxy.config.quantities import counted, megabytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.proxy.legacy.budget import BudgetStatistics
    from shoal.proxy.statistics import PathStatistics

__all__ = ["LegacyStatistics", "LegacyTally"]


@dataclass(slots=True, kw_only=True)
class LegacyTally:
    """The counters, updated in place."""

    fetches: int = 0  # answered
    conversions: int = 0
    source_bytes: int = 0
    converted_bytes: int = 0
    records: int = 0
    seconds: float = 0.0  # of converting
    chunks: int = 0
    padding_bytes: int = 0  # promised but not needed
    dropped_headers: int = 0  # record headers, which old formats do not have
    asked_on: int = 0  # broker answers without records for the client, after which Shoal requested the next ones
    resumed: int = 0  # sources fetched again within an answer
    fetch_errors: int = 0  # partitions whose records could not be sent
    produces: int = 0  # requests
    up_conversions: int = 0  # message sets converted to batches
    up_source_bytes: int = 0
    up_converted_bytes: int = 0
    up_records: int = 0
    up_seconds: float = 0.0
    up_errors: int = 0  # partitions whose messages could not be read

    def statistics(self, budget: BudgetStatistics) -> LegacyStatistics:
        counts = {field.name: getattr(self, field.name) for field in fields(LegacyTally)}
        return LegacyStatistics(
            **counts, waits=budget.waits, waited_seconds=budget.waited_seconds, evictions=budget.evictions
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyStatistics:
    """A snapshot of a `LegacyTally` and the budget."""

    fetches: int = 0
    conversions: int = 0
    source_bytes: int = 0
    converted_bytes: int = 0
    records: int = 0
    seconds: float = 0.0
    chunks: int = 0
    padding_bytes: int = 0
    dropped_headers: int = 0
    asked_on: int = 0
    resumed: int = 0
    fetch_errors: int = 0
    produces: int = 0
    up_conversions: int = 0
    up_source_bytes: int = 0
    up_converted_bytes: int = 0
    up_records: int = 0
    up_seconds: float = 0.0
    up_errors: int = 0
    waits: int = 0  # for the budget
    waited_seconds: float = 0.0
    evictions: int = 0  # sources evicted from clients that did not read

    def since(self, earlier: PathStatistics | None) -> LegacyStatistics:
        before = earlier if isinstance(earlier, LegacyStatistics) else LegacyStatistics()
        return LegacyStatistics(**{name: getattr(self, name) - getattr(before, name) for name in _NAMES})

    @property
    def happened(self) -> bool:
        return False  # no activity without traffic

    def flow(self, seconds: float) -> Iterator[str]:
        yield from ()

    def details(self) -> Iterator[str]:
        if self.conversions:
            yield (
                f"converted {counted(self.conversions, 'record set')} for old consumers ({self.records:,} records, "
                f"{megabytes(self.source_bytes)} to {megabytes(self.converted_bytes)}, "
                f"{counted(self.chunks, 'chunk')}, {self.seconds:.2f} s)"
            )
        if self.up_conversions:
            yield (
                f"converted {counted(self.up_conversions, 'message set')} of old producers "
                f"({self.up_records:,} records, "
                f"{megabytes(self.up_source_bytes)} to {megabytes(self.up_converted_bytes)}, {self.up_seconds:.2f} s)"
            )
        if self.waits or self.evictions:
            taken = counted(self.evictions, "source")
            yield f"{counted(self.waits, 'wait')} for the budget ({self.waited_seconds:.1f} s), {taken} evicted"
        if self.dropped_headers:
            yield f"{counted(self.dropped_headers, 'record header')} dropped"
        if errors := self.fetch_errors + self.up_errors:
            yield f"{counted(errors, 'partition')} with records that could not be converted"

    def values(self) -> dict[str, object]:
        return {f"legacy_{name}": getattr(self, name) for name in _NAMES}


_NAMES = tuple(field.name for field in fields(LegacyStatistics))
