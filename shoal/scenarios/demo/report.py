"""The result of the demo: `report.json` and a printed table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.scenarios.table import RULE, number, ratio, render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shoal.scenarios.demo.measure import Sample
    from shoal.scenarios.kafka.segments import SegmentContents

__all__ = [
    "MIRROR",
    "PROXY",
    "ROLES",
    "SOURCE",
    "TARGET",
    "DemoRun",
    "Ratio",
    "Report",
    "as_json",
    "as_table",
]

MIRROR, PROXY, SOURCE, TARGET = ROLES = ("mirror", "proxy", "source_broker", "target_broker")
_MB = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRun:
    """One copy of the topic, from the first mirrored record to the last. Values are by role; no proxy: no key."""

    column: str  # its heading
    wall_s: float
    cpu_s: Mapping[str, float]
    peak_mib: Mapping[str, float]
    difference: str | None  # the first difference, in words; None: every record equals the source's
    copy: SegmentContents
    samples: tuple[Sample, ...] = ()
    requests: int | None = None  # Produce requests that the target broker has received; None: not counted

    @property
    def equal(self) -> bool:
        return self.difference is None

    @property
    def mirroring_cpu_s(self) -> float:
        return self.cpu_s[MIRROR] + self.cpu_s.get(PROXY, 0.0)


class Ratio(NamedTuple):
    """How many times less `by` needs than `of`, by the names of the runs."""

    heading: str
    of: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    kafka: str
    source: SegmentContents
    runs: Mapping[str, DemoRun]
    ratios: tuple[Ratio, ...]
    envelopes_left: int  # in any topic of all clusters

    @property
    def good(self) -> bool:
        return not self.envelopes_left and all(run.equal for run in self.runs.values())

    def times_less(self, figures: Sequence[float | None]) -> list[str]:
        """`figures`: one per run, in their order. For each of `ratios` its text."""
        found = dict(zip(self.runs, figures, strict=True))
        return [ratio(found[one.of], found[one.by]) for one in self.ratios]

    @property
    def counts_requests(self) -> bool:
        return any(run.requests is not None for run in self.runs.values())


def as_json(report: Report) -> dict[str, Any]:
    return {
        "kafka": report.kafka,
        **({"batches": report.source.batches} if report.counts_requests else {}),
        "records": report.source.records,
        "compressed_bytes": report.source.size,
        "runs": {name: _run_json(run) for name, run in report.runs.items()},
        "envelopes_left": report.envelopes_left,
    }


def _run_json(run: DemoRun) -> dict[str, Any]:
    return {
        "wall_s": round(run.wall_s, 2),
        "cpu_s": {role: round(run.cpu_s.get(role, 0.0), 2) for role in ROLES},
        "peak_mib": {role: round(run.peak_mib.get(role, 0.0), 1) for role in ROLES},
        "equal": run.equal,
        **({} if run.requests is None else {"requests": run.requests}),
    }


def as_table(report: Report) -> str:
    runs = list(report.runs.values())

    def compared(label: str, figures: Sequence[float | None], digits: int = 1) -> Sequence[str]:
        return (label, *(number(figure, digits) for figure in figures), *report.times_less(figures))

    def by_role(roles: Sequence[str], found: Sequence[Mapping[str, float]]) -> list[Sequence[str]]:
        return [compared(f"  {role.replace('_', ' ')}", [of_roles.get(role) for of_roles in found]) for role in roles]

    return render(
        [
            ("", *(run.column for run in runs), *(one.heading for one in report.ratios)),
            RULE,
            compared("wall time, s", [run.wall_s for run in runs]),
            _listed("records per second", [number(report.source.records / run.wall_s, 0) for run in runs]),
            RULE,
            ("CPU seconds",),
            *by_role((MIRROR, PROXY), [run.cpu_s for run in runs]),
            compared("  mirror and proxy", [run.mirroring_cpu_s for run in runs]),
            *by_role((SOURCE, TARGET), [run.cpu_s for run in runs]),
            compared("  all of them", [sum(run.cpu_s.values()) for run in runs]),
            RULE,
            ("peak memory, MiB",),
            *by_role(ROLES, [run.peak_mib for run in runs]),
            RULE,
            *(
                [compared("produce requests", [run.requests for run in runs], 0), RULE]
                if report.counts_requests
                else []
            ),
            ("the copy",),
            _listed("  records as in the source", [_equality(run) for run in runs]),
            _listed("  batches", [number(run.copy.batches, 0) for run in runs]),
            _listed("  size, MB", [number(run.copy.size / _MB) for run in runs]),
            _listed("  compression", [", ".join(run.copy.codecs) for run in runs]),
            RULE,
            _listed("envelopes left in any topic", [*[""] * (len(runs) - 1), number(report.envelopes_left, 0)]),
        ]
    )


def _listed(label: str, texts: Sequence[str]) -> Sequence[str]:
    return (label, *texts)


def _equality(run: DemoRun) -> str:
    return f"{run.copy.records:,}" if run.equal else "NOT EQUAL"
