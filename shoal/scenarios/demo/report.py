"""What the demo found: `report.json` for programs, a table for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal.scenarios.table import RULE, number, ratio, render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shoal.scenarios.demo.segments import Shape

__all__ = [
    "ALONE",
    "MIRROR",
    "PROXY",
    "ROLES",
    "RUNS",
    "SOURCE",
    "TARGET",
    "THROUGH",
    "Report",
    "Run",
    "as_json",
    "as_table",
]

MIRROR, PROXY, SOURCE, TARGET = ROLES = ("mirror", "proxy", "source_broker", "target_broker")
ALONE, THROUGH = RUNS = ("mm2", "shoal")
_MB = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One copy of the topic, from the first mirrored record to the last. By role; no proxy: no key."""

    wall_s: float
    cpu_s: Mapping[str, float]
    peak_mib: Mapping[str, float]
    difference: str | None  # the first one, in words; None: every record is equal to the source's
    copy: Shape

    @property
    def equal(self) -> bool:
        return self.difference is None

    @property
    def mirroring_cpu_s(self) -> float:
        return self.cpu_s[MIRROR] + self.cpu_s.get(PROXY, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    kafka: str
    source: Shape
    runs: Mapping[str, Run]  # ALONE and THROUGH
    envelopes_left: int  # in any topic of both clusters

    @property
    def good(self) -> bool:
        return not self.envelopes_left and all(run.equal for run in self.runs.values())


def as_json(report: Report) -> dict[str, Any]:
    return {
        "kafka": report.kafka,
        "records": report.source.records,
        "compressed_bytes": report.source.size,
        "runs": {name: _run_json(run) for name, run in report.runs.items()},
        "envelopes_left": report.envelopes_left,
    }


def _run_json(run: Run) -> dict[str, Any]:
    return {
        "wall_s": round(run.wall_s, 2),
        "cpu_s": {role: round(run.cpu_s.get(role, 0.0), 2) for role in ROLES},
        "peak_mib": {role: round(run.peak_mib.get(role, 0.0), 1) for role in ROLES},
        "equal": run.equal,
    }


def as_table(report: Report) -> str:
    alone, through = report.runs[ALONE], report.runs[THROUGH]
    return render(
        [
            ("", "MM2 alone", "through Shoal", "times less"),
            RULE,
            _compared("wall time, s", alone.wall_s, through.wall_s),
            _pair("records per second", *(number(report.source.records / run.wall_s, 0) for run in (alone, through))),
            RULE,
            ("CPU seconds",),
            *_by_role("cpu_s", (MIRROR, PROXY), alone, through),
            _compared("  mirror and proxy", alone.mirroring_cpu_s, through.mirroring_cpu_s),
            *_by_role("cpu_s", (SOURCE, TARGET), alone, through),
            _compared("  all of them", *(sum(run.cpu_s.values()) for run in (alone, through))),
            RULE,
            ("peak memory, MiB",),
            *_by_role("peak_mib", ROLES, alone, through),
            RULE,
            ("the copy",),
            _pair("  records as in the source", *map(_equality, (alone, through))),
            _pair("  batches", *(number(run.copy.batches, 0) for run in (alone, through))),
            _pair("  size, MB", *(number(run.copy.size / _MB) for run in (alone, through))),
            _pair("  compression", *(", ".join(run.copy.codecs) for run in (alone, through))),
            RULE,
            _pair("envelopes left in any topic", "", number(report.envelopes_left, 0)),
        ]
    )


def _by_role(figure: str, roles: Sequence[str], alone: Run, through: Run) -> list[Sequence[str]]:
    found = [getattr(run, figure) for run in (alone, through)]
    return [_compared(f"  {role.replace('_', ' ')}", *(by_role.get(role) for by_role in found)) for role in roles]


def _compared(label: str, alone: float | None, through: float | None) -> Sequence[str]:
    return (label, number(alone), number(through), ratio(alone, through))


def _pair(label: str, alone: str, through: str) -> Sequence[str]:
    return (label, alone, through)


def _equality(run: Run) -> str:
    return f"{run.copy.records:,}" if run.equal else "NOT EQUAL"
