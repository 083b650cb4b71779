"""What serving legacy clients did so far: the counters of one listener, and a frozen snapshot for whoever prints them.

Fetch: a record set of the broker is opened (`conversions`), and given in pieces (`chunks`). One that was taken back and fetched again
counts again. The source's bytes are those of the log (compressed), the converted ones those that clients get.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.proxy.legacy_budget import BudgetStatistics

__all__ = ["LegacyStatistics", "LegacyTally"]


@dataclass(slots=True, kw_only=True)
class LegacyTally:
    """The counters, written where things happen."""

    fetches: int = 0  # answered
    conversions: int = 0
    source_bytes: int = 0
    converted_bytes: int = 0
    records: int = 0
    seconds: float = 0.0  # of converting
    chunks: int = 0
    padding_bytes: int = 0  # promised, and not needed
    dropped_headers: int = 0  # record headers, which old formats do not have
    asked_on: int = 0  # times that an answer had nothing for the client, and Shoal asked for what follows
    resumed: int = 0  # sources fetched again in the middle of an answer
    fetch_errors: int = 0  # partitions whose records could not be given
    produces: int = 0  # requests
    up_conversions: int = 0  # sets of messages made into batches
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
    """One moment of a `LegacyTally`, and of the budget."""

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
    evictions: int = 0  # sources taken back from clients that did not read

    def since(self, earlier: LegacyStatistics) -> LegacyStatistics:
        return LegacyStatistics(**{name: getattr(self, name) - getattr(earlier, name) for name in _NAMES})

    def values(self) -> dict[str, object]:
        """For machines."""
        return {f"legacy_{name}": getattr(self, name) for name in _NAMES}


_NAMES = tuple(field.name for field in fields(LegacyStatistics))
