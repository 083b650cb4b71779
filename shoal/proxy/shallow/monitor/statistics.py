"""Lag and gaps of the mirrors of one wrapping listener, as a snapshot for the log, metrics and status."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from shoal.protocol.shallow.monitor.gap import GapKind
from shoal.proxy.config.quantities import codes, counted, increases, megabytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from shoal.protocol.shallow.monitor.mirrors import Copied
    from shoal.protocol.shallow.monitor.partition import Lag
    from shoal.protocol.wire.types import TopicPartition
    from shoal.proxy.statistics import PathStatistics

__all__ = ["MirrorStatistics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStatistics:
    """`copied`: each partition of each mirror. `gaps`: events by kind. `left_out`: partitions above the limit.

    `has_caught_up`: of a difference; no partition is behind, and one was.
    """

    copied: Sequence[Copied] = ()
    gaps: Mapping[GapKind, int] = field(default_factory=lambda: dict.fromkeys(GapKind, 0))
    stopped: int = 0  # partitions that are refused to the mirror now
    left_out: int = 0
    has_caught_up: bool = False

    def worst(self) -> dict[TopicPartition, Lag]:
        """The lag of each partition, where known; with several mirrors, of the one that is furthest behind."""
        found: dict[TopicPartition, Lag] = {}
        for copied in self.copied:
            if copied.lag is not None:
                known = found.get(copied.partition)
                found[copied.partition] = copied.lag if known is None else max(known, copied.lag)
        return found

    def since(self, earlier: PathStatistics | None) -> MirrorStatistics:
        before = earlier if isinstance(earlier, MirrorStatistics) else MirrorStatistics()
        has_caught_up = before.is_behind and not self.is_behind
        return replace(self, gaps=increases(self.gaps, before.gaps), has_caught_up=has_caught_up)

    @property
    def is_behind(self) -> bool:
        return any(copied.lag is not None and copied.lag.records for copied in self.copied)

    def partitions(self) -> dict[str, int]:
        """By state."""
        lags = [copied.lag for copied in self.copied if copied.lag is not None]
        behind = sum(lag.records > 0 for lag in lags)
        return {
            "caught_up": len(lags) - behind,
            "behind": behind,
            "unknown": len(self.copied) - len(lags),
            "stopped": self.stopped,
            "left_out": self.left_out,
        }

    @property
    def happened(self) -> bool:
        return any(self.gaps.values()) or self.is_behind or self.has_caught_up

    def values(self) -> Mapping[str, object]:
        lags = [copied.lag for copied in self.copied if copied.lag is not None]
        return {
            "lag_partitions": sum(lag.records > 0 for lag in lags),
            "lag_records": sum(lag.records for lag in lags),
            "lag_bytes": round(sum(lag.size for lag in lags)),
            "lag_seconds": round(max((lag.seconds for lag in lags), default=0.0), 1),
            "lag_unknown": len(self.copied) - len(lags),
            "gaps": {kind: count for kind, count in codes(self.gaps).items() if count},
            "stopped_partitions": self.stopped,
        }

    def flow(self, seconds: float) -> Iterator[str]:
        yield from ()

    def details(self) -> Iterator[str]:
        values = self.values()
        if values["lag_records"]:
            where = counted(int(str(values["lag_partitions"])), "partition")
            size = megabytes(int(str(values["lag_bytes"])))
            yield f"behind by {values['lag_records']:,} records ({size}, {values['lag_seconds']:g} s) in {where}"
        if self.has_caught_up:
            yield "caught up"
        if values["lag_unknown"]:
            yield f"lag of {counted(int(str(values['lag_unknown'])), 'partition')} unknown"
        for kind, count in ((kind, count) for kind, count in self.gaps.items() if count):
            yield f"{counted(count, 'gap')} ({kind})"
        if self.stopped:
            yield f"{counted(self.stopped, 'partition')} stopped (shoal gaps)"
