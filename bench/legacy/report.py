"""The table of figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.scenarios.table import RULE, number, render

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["BOUND", "BROKER", "SHOAL", "as_tables"]

BROKER, SHOAL = "broker", "Shoal"
BOUND = "Shoal"  # Shoal with default settings
BOUND_MIB = 300  # for 500 slow consumers
Figures = dict[str, Any]


def as_tables(report: Figures) -> str:
    ways = report["ways"]
    fast = any("fast" in way for way in ways.values())
    return "\n\n".join((_slow(report["crowd"], ways), *([_fast(ways)] if fast else [])))


def _slow(crowd: Figures, ways: Figures) -> str:
    runs = {name: way["slow"] for name, way in ways.items() if "costs" in way.get("slow", {})}
    lines: dict[str, Callable[[Figures], str]] = {
        "Shoal, peak memory, MiB": lambda run: _cost(run, SHOAL, "peak_mib", 0),
        "Shoal, before, MiB": lambda run: _cost(run, SHOAL, "before_mib", 0),
        "Shoal, CPU s": lambda run: _cost(run, SHOAL, "cpu_s", 1),
        "broker, peak memory, MiB": lambda run: _cost(run, BROKER, "peak_mib", 0),
        "broker, before, MiB": lambda run: _cost(run, BROKER, "before_mib", 0),
        "broker, live heap at most, MiB": lambda run: _cost(run, BROKER, "live_heap_mib", 0),
        "broker, CPU s": lambda run: _cost(run, BROKER, "cpu_s", 1),
        "TCP buffers of this machine, MiB": lambda run: number(run["tcp_mib"], 0),
        "a consumer's bytes/s, slowest": lambda run: _rate(run, "slowest"),
        "   median": lambda run: _rate(run, "median"),
        "   fastest": lambda run: _rate(run, "fastest"),
        "first records after s, median": lambda run: number(run["first_records_s"]["median"]),
        "   the last consumer": lambda run: number(run["first_records_s"]["last"]),
        "longest silence, s": lambda run: number(run["longest_silence_s"]),
        "records whole in time": lambda run: number(run["messages_in_time"], 0),
        "consumers without any": lambda run: number(run["consumers_without_a_message"], 0),
        f"of {crowd['finish']}, have then read two answers": lambda run: number(run["finished"], 0),
        "   padding in these, KB each": lambda run: number(
            run["padding_bytes"] / max(run["answers_read_whole"], 1) / 1000
        ),
        "largest message, bytes": lambda run: number(run["largest_entry"], 0),
    }
    heading = f"{crowd['consumers']} consumers, {crowd['bite']:,} bytes/s each, {crowd['seconds']:g} s"
    table = render(
        [[heading, *runs], RULE, *([name, *(cell(run) for run in runs.values())] for name, cell in lines.items())]
    )
    return "\n".join((table, *_ends(ways), *_verdict(runs)))


def _verdict(runs: Figures) -> Iterator[str]:
    if BOUND in runs:
        peak = runs[BOUND]["costs"][SHOAL]["peak_mib"]
        verdict = "stayed below" if peak < BOUND_MIB else "EXCEEDED"
        yield f"Shoal's memory {verdict} its bound of {BOUND_MIB} MiB."


def _rate(run: Figures, which: str) -> str:
    """Since its first records."""
    return number(run["bytes_per_s_since_first"][which], 0)


def _ends(ways: Figures) -> Iterator[str]:
    for name, way in ways.items():
        if ended := way.get("slow", {}).get("ended"):
            yield f"{name}: the broker ended after {ended['after_s']:.0f} s: {ended['last_words']}"


def _cost(run: Figures, process: str, what: str, digits: int) -> str:
    return number(run["costs"].get(process, {}).get(what), digits)


def _fast(ways: Figures) -> str:
    heading = [
        "one fast consumer",
        "MB/s",
        "records/s",
        "broker CPU s/GiB",
        "Shoal CPU s/GiB",
        "both",
        "broker peak MiB",
        "Shoal",
    ]
    rows = [heading, RULE]
    for name, way in ways.items():
        for codec, run in way.get("fast", {}).items():
            spent = run["cpu_s_per_gib"]
            rows.append(
                [
                    f"{name}: {codec}",
                    number(run["mb_per_s"]),
                    number(run["records_per_s"], 0),
                    number(spent.get(BROKER), 2),
                    number(spent.get(SHOAL), 2),
                    number(sum(spent.values()), 2),
                    _cost(run, BROKER, "peak_mib", 0),
                    _cost(run, SHOAL, "peak_mib", 0),
                ]
            )
    return render(rows)
