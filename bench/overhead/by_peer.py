"""The figures of one run by peer: what each path to the broker costs, all in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from bench.proxies.names import DIRECT, HAPROXY, PROXIES, SHOAL
from shoal.scenarios.table import RULE, number, ratio, render

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ABSENT", "by_peer", "key_of", "peer_table"]

ABSENT = "absent"
_BULK = ("fetch", "produce")
_SMALL = {"produce of a tiny batch": "tiny produce", "Heartbeat": "Heartbeat"}
_LONE = ("Fetch", "Produce")


def key_of(way: str) -> str:
    return way.lower().replace("-", "_")


def by_peer(
    report: Mapping[str, Any], idle_mib: Mapping[str, Mapping[int, float]], absent: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """What was not measured is None. A proxy that could not be started has only the reason, as ABSENT."""
    ways = (DIRECT, *PROXIES)
    return {key_of(way): {ABSENT: absent[way]} if way in absent else _peer(report, way, idle_mib) for way in ways}


def _peer(report: Mapping[str, Any], way: str, idle_mib: Mapping[str, Mapping[int, float]]) -> dict[str, Any]:
    forwarding, lone = report["forwarding"], report["latency_us"]

    def found(part: Mapping[str, Any], name: str, figure: str) -> Any:
        return part.get(name, {}).get(way, {}).get(figure)

    made = report["connections"].get(way, {})
    return {
        "cpu_s_per_gib": {name: found(forwarding, name, "cpu_s_per_gib") for name in _BULK},
        "cpu_us_per_request": {key: found(forwarding, name, "cpu_us_per_request") for name, key in _SMALL.items()},
        "added_p50_us": {name: found(lone, name, "added_p50") for name in _LONE},
        "added_p99_us": {name: found(lone, name, "added_p99") for name in _LONE},
        "idle_mib": {str(count): round(mib, 1) for count, mib in idle_mib.get(way, {}).items()},
        "connections_per_cpu_s": made.get("per_cpu_s"),
        "connections_per_s": made.get("per_s"),
    }


class _Row(NamedTuple):
    title: str
    path: tuple[str, ...]
    digits: int = 0


def peer_table(peers: Mapping[str, Mapping[str, Any]]) -> str:
    """The result of `by_peer`; under the table, the proxies that are absent."""
    shown = [way for way in PROXIES if ABSENT not in peers[key_of(way)]]
    rows = [["per proxy", *shown, "Shoal/HAProxy"], RULE]
    for title, path, digits in _rows(peers):
        values = {way: _at(peers[key_of(way)], path) for way in PROXIES}
        if any(value is not None for value in values.values()):
            compared = ratio(_positive(values[SHOAL]), _positive(values[HAPROXY]), digits=2)
            rows.append([title, *(number(values[way], digits) for way in shown), compared])
    absent = [f"absent: {key}: {figures[ABSENT]}" for key, figures in peers.items() if ABSENT in figures]
    return "\n".join([render(rows), *absent])


def _rows(peers: Mapping[str, Mapping[str, Any]]) -> list[_Row]:
    counts = sorted({int(count) for figures in peers.values() for count in figures.get("idle_mib", {})})
    return [
        *(_Row(f"{name}, CPU seconds per GiB", ("cpu_s_per_gib", name), 2) for name in _BULK),
        *(_Row(f"a {name}, CPU microseconds", ("cpu_us_per_request", name), 1) for name in _SMALL.values()),
        *(
            _Row(f"a lone {name} adds {what}, microseconds", (f"added_{what}_us", name))
            for name in _LONE
            for what in ("p50", "p99")
        ),
        *(_Row(f"idle connections: {count:,}, peak MiB", ("idle_mib", str(count)), 1) for count in counts),
        _Row("new connections per CPU second", ("connections_per_cpu_s",)),
        _Row("new connections per second", ("connections_per_s",)),
    ]


def _positive(value: float | None) -> float | None:
    """Added latency may be negative, which has no ratio."""
    return value if value is not None and value > 0 else None


def _at(figures: Mapping[str, Any], path: tuple[str, ...]) -> float | None:
    value: Any = figures
    for name in path:
        value = value.get(name) if value else None
    return None if value is None else float(value)
