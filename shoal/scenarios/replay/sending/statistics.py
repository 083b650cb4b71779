"""The requests that a replay has sent, and their results."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shoal.protocol.messages.produce import read_produce_response
from shoal.protocol.wire.error_codes import error_name

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ReplayStatistics", "percentile"]

_MICRO = 1_000_000


@dataclass(slots=True, kw_only=True)
class ReplayStatistics:
    """Counters of a running replay. `latencies` (us): from sending a request to its answer; `lags` (us): how far
    requests were behind the schedule."""

    requests: int = 0
    batches: int = 0
    records: int = 0
    size: int = 0  # bytes of the batches that were sent
    wanted_size: int = 0  # bytes of the captured batches
    seconds: float = 0.0
    errors: Counter[str] = field(default_factory=Counter)  # batches, by error
    latencies: array[int] = field(default_factory=lambda: array("I"))
    lags: array[int] = field(default_factory=lambda: array("I"))
    connections: int = 0

    def sent(self, records: int, size: int, wanted: int) -> None:
        """Count a batch of `size` bytes that replaces one of `wanted`."""
        self.batches += 1
        self.records += records
        self.size += size
        self.wanted_size += wanted

    def produced(self, version: int, frame: bytes, seconds: float) -> None:
        """Count the answer to a produce request."""
        self.latencies.append(int(seconds * _MICRO))
        for partition in read_produce_response(frame, version).partitions:
            if partition.error_code:
                self.errors[error_name(partition.error_code)] += 1

    def as_json(self) -> dict[str, object]:
        return {
            "produce_requests": self.requests,
            "batches": self.batches,
            "records": self.records,
            "bytes": self.size,
            "bytes_wanted": self.wanted_size,
            "connections": self.connections,
            "seconds": round(self.seconds, 3),
            "errors": dict(self.errors),
            "latency_ms": _milliseconds(self.latencies),
            "behind_schedule_ms": _milliseconds(self.lags),
        }


def _milliseconds(microseconds: Sequence[int]) -> dict[str, float | None]:
    return {f"p{share}": percentile(microseconds, share) for share in (50, 99, 100)}


def percentile(microseconds: Sequence[int], share: int) -> float | None:
    """Milliseconds, by the nearest rank; None without values."""
    if not microseconds:
        return None
    ordered = sorted(microseconds)
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)] / 1000
