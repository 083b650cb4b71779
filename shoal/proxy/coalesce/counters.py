"""Statistics of coalescing: the counters of one listener, and a frozen snapshot."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from shoal.proxy.config.quantities import codes, counted, increases, reasons

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shoal.protocol.coalesce.joinable import WhyAlone
    from shoal.proxy.statistics import PathStatistics

__all__ = ["CoalesceStatistics", "CoalesceTally"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoalesceStatistics:
    """A snapshot of a `CoalesceTally`."""

    taken: int = 0  # produce requests of clients that were joined
    batches: int = 0  # in joined requests; counted again if a set is split
    requests: int = 0  # joined requests that were sent
    request_bytes: int = 0
    split_sets: int = 0  # refused as a whole, and retried batch by batch
    errors: int = 0  # partitions answered with an error
    alone: Mapping[WhyAlone, int] = field(default_factory=dict)  # requests that were not joined: reason -> number

    def since(self, earlier: PathStatistics | None) -> CoalesceStatistics:
        before = earlier if isinstance(earlier, CoalesceStatistics) else CoalesceStatistics()
        counts = {name: getattr(self, name) - getattr(before, name) for name in _COUNTS}
        return CoalesceStatistics(**counts, alone=increases(self.alone, before.alone))

    @property
    def happened(self) -> bool:
        return False  # no activity without traffic

    def flow(self, seconds: float) -> Iterator[str]:
        yield from ()

    def details(self) -> Iterator[str]:
        if self.taken:
            yield f"joined {counted(self.taken, 'produce request')} into {self.requests:,}"
        if self.alone:
            yield f"{counted(sum(self.alone.values()), 'produce request')} alone ({reasons(self.alone)})"

    def values(self) -> dict[str, object]:
        counts = {name: getattr(self, name) for name in _COUNTS}
        return {**{f"coalesced_{name}": count for name, count in counts.items()}, "coalesced_alone": codes(self.alone)}


_COUNTS = tuple(counter.name for counter in fields(CoalesceStatistics) if counter.name != "alone")


@dataclass(slots=True, kw_only=True)
class CoalesceTally:
    """The counters, updated in place. `alone` is keyed by the reason (a closed list)."""

    taken: int = 0
    batches: int = 0
    requests: int = 0
    request_bytes: int = 0
    split_sets: int = 0
    errors: int = 0
    alone: Counter[WhyAlone] = field(default_factory=Counter)

    def statistics(self) -> CoalesceStatistics:
        return CoalesceStatistics(**{name: getattr(self, name) for name in _COUNTS}, alone=dict(self.alone))
