"""The page of `coalescing`: a comparison of policies. Needs no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from matplotlib.ticker import FuncFormatter

from shoal.scenarios.jobs.coalescing.latencies import by_bin, percentile_ms
from shoal.scenarios.jobs.coalescing.prediction import OPEN_LOOP
from shoal.scenarios.jobs.columns.bins import lower_edge
from shoal.scenarios.report.charts import bars, lines, microseconds_label
from shoal.scenarios.report.report import Chart, Column, Fact, Listed, Report, Section, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["coalescing_report"]

_CURVES: Final = 6
_percent: Final = FuncFormatter(lambda value, _=None: f"{value:.3g} %")


def coalescing_report(table: Listed, nodes: Listed, order: Sequence[str], faults: Sequence[Fact]) -> Report:
    """`table`: sums by policy, shown in this `order`; `nodes`: captured traffic, by broker."""
    known = {row["policy"]: row for row in table.rows}
    policies = [_policy(known[name]) for name in order if name in known]
    return Report(
        job="coalescing",
        title="Coalescing: what joining produce requests would have saved",
        facts=[*_facts(policies), *faults],
        sections=_sections(policies, nodes) if policies else [],
        tables={"policies": Listed(total=len(policies), rows=[_plain(row) for row in policies])},
        summary={"coalescing": [_plain(row) for row in policies], "bias": OPEN_LOOP},
    )


def _policy(row: Mapping[str, Any]) -> dict[str, Any]:
    joined = sum(row["added"])
    return {
        **row,
        "requests_saved": 1 - row["requests"] / row["captured"] if row["captured"] else 0.0,
        "bytes_per_request": row["bytes"] / row["requests"] if row["requests"] else 0.0,
        "batches_per_request": row["batches"] / row["requests"] if row["requests"] else 0.0,
        "added_ms_mean": row["added_ns"] / joined / 1e6 if joined else 0.0,
        "added_ms_p50": percentile_ms(row["added"], 0.5),
        "added_ms_p99": percentile_ms(row["added"], 0.99),
    }


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "added"}


def _facts(policies: Sequence[Mapping[str, Any]]) -> list[Fact]:
    if not policies:
        return [Fact(name="Produce requests", value="none", bad=True)]
    first, best = policies[0], max(policies, key=lambda row: row["requests_saved"])
    return [
        Fact.count("Produce requests captured", first["captured"]),
        Fact.count("Batches", first["batches"]),
        Fact(name="Not joined", value=f"{first['alone'] / max(first['captured'], 1):.1%} of the requests"),
        Fact(name="Most is saved by", value=f"{best['policy']}: {best['requests_saved']:.1%}"),
    ]


def _sections(policies: Sequence[Mapping[str, Any]], nodes: Listed) -> list[Section]:
    saved = {row["policy"]: 100 * row["requests_saved"] for row in policies}
    return [
        Section(
            heading="Requests saved",
            says="Share of all produce requests to brokers that would not have been sent. " + OPEN_LOOP,
            content=[Chart(name="requests-saved", figure=bars(saved, label="Requests saved, %", form=_percent))],
        ),
        _latency(policies),
        Section(
            heading="All policies",
            says="Each: per joined request. ms: added to a batch. group: what is joined. A coalescing listener joins "
            "by broker; connection and partition are what clients and leaders could do by themselves. sets: batches of "
            "one partition in a request, which plain brokers refuse. client-ids: only requests of one client id are "
            "joined.",
            content=[Table(columns=_COLUMNS, rows=policies)],
        ),
        Section(
            heading="Brokers",
            says="Captured traffic. A row without a number: requests on a bootstrap port, which are not joined.",
            content=[Table(columns=_NODES, rows=nodes.rows)],
        ),
    ]


def _latency(policies: Sequence[Mapping[str, Any]]) -> Section:
    different = {
        row["requests"]: row for row in reversed(policies) if sum(row["added"])
    }  # equal lines would hide each other
    widest = sorted(different.values(), key=lambda row: -row["requests_saved"])[:_CURVES]
    shown = [row for row in policies if row in widest]
    figure = lines(
        {row["policy"]: _curve(row["added"]) for row in shown},
        label="Added latency of a batch",
        counted="Batches that wait longer, %",
        form=_percent,
    )
    axes = figure.axes[0]
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(microseconds_label)
    return Section(
        heading="What the waiting adds",
        says="Share of the joined batches that would have been answered later by more than this: the policies that "
        "save most.",
        content=[Chart(name="added-latency", figure=figure)],
    )


def _curve(added: Sequence[int]) -> tuple[Sequence[float], Sequence[float]]:
    counts, total = by_bin(added), sum(added)
    x, y, left = [], [], total
    for number in range(max(counts) + 2):
        left = sum(count for bin_number, count in counts.items() if bin_number >= number)
        x.append(lower_edge(number))
        y.append(100 * left / total)
    return x, y


_COLUMNS: Final = (
    Column(key="policy", heading="Policy"),
    Column(key="requests", heading="Requests", form=",d"),
    Column(key="requests_saved", heading="Saved", form=".1%"),
    Column(key="batches_per_request", heading="Batches each", form=",.1f"),
    Column(key="bytes_per_request", heading="Bytes each", form=",.0f"),
    Column(key="added_ms_mean", heading="Mean ms", form=",.2f"),
    Column(key="added_ms_p50", heading="p50 ms", form=",.2f"),
    Column(key="added_ms_p99", heading="p99 ms", form=",.2f"),
)
_NODES: Final = (
    Column(key="cluster", heading="Cluster"),
    Column(key="node", heading="Broker"),
    Column(key="captured", heading="Requests", form=",d"),
    Column(key="alone", heading="Alone", form=",d"),
    Column(key="batches", heading="Batches", form=",d"),
    Column(key="bytes", heading="Bytes", form=",d"),
)
