"""The result of the demo: `report.json` and printed tables, with the figures of `make demo` beside, if it has run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.scenarios.demo.report import MIRROR, PROXY, ROLES, TARGET
from shoal.scenarios.demo_offsets.compare import Counts
from shoal.scenarios.table import RULE, number, render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shoal.scenarios.demo_offsets.compare import GroupCounts
    from shoal.scenarios.demo_offsets.mirroring import Measured
    from shoal.scenarios.demo_offsets.replicas import Replicas

__all__ = ["Figures", "Report", "as_json", "as_table", "demo_figures", "figures_table"]

_COMPLAINTS = "Its client reported {:,} fetches with nothing but empty batches (MSG_SIZE_TOO_LARGE), and read on."
_DEMO_RUNS = {"mm2": "make demo: MM2 alone", "shoal": "make demo: through Shoal"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    kafka: str
    topics: Mapping[str, Counts]
    """By the source's name."""
    group: GroupCounts
    replicas: Replicas
    envelopes: int
    """In any topic of the target."""
    backlog: int
    """Records that the mirror found at its start."""
    measured: Measured
    """While it copied these."""

    @property
    def total(self) -> Counts:
        return sum(self.topics.values(), start=Counts())

    @property
    def good(self) -> bool:
        moved = not (self.group.twice or self.group.missed)
        return self.total.records > 0 and self.total.equal and moved and self._identical and not self.envelopes

    @property
    def _identical(self) -> bool:
        return self.replicas.files > 0 and not self.replicas.differences


def as_json(report: Report) -> dict[str, Any]:
    measured = report.measured
    return {
        "kafka": report.kafka,
        **asdict(report.total),
        "groups_moved": {"records_twice": report.group.twice, "records_missed": report.group.missed},
        "group_complaints": report.group.complaints,
        "replicas_identical": report.replicas.files > 0 and not report.replicas.differences,
        "envelopes": report.envelopes,
        "topics": {name: asdict(counts) for name, counts in report.topics.items()},
        "backlog": {
            "records": report.backlog,
            "wall_s": round(measured.wall_s, 2),
            "cpu_s": {role: round(seconds, 2) for role, seconds in measured.cpu_s.items()},
            "peak_mib": {role: round(mib, 1) for role, mib in measured.peak_mib.items()},
        },
    }


def as_table(report: Report) -> str:
    rows = [(name, *_cells(counts)) for name, counts in report.topics.items()]
    group = report.group
    return "\n".join(
        [
            render(
                [
                    ("topic", "records", "same offset", "different", "lost", "doubled", "compacted at source"),
                    RULE,
                    *rows,
                    RULE,
                    ("all", *_cells(report.total)),
                ]
            ),
            "",
            f"The group read {group.at_source:,} records at the source, then {group.at_target:,} at the target: "
            f"{group.twice:,} twice, {group.missed:,} missed.",
            *([_COMPLAINTS.format(group.complaints)] if group.complaints else []),
            f"Replicas at the target: {_replicas(report.replicas)}. Envelopes in its topics: {report.envelopes}.",
        ]
    )


def _cells(counts: Counts) -> list[str]:
    return [number(count, 0) for count in asdict(counts).values()]


def _replicas(replicas: Replicas) -> str:
    if not replicas.differences:
        return f"{replicas.files} segment files, equal byte by byte"
    return "\n  ".join([f"{len(replicas.differences)} differences", *replicas.differences[:10]])


class Figures(NamedTuple):
    """One column of the table of figures."""

    title: str
    records: int
    wall_s: float
    cpu_s: Mapping[str, float]
    """By role."""

    @property
    def mirroring_per_record_us(self) -> float:
        """CPU of mirror and proxy."""
        return 1e6 * (self.cpu_s[MIRROR] + self.cpu_s.get(PROXY, 0.0)) / max(1, self.records)

    @property
    def target_per_record_us(self) -> float:
        return 1e6 * self.cpu_s[TARGET] / max(1, self.records)


def demo_figures(demo: Mapping[str, Any]) -> list[Figures]:
    """From the report of `make demo`: the mirror alone, and through Shoal."""
    runs = demo.get("runs", {})
    return [
        Figures(title, demo["records"], runs[name]["wall_s"], runs[name]["cpu_s"])
        for name, title in _DEMO_RUNS.items()
        if name in runs
    ]


def figures_table(report: Report, demo: Sequence[Figures] = ()) -> str:
    """What copying the backlog took."""
    own = Figures("same offsets", report.backlog, report.measured.wall_s, report.measured.cpu_s)
    columns = [own, *demo]

    def listed(label: str, figures: Sequence[float | None], digits: int = 1) -> Sequence[str]:
        return (label, *(number(figure, digits) for figure in figures))

    return render(
        [
            ("", *(column.title for column in columns)),
            RULE,
            listed("records", [column.records for column in columns], 0),
            listed("wall time, s", [column.wall_s for column in columns]),
            ("CPU seconds",),
            *(listed(f"  {role.replace('_', ' ')}", [column.cpu_s.get(role) for column in columns]) for role in ROLES),
            ("CPU of a record, microseconds",),
            listed("  mirror and proxy", [column.mirroring_per_record_us for column in columns]),
            listed("  target brokers", [column.target_per_record_us for column in columns]),
        ]
    )
