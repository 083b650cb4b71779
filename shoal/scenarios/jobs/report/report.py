"""What a job gives to people: one HTML page that needs nothing else, the same figures as PNG files, and its tables as JSON.

    Report
      facts      what was read, in a line each
      sections   a heading, a sentence that says what is seen, and a chart or a table

The Parquet tables beside it hold everything; a page holds what can be read. Used by every job: a new one fills a `Report`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from shoal.scenarios.jobs.report.page import page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.figure import Figure

__all__ = ["Chart", "Column", "Fact", "Listed", "Report", "Section", "Table", "write_report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """`name`: of its PNG file. `figure`: see `charts.py`."""

    name: str
    figure: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """`form`: a format specification for its values, such as `,.1f`; text without one is to the left."""

    key: str
    heading: str
    form: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]  # all that are shown: cut before


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    heading: str
    says: str
    content: Sequence[Chart | Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """`bad`: it is shown as such."""

    name: str
    value: str
    bad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """The first rows of a Parquet table, and how many it has."""

    total: int
    rows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`tables`: for report.json, by the names of the Parquet tables. `summary`: further keys of report.json."""

    job: str
    title: str
    facts: Sequence[Fact]
    sections: Sequence[Section]
    tables: Mapping[str, Listed]
    summary: Mapping[str, Any] = field(default_factory=dict)


def write_report(report: Report, out: Path) -> Path:
    """Writes `JOB.html`, `report.json` and a PNG per chart into `out`, and returns the page's path."""
    out.mkdir(parents=True, exist_ok=True)
    for section in report.sections:
        for chart in section.content:
            if isinstance(chart, Chart):
                chart.figure.savefig(out / f"{chart.name}.png", dpi=144)
                chart.figure.set_layout_engine("none")  # everything has its place now, for the page too
    (out / "report.json").write_text(json.dumps(_as_json(report), indent=1, default=_plain) + "\n")
    path = out / f"{report.job}.html"
    path.write_text(page(report), encoding="utf-8")
    return path


def _as_json(report: Report) -> dict[str, Any]:
    return {
        "job": report.job,
        **report.summary,
        "facts": [asdict(fact) for fact in report.facts],
        "tables": {name: {"rows": each.total, "first": list(each.rows)} for name, each in report.tables.items()},
    }


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    raise TypeError(f"no JSON for {type(value).__name__}")
