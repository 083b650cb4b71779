"""Medians of the runs, as JSON and as text tables."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.proxies.names import DIRECT, HAPROXY
from bench.proxies.placements import TLS, Placement
from shoal.scenarios.spread import known_median
from shoal.scenarios.table import RULE, number, ratio, render

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.overhead.connections import Connections
    from bench.runs import Forwarding, Lone
    from bench.tls.openssl import Cost

__all__ = [
    "FETCH",
    "FULL",
    "FULL_RSA",
    "KINDS",
    "OPENSSL",
    "PLAINTEXT",
    "PRODUCE",
    "RECORDS",
    "RESUMED",
    "SMALL",
    "Figures",
    "as_json",
    "as_tables",
    "needed",
]

FETCH, PRODUCE, SMALL = "fetch", "produce", "small produce"
PLAINTEXT, FULL, RESUMED, FULL_RSA = "plaintext", "full, ECDSA P-256", "resumed", "full, RSA 2048"
KINDS = (PLAINTEXT, FULL, RESUMED, FULL_RSA)
"""Kinds of new connection."""
OPENSSL, RECORDS = "openssl", "openssl records"
_FLOORS = {OPENSSL: "OpenSSL, cipher alone", RECORDS: "OpenSSL, TLS records in memory"}


@dataclass(slots=True)
class Figures:
    """All that was measured, one entry per round."""

    forwarding: dict[str, dict[str, dict[Placement, list[Forwarding]]]] = field(default_factory=lambda: _tree(3))
    lone: dict[str, dict[str, dict[Placement, list[Lone]]]] = field(default_factory=lambda: _tree(3))
    """By way, kind of request, placement."""
    connections: dict[str, dict[str, list[Connections]]] = field(default_factory=lambda: _tree(2))
    idle_mib: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    libraries: dict[str, dict[str, float]] = field(default_factory=dict)
    openssl: dict[str, Cost] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def _tree(depth: int) -> Any:
    return defaultdict(list) if depth == 1 else defaultdict(partial(_tree, depth - 1))


def as_json(figures: Figures, **about: object) -> dict[str, Any]:
    """Keys are lower-case names of ways. The figures of a whole way are those with TLS on both sides."""
    forwarding = figures.forwarding
    return {
        **about,
        **{name: _bulk(name, forwarding[name], figures.openssl) for name in (FETCH, PRODUCE) if name in forwarding},
        "small_produce_cpu_us": {
            way.lower(): {
                placement: known_median(run.cpu_us_per_request for run in runs) for placement, runs in found.items()
            }
            for way, found in forwarding.get(SMALL, {}).items()
        },
        "handshakes_per_s": {
            way.lower(): {kind: known_median(run.per_cpu_s for run in runs) for kind, runs in found.items()}
            for way, found in figures.connections.items()
        },
        "connection_cpu_us": {
            way.lower(): {kind: known_median(run.cpu_us for run in runs) for kind, runs in found.items()}
            for way, found in figures.connections.items()
        },
        "added_p50_us": _added(figures.lone),
        "direct_p50_us": {
            kind: {placement: known_median(run.p50 for run in runs) for placement, runs in found.items()}
            for kind, found in figures.lone.get(DIRECT, {}).items()
        },
        "idle_mib": {way.lower(): found for way, found in figures.idle_mib.items()},
        "cpu_shares": {
            way.lower(): {name: round(share, 3) for name, share in found.items()}
            for way, found in figures.libraries.items()
        },
        "left_out": {way.lower(): why for way, why in figures.left_out.items()},
    }


def _bulk(
    name: str, ways: Mapping[str, Mapping[Placement, list[Forwarding]]], floors: Mapping[str, Cost]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for way, placements in ways.items():
        each = {
            placement: {
                "cpu_s_per_gib": known_median(run.cpu_s_per_gib for run in runs),
                "gib_per_s": known_median(run.gib_per_s for run in runs),
            }
            for placement, runs in placements.items()
        }
        found[way.lower()] = {**each.get(Placement.BOTH, {}), "placements": each}
    for floor, cost in floors.items():
        alone = {placement: {"cpu_s_per_gib": round(needed(cost, placement, name), 3)} for placement in TLS}
        found[floor] = {**alone[Placement.BOTH], "placements": alone}
    return found


def needed(cost: Cost, placement: Placement, work: str) -> float:
    """What OpenSSL has to do: seal for one side, open what the other side has sealed."""
    seals = placement.to_clients if work == FETCH else placement.to_brokers
    opens = placement.to_brokers if work == FETCH else placement.to_clients
    return seals * cost.seal + opens * cost.open


def _added(lone: Mapping[str, Mapping[str, Mapping[Placement, list[Lone]]]]) -> dict[str, Any]:
    """Against a direct connection in the same round: over TLS for each placement with TLS."""
    return {
        way.lower(): {
            kind: {
                placement: known_median(
                    run.p50 - bare.p50 for run, bare in zip(runs, lone[DIRECT][kind][_compared(placement)], strict=True)
                )
                for placement, runs in placements.items()
            }
            for kind, placements in kinds.items()
        }
        for way, kinds in lone.items()
        if way != DIRECT
    }


def _compared(placement: Placement) -> Placement:
    return Placement.PLAIN if placement is Placement.PLAIN else Placement.BOTH


def as_tables(report: dict[str, Any]) -> str:
    """The result of `as_json` as text tables."""
    tables = [_bulk_table(report, name) for name in (FETCH, PRODUCE) if name in report]
    titles = {
        "small_produce_cpu_us": ("produce of a tiny batch, CPU microseconds per request", 1),
        "handshakes_per_s": ("new connections with one request, per CPU second", 0),
        "idle_mib": ("peak memory, MiB", 1),
    }
    tables += [_table(title, report[part], digits) for part, (title, digits) in titles.items() if report[part]]
    if report["added_p50_us"]:
        tables.append(_latency_table(report))
    if report["cpu_shares"]:
        tables.append(_share_table(report))
    tables += [f"left out: {way}: {why}" for way, why in report["left_out"].items()]
    return "\n\n".join(tables)


def _bulk_table(report: dict[str, Any], name: str) -> str:
    placements = list(Placement)
    rows = [[f"{name}, proxy CPU seconds per GiB", *placements, "GiB/s, both", "of HAProxy, both"], RULE]
    found = report[name]
    for way, figures in found.items():
        each = figures["placements"]
        cpu = [each.get(placement, {}).get("cpu_s_per_gib") for placement in placements]
        compared = ratio(figures.get("cpu_s_per_gib"), found.get(HAPROXY.lower(), {}).get("cpu_s_per_gib"), digits=2)
        title = _FLOORS.get(way, way)
        rows.append([title, *(number(value, 2) for value in cpu), number(figures.get("gib_per_s"), 2), compared])
    return render(rows)


def _table(title: str, found: dict[str, dict[str, float | None]], digits: int) -> str:
    names = list(dict.fromkeys(name for figures in found.values() for name in figures))
    rows = [[title, *names], RULE]
    rows += [[way, *(number(figures.get(name), digits) for name in names)] for way, figures in found.items()]
    return render(rows)


def _latency_table(report: dict[str, Any]) -> str:
    """Plaintext is compared with plaintext, the others with a direct TLS connection."""
    rows = [["added p50 of a lone request, microseconds", *Placement], RULE]
    for way, kinds in report["added_p50_us"].items():
        rows += [
            [f"{way}, {kind}", *(number(found.get(placement), 0) for placement in Placement)]
            for kind, found in kinds.items()
        ]
    for kind, found in report["direct_p50_us"].items():
        rows.append([f"{DIRECT}, {kind} (not added)", *(number(found.get(placement), 0) for placement in Placement)])
    return render(rows)


def _share_table(report: dict[str, Any]) -> str:
    rows = [["fetch, TLS on both sides: share of CPU time", "most in"], RULE]
    for way, shares in report["cpu_shares"].items():
        most = [f"{name} {share:.0%}" for name, share in shares.items() if share >= 0.01]
        rows.append([way, ", ".join(most)])
    return render(rows)
