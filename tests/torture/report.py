"""build/torture/report.json: the sums of all rounds, and each round with its plan and figures."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

    from tests.torture.judge.verdict import Verdict

    from .plan import FaultPlan, Plan

_KEPT = 30  # findings of one kind of one round


@dataclass(slots=True)
class Report:
    path: Path
    commit: str
    runs: list[dict[str, Any]] = field(default_factory=list)

    def add(self, plan: Plan, verdict: Verdict, *, shortest: tuple[FaultPlan, ...] | None = None) -> None:
        self.runs.append(
            {
                "seed": verdict.seed,
                "commit": self.commit,
                "verdict": "failed" if verdict.failures else "passed",
                "failures": verdict.failures,
                "seconds": round(verdict.seconds, 1),
                "records": verdict.records,
                "lost": len(verdict.lost),
                "altered": len(verdict.altered),
                "reordered": len(verdict.reordered),
                "doubled": {cause: len(places) for cause, places in verdict.doubled.items()},
                "doubled_unexplained": len(verdict.doubled_unexplained),
                "envelopes_left": len(verdict.envelopes),
                "hangs": len(verdict.hangs),
                "log_lines": verdict.loud[:_KEPT],
                "wrong_in_the_source": verdict.source[:_KEPT],
                "failed_tasks": verdict.failed_tasks,
                "peak_mib": round(verdict.peak_mib, 1),
                "flow": verdict.flow,
                "happened": [msgspec.to_builtins(fault) for fault in verdict.faults],
                "plan": msgspec.to_builtins(plan),
                "shortest": None if shortest is None else msgspec.to_builtins(shortest),
            }
        )
        self.write()

    def summary(self) -> dict[str, Any]:
        faults = Counter(fault["kind"] for run in self.runs for fault in run["happened"] if not fault["failed"])
        sums = ("records", "lost", "altered", "reordered", "doubled_unexplained", "envelopes_left", "hangs")
        return {
            "commit": self.commit,
            "seeds": len(self.runs),
            "seconds": round(sum(run["seconds"] for run in self.runs), 1),
            "faults": dict(sorted(faults.items())),
            **{name: sum(run[name] for run in self.runs) for name in sums},
            "failed": [run["seed"] for run in self.runs if run["failures"]],
            "runs": self.runs,
        }

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.summary(), indent=1) + "\n")
