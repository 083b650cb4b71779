"""What a replay has sent, and what came of it."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Played", "percentile"]


@dataclass(slots=True, kw_only=True)
class Played:
    """Counts while a replay is under way. `latencies` (us) are from the sending of a request to its answer; `lags` (us) say by how
    much requests were sent behind the schedule."""

    requests: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    wanted_bytes: int = 0  # of the batches that were to be made up
    seconds: float = 0.0
    errors: Counter[str] = field(default_factory=Counter)  # batches, by what went wrong
    latencies: array[int] = field(default_factory=lambda: array("I"))
    lags: array[int] = field(default_factory=lambda: array("I"))
    connections: int = 0

    def as_json(self) -> dict[str, object]:
        return {
            "produce_requests": self.requests,
            "batches": self.batches,
            "records": self.records,
            "bytes": self.bytes,
            "bytes_wanted": self.wanted_bytes,
            "connections": self.connections,
            "seconds": round(self.seconds, 3),
            "errors": dict(self.errors),
            "latency_ms": _milliseconds(self.latencies),
            "behind_schedule_ms": _milliseconds(self.lags),
        }


def _milliseconds(microseconds: Sequence[int]) -> dict[str, float | None]:
    return {f"p{share}": percentile(microseconds, share) for share in (50, 99, 100)}


def percentile(microseconds: Sequence[int], share: int) -> float | None:
    """Milliseconds, by the nearest rank; None of nothing."""
    if not microseconds:
        return None
    ordered = sorted(microseconds)
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)] / 1000
