"""What every section gets: a directory of its own, the version of Kafka, and where to report progress.

A section raises AssertionError, or an error of the harness, if what it shows is not true.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.scenarios.progress import Progress

__all__ = ["Stage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    work: Path
    kept: Path  # beside the report
    kafka: str
    progress: Progress

    def of(self, section: str) -> Stage:
        work = self.work / section
        work.mkdir()
        return replace(self, work=work)
