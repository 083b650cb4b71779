"""Writes a `Report`: one HTML page, the same figures as PNG files, and its tables as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from shoal.scenarios.report.page import page
from shoal.scenarios.report.report import Chart, Listed

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.scenarios.report.report import Report

__all__ = ["write_report"]


def write_report(report: Report, out: Path) -> Path:
    """Write `JOB.html`, `report.json` and a PNG per chart into `out`, and return the page's path."""
    out.mkdir(parents=True, exist_ok=True)
    for section in report.sections:
        for chart in section.content:
            if isinstance(chart, Chart):
                chart.figure.savefig(out / f"{chart.name}.png", dpi=144)
                chart.figure.set_layout_engine("none")  # the layout is final, for the page too
    path = out / f"{report.job}.html"
    path.write_text(page(report), encoding="utf-8")
    (out / "report.json").write_text(json.dumps(_as_json(report), indent=1, default=_plain) + "\n")
    return path


def _as_json(report: Report) -> dict[str, Any]:
    tables = {name: each if isinstance(each, Listed) else each.result() for name, each in report.tables.items()}
    return {
        "job": report.job,
        **report.summary,
        "facts": [asdict(fact) for fact in report.facts],
        "tables": {name: {"rows": each.total, "first": list(each.rows)} for name, each in tables.items()},
    }


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    raise TypeError(f"no JSON for {type(value).__name__}")
