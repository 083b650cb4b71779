"""The table of figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.scenarios.table import RULE, number, ratio, render

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DIRECT", "as_tables"]

DIRECT = "direct"


def as_tables(report: Mapping[str, Any]) -> str:
    return "\n\n".join(_table(name, runs) for name, runs in report["loads"].items())


def _table(name: str, runs: Mapping[str, Any]) -> str:
    heading = [name, "records/s", "broker requests", "fewer", "broker CPU s", "less", "Shoal CPU s", "p50 ms", "p99 ms"]
    direct = runs[DIRECT]
    rows = [heading, RULE]
    for way, run in runs.items():
        fewer = "" if way == DIRECT else ratio(direct["broker_requests"], run["broker_requests"])
        less = "" if way == DIRECT else ratio(direct["broker_cpu_s"], run["broker_cpu_s"])
        rows.append(
            [
                way,
                number(run["records"] / run["seconds"], 0),
                f"{run['broker_requests']:,}",
                fewer,
                number(run["broker_cpu_s"], 2),
                less,
                number(run["shoal_cpu_s"], 2),
                number(run["p50_ms"], 2),
                number(run["p99_ms"], 2),
            ]
        )
    return render(rows)
