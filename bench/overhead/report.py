"""Medians of the runs, as JSON and as text tables. Only figures of one benchmark run are compared."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench.overhead.by_peer import by_peer, peer_table
from bench.proxies.names import DIRECT, HAPROXY, SHOAL
from shoal.scenarios.spread import known_median
from shoal.scenarios.table import RULE, number, ratio, render

if TYPE_CHECKING:
    from bench.overhead.connections import Connections
    from bench.runs import Forwarding, Lone

__all__ = ["COUNTED", "HEARTBEAT", "JOINED", "LITTLE", "STEADY", "Figures", "as_json", "as_tables"]

WAYS = (DIRECT, HAPROXY, SHOAL)
LITTLE = ("produce of a tiny batch", "produce of a tiny batch, index")
HEARTBEAT = "Heartbeat"
STEADY = ("produce of tiny batches, 200 connections", "Heartbeat, 200 connections")
JOINED = "produce of one record, 200 connections, joined"
COUNTED = (*LITTLE, HEARTBEAT, *STEADY, JOINED)
"""Workloads that are counted in requests, not in bytes."""


def _lists() -> dict[str, list[Any]]:
    return defaultdict(list)


@dataclass(slots=True)
class Figures:
    """All that was measured, in the order of the rounds: [workload or request][way] -> one entry per round."""

    forwarding: dict[str, dict[str, list[Forwarding]]] = field(default_factory=lambda: defaultdict(_lists))
    lone: dict[str, dict[str, list[Lone]]] = field(default_factory=lambda: defaultdict(_lists))
    peak_mib: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    idle_mib: dict[str, dict[int, float]] = field(default_factory=dict)
    """Peaks by number of connections."""
    connections: dict[str, list[Connections]] = field(default_factory=_lists)
    index_us: dict[str, float] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    """Proxies that could not be started, and why."""


def as_json(figures: Figures, **about: object) -> dict[str, object]:
    """Medians: CPU seconds per GiB, GiB per second, microseconds (added: against direct in the same round), MiB.

    For the workloads COUNTED, in addition to bytes: CPU microseconds per request, requests per second.
    """
    report: dict[str, Any] = {
        **about,
        "forwarding": {
            name: {way: _forwarding(runs) | (_little(runs) if name in COUNTED else {}) for way, runs in ways.items()}
            for name, ways in figures.forwarding.items()
        },
        "latency_us": {
            name: {way: _lone(runs, ways[DIRECT]) for way, runs in ways.items()} for name, ways in figures.lone.items()
        },
        "peak_mib": {
            way: {when: round(mib, 1) for when, mib in peaks.items()} for way, peaks in figures.peak_mib.items()
        },
        "index_us_per_batch": figures.index_us,
        "connections": {
            way: {
                "cpu_us": known_median(run.cpu_us for run in runs),
                "per_cpu_s": known_median(run.per_cpu_s for run in runs),
                "per_s": known_median(run.per_s for run in runs),
            }
            for way, runs in figures.connections.items()
        },
    }
    return report | {"peers": by_peer(report, figures.idle_mib, figures.absent)}


def _forwarding(runs: list[Forwarding]) -> dict[str, float | None]:
    cpu = known_median(run.cpu_s_per_gib for run in runs)
    return {"cpu_s_per_gib": cpu, "gib_per_s": known_median(run.gib_per_s for run in runs)}


def _little(runs: list[Forwarding]) -> dict[str, float | None]:
    return {
        "cpu_us_per_request": known_median(run.cpu_us_per_request for run in runs),
        "requests_per_s": known_median(run.requests_per_s for run in runs),
    }


def _lone(runs: list[Lone], direct: list[Lone]) -> dict[str, float | None]:
    pairs = list(zip(runs, direct, strict=True))
    return {
        "p50": known_median(run.p50 for run in runs),
        "p99": known_median(run.p99 for run in runs),
        "added_p50": known_median(run.p50 - bare.p50 for run, bare in pairs),
        "added_p99": known_median(run.p99 - bare.p99 for run, bare in pairs),
    }


def as_tables(report: dict[str, Any]) -> str:
    """The result of `as_json` as text tables."""
    parts = {
        "forwarding": _forwarding_table,
        "latency_us": _latency_table,
        "peak_mib": _memory_table,
        "index_us_per_batch": _index_table,
    }
    tables = [table(report) for part, table in parts.items() if report[part]]
    if LITTLE[1] in report["forwarding"]:
        tables.append(_little_table(report))
    tables.append(peer_table(report["peers"]))
    return "\n\n".join(tables)


def _forwarding_table(report: dict[str, Any]) -> str:
    rows = [
        ["proxy CPU seconds per GiB forwarded", HAPROXY, SHOAL, "Shoal/HAProxy", "GiB/s direct", HAPROXY, SHOAL],
        RULE,
    ]
    for name, ways in report["forwarding"].items():
        if name in COUNTED:
            continue
        cpu = {way: ways.get(way, {}).get("cpu_s_per_gib") for way in WAYS}
        speed = {way: ways.get(way, {}).get("gib_per_s") for way in WAYS}
        compared = ratio(cpu[SHOAL], cpu[HAPROXY], digits=2)
        rows.append(
            [name, number(cpu[HAPROXY], 2), number(cpu[SHOAL], 2), compared, *(number(speed[way], 2) for way in WAYS)]
        )
    return render(rows)


def _latency_table(report: dict[str, Any]) -> str:
    heading = ["a lone request, microseconds", "direct p50", "p99", "HAProxy adds p50", "p99", "Shoal adds p50", "p99"]
    rows = [heading, RULE]
    for name, ways in report["latency_us"].items():
        direct = ways[DIRECT]
        added = [ways.get(way, {}).get(f"added_{what}") for way in (HAPROXY, SHOAL) for what in ("p50", "p99")]
        rows.append([name, *(number(value, 0) for value in (direct["p50"], direct["p99"], *added))])
    return render(rows)


def _memory_table(report: dict[str, Any]) -> str:
    peaks = report["peak_mib"]
    moments = list(dict.fromkeys(when for way in peaks.values() for when in way))
    rows = [["peak memory, MiB", HAPROXY, SHOAL], RULE]
    rows += [[when, *(number(peaks.get(way, {}).get(when)) for way in (HAPROXY, SHOAL))] for when in moments]
    return render(rows)


def _index_table(report: dict[str, Any]) -> str:
    rows = [["the index, CPU microseconds per batch", ""], RULE]
    rows += [[what, number(value, 2)] for what, value in report["index_us_per_batch"].items()]
    return render(rows)


def _little_table(report: dict[str, Any]) -> str:
    rows = [["requests through Shoal", "CPU microseconds each", "requests/s"], RULE]
    for name in LITTLE:
        found = report["forwarding"][name][SHOAL]
        rows.append([name, number(found["cpu_us_per_request"], 1), number(found["requests_per_s"], 0)])
    return render(rows)
