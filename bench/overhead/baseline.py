"""The ratios of one run, and those of an earlier run that are kept in `bench/baseline.json`.

Only ratios of figures of the same run are kept, no times: they survive a change of the machine far better.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.overhead.report import HEARTBEAT, LITTLE
from bench.proxies.names import HAPROXY, SHOAL
from shoal.scenarios.spread import Spread, ratios
from shoal.scenarios.table import RULE, number, render

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.overhead.report import Figures

__all__ = ["BASELINE", "compared", "read", "verdict", "verdict_table", "write"]

BASELINE = Path(__file__).parents[1] / "baseline.json"
_MOST = 1_000  # connections: more are as many as the limit of open files allows
_WITHIN_SHOAL = (
    ("wrap", "fetch"),
    ("unwrap", "produce"),
    ("fetch, index", "fetch"),
    ("produce, index", "produce"),
    ("fetch of tiny batches, index", "fetch of tiny batches"),
)
_LONE = ("Fetch", "Produce")


def compared(figures: Figures) -> dict[str, Spread]:
    """By name, of all that both sides have been measured for. Larger is worse."""
    found = {
        f"{name}, CPU: {SHOAL}/{HAPROXY}": _cost(figures, (name, SHOAL), (name, HAPROXY))
        for name in ("fetch", "produce", LITTLE[0], HEARTBEAT)
    }
    found |= {
        f"CPU: {name}/{base}": _cost(figures, (name, SHOAL), (base, SHOAL))
        for name, base in (*_WITHIN_SHOAL, (LITTLE[1], LITTLE[0]))
    }
    for name in _LONE:
        ways = figures.lone.get(name, {})
        p50 = [[run.p50 for run in ways.get(way, [])] for way in (SHOAL, HAPROXY)]
        found[f"a lone {name}, p50: {SHOAL}/{HAPROXY}"] = ratios(*p50)
    cpu = [[run.cpu_us for run in figures.connections.get(way, [])] for way in (SHOAL, HAPROXY)]
    found[f"a new connection, CPU: {SHOAL}/{HAPROXY}"] = ratios(*cpu)
    shoal, haproxy = (figures.idle_mib.get(way, {}) for way in (SHOAL, HAPROXY))
    for count in shoal.keys() & haproxy.keys():
        which = f"{count:,}" if count <= _MOST else "most"
        found[f"memory, {which} idle connections: {SHOAL}/{HAPROXY}"] = [shoal[count] / haproxy[count]]
    return {name: Spread.of(values) for name, values in sorted(found.items()) if values}


def _cost(figures: Figures, one: tuple[str, str], other: tuple[str, str]) -> list[float]:
    """CPU per request where requests are counted, else per GiB."""
    runs = [figures.forwarding.get(name, {}).get(way, []) for name, way in (one, other)]
    if one[0] in (*LITTLE, HEARTBEAT):
        return ratios(*([run.cpu_us_per_request for run in side] for side in runs))
    return ratios(*([run.cpu_s_per_gib for run in side] for side in runs))


def verdict(now: Spread, before: Spread | None) -> str:
    if before is None:
        return "new"
    if now.above(before):
        return "WORSE"
    return "better" if before.above(now) else ""


def read(path: Path = BASELINE) -> dict[str, Spread]:
    """Empty if there is no baseline."""
    if not path.exists():
        return {}
    kept: dict[str, dict[str, float]] = json.loads(path.read_text())["ratios"]
    return {name: Spread(**spread) for name, spread in kept.items()}


def write(now: Mapping[str, Spread], about: Mapping[str, Any], path: Path = BASELINE) -> None:
    """Ratios that were not measured now stay as they are."""
    kept = read(path) | dict(now)
    found = {**about, "ratios": {name: spread._asdict() for name, spread in sorted(kept.items())}}
    path.write_text(json.dumps(found, indent=1) + "\n")


def verdict_table(now: Mapping[str, Spread], before: Mapping[str, Spread]) -> str:
    rows = [["ratio (larger is worse)", "now", "from", "to", "baseline", "from", "to", ""], RULE]
    for name, spread in now.items():
        kept = before.get(name)
        base = [number(value, 2) for value in kept] if kept else ["-"] * len(spread)
        rows.append([name, *(number(value, 2) for value in spread), *base, verdict(spread, kept)])
    worse = sum(row[-1] == "WORSE" for row in rows if row)
    end = f"{worse} worse than the baseline, beyond the spread" if before else "no baseline: make bench BASELINE=write"
    return f"{render(rows)}\n{end}"
