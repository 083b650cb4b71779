"""The findings of a round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .attribution import NONE

if TYPE_CHECKING:
    from tests.torture.faults import Done

# An idle Shoal takes 45 MiB; its buffers are limited to 32 MiB, and to 8 MiB for each of few connections.
_PEAK_MIB = 400.0


@dataclass(slots=True)
class Verdict:
    """`report` writes it."""

    seed: int
    run: str
    faults: list[Done] = field(default_factory=list)
    seconds: float = 0.0
    records: int = 0
    lost: list[str] = field(default_factory=list)
    altered: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    doubled: dict[str, list[str]] = field(default_factory=dict)
    """By cause."""
    envelopes: list[str] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)
    loud: list[str] = field(default_factory=list)
    source: list[str] = field(default_factory=list)
    """Findings in a source, which Shoal does not cause: faults of Kafka's or of the harness."""
    failed_tasks: list[str] = field(default_factory=list)
    peak_mib: float = 0.0
    flow: dict[str, int] = field(default_factory=dict)
    """Shoal's counters: wrapped and raw."""
    broken: str | None = None
    """The round could not run to its end: no verdict."""

    @property
    def doubled_unexplained(self) -> list[str]:
        return self.doubled.get(NONE, [])

    @property
    def failures(self) -> list[str]:
        """The reasons for which the round fails."""
        parts = {
            "lost": self.lost,
            "altered": self.altered,
            "reordered": self.reordered,
            "doubled without a cause": self.doubled_unexplained,
            "envelopes left": self.envelopes,
            "hangs": self.hangs,
            "unexpected log lines": self.loud,
            "wrong in the source": self.source,
        }
        found = [f"{len(items)} {name}: {'; '.join(items[:3])}" for name, items in parts.items() if items]
        if self.peak_mib > _PEAK_MIB:
            found.append(f"{self.peak_mib:.0f} MiB of memory, more than {_PEAK_MIB:g}")
        return found + ([f"broken: {self.broken}"] if self.broken else [])
