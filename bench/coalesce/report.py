"""The figures for people."""

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
    for way, one in runs.items():
        fewer = "" if way == DIRECT else ratio(direct["broker_requests"], one["broker_requests"])
        less = "" if way == DIRECT else ratio(direct["broker_cpu_s"], one["broker_cpu_s"])
        rows.append(
            [
                way,
                number(one["records"] / one["seconds"], 0),
                f"{one['broker_requests']:,}",
                fewer,
                number(one["broker_cpu_s"], 2),
                less,
                number(one["shoal_cpu_s"], 2),
                number(one["p50_ms"], 2),
                number(one["p99_ms"], 2),
            ]
        )
    return render(rows)
