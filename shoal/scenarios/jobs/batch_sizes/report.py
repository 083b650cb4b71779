"""The page of `batch-sizes`: charts, tables and sentences from counted bins. Needs no Spark."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from shoal.scenarios.jobs.columns.bins import PER_DOUBLING, middle, share_bin
from shoal.scenarios.report.charts import bars, bytes_label, count_label, histogram, microseconds_label
from shoal.scenarios.report.report import Chart, Column, Fact, Listed, Report, Section, Table, client_label

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future

    from matplotlib.ticker import FuncFormatter

__all__ = ["BatchSizesTables", "batch_sizes_report"]

_TOP: Final = 7
_SHOWN: Final = 25
_FIRST: Final = 10_000  # rows of `clients` in report.json
_SMALL: Final = 16_384
_OTHERS: Final = "all others"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSizesTables:
    """`bins`: by direction, client, bin of bytes, bin of records. `gaps`, `clients`, `sizes`: the tables. `topics`: top
    list."""

    bins: Sequence[Mapping[str, Any]]
    gaps: Sequence[Mapping[str, Any]]
    clients: Listed
    sizes: Listed | Future[Listed]
    topics: Sequence[Mapping[str, Any]]
    faults: Sequence[Fact]


def batch_sizes_report(found: BatchSizesTables) -> Report:
    produced = [row for row in found.bins if row["direction"] == "produced"]
    fetched = [row for row in found.bins if row["direction"] == "fetched"]
    sections = [*_sizes("produced", produced), *_costs(found), *_sizes("fetched", fetched)]
    return Report(
        job="batch-sizes",
        title="Batch sizes: how large, which clients send small ones, and their cost",
        facts=[*_facts(produced, fetched, found.clients.rows), *found.faults],
        sections=sections,
        tables={
            "clients": Listed(total=found.clients.total, rows=found.clients.rows[:_FIRST]),
            "sizes": found.sizes,
        },
        summary={"batch_sizes": _summary(produced, found.clients.rows)},
    )


def _facts(
    produced: Sequence[Mapping[str, Any]], fetched: Sequence[Mapping[str, Any]], clients: Sequence[Mapping[str, Any]]
) -> list[Fact]:
    facts = [Fact.count("Batches produced", _sum(produced, "batches"))]
    if fetched:
        facts.append(Fact.count("Batches fetched", _sum(fetched, "batches")))
    if produced:
        summary = _summary(produced, clients)
        facts += [
            Fact(name="Bytes produced", value=bytes_label(summary["bytes"])),
            Fact(name="Half of the batches are below", value=bytes_label(summary["bytes_p50"])),
            Fact(name="Records per batch", value=f"{summary['records_per_batch']:,.1f}"),
            Fact(name="Batches below 16 KiB", value=f"{summary['small_share']:.1%}"),
            Fact(name="Requests per MB", value=f"{summary['requests_per_mb']:,.1f}"),
        ]
    return facts


def _summary(produced: Sequence[Mapping[str, Any]], clients: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All producers together."""
    batches, size = _sum(produced, "batches"), _sum(produced, "bytes")
    mine = [row for row in clients if row["direction"] == "produced"]
    sizes = _counted(produced, "bytes_bin", "batches")
    return {
        "batches": batches,
        "records": _sum(produced, "records"),
        "bytes": size,
        "records_per_batch": _sum(produced, "records") / batches if batches else None,
        **{f"bytes_p{round(100 * share)}": _percentile(sizes, share) for share in (0.5, 0.9, 0.99)},
        "small_share": _sum(mine, "small") / batches if batches else None,
        "requests": _sum(mine, "requests"),
        "requests_per_mb": _sum(mine, "requests") / (size / 1e6) if size else None,
    }


def _percentile(counts: Mapping[int, int], share: float) -> float | None:
    number = share_bin(counts.items(), share)
    return None if number is None else middle(number)


def _sizes(direction: str, rows: Sequence[Mapping[str, Any]]) -> list[Section]:
    if not rows:
        return []
    counts, clients = _counted(rows, "bytes_bin", "batches"), _largest(rows, "batches")
    marks = {f"p{round(100 * share)}": _percentile(counts, share) or 0.0 for share in (0.5, 0.9)}
    marks["16 KiB"] = float(_SMALL)
    size, records = "Size of a batch", "Records of a batch"
    return [
        Section(
            heading=f"Sizes of the batches {direction}",
            says="Number of batches by size and client, compressed as on the wire. 16 KiB is the default batch.size of "
            "a producer; p50 and p90: half and nine tenths of the batches are smaller.",
            content=[_histogram(f"{direction}-sizes", rows, "bytes_bin", "batches", size, bytes_label, clients, marks)],
        ),
        Section(
            heading=f"Where the bytes {direction} are",
            says="The same batches by their bytes: a client can have most of the batches and few of the bytes.",
            content=[_histogram(f"{direction}-bytes", rows, "bytes_bin", "bytes", size, bytes_label, clients)],
        ),
        Section(
            heading=f"Records in the batches {direction}",
            says="Number of batches by record count. Compression works within a batch: a batch of one record gains "
            "little.",
            content=[_histogram(f"{direction}-records", rows, "records_bin", "batches", records, count_label, clients)],
        ),
    ]


def _costs(found: BatchSizesTables) -> list[Section]:
    clients = [row for row in found.clients.rows if row["direction"] == "produced"]
    if not clients:
        return []
    busiest = sorted(clients, key=lambda row: -row["requests"])[:_SHOWN]
    return [
        _dearest(clients),
        Section(
            heading="Clients with the most requests",
            says="Small: batches below 16 KiB. Full batches: as many would carry the same bytes at 16 KiB each. Gap: "
            "half of the requests follow the previous one on their connection sooner than this.",
            content=[Table(columns=_CLIENT_COLUMNS, rows=[_with_gap(row) for row in busiest])],
        ),
        _gaps(found),
        Section(
            heading="Topics with the smallest batches",
            says="By mean size. Ratio: compressed to raw size, where the codec states the raw size (lz4 does not).",
            content=[Table(columns=_TOPIC_COLUMNS, rows=found.topics)],
        ),
    ]


def _dearest(clients: Sequence[Mapping[str, Any]]) -> Section:
    cost = {client_label(row["client"]): row["requests_per_mb"] for row in clients[:12]}
    chart = bars(cost, label="Produce requests per MB", form=count_label, log=True)
    return Section(
        heading="Cost of a megabyte",
        says="Produce requests for each MB (a million bytes) that a client sends, the most expensive clients first. At "
        "one full batch of 16 KiB per request it would be 61; a request costs the broker about the same, however small "
        "it is.",
        content=[Chart(name="requests-per-mb", figure=chart)],
    )


def _gaps(found: BatchSizesTables) -> Section:
    produced = [row for row in found.bins if row["direction"] == "produced"]
    gaps = [row for row in found.gaps if row["direction"] == "produced" and row["gap_bin"] is not None]
    clients, label = _largest(produced, "batches"), "Time since the previous request"
    return Section(
        heading="Time between two requests of a connection",
        says="A linger that is shorter than most of these gaps joins little on one connection; the gaps between the "
        "requests of all connections to a broker are much shorter.",
        content=[_histogram("gaps", gaps, "gap_bin", "requests", label, microseconds_label, clients)],
    )


def _with_gap(row: Mapping[str, Any]) -> dict[str, Any]:
    gap = row["gap_p50_us"]
    return {**row, "gap": "-" if gap is None else microseconds_label(gap), "small_share": row["small"] / row["batches"]}


_CLIENT_COLUMNS: Final = (
    Column(key="client", heading="Client"),
    Column(key="requests", heading="Requests", form=",d"),
    Column(key="requests_per_mb", heading="Requests per MB", form=",.1f"),
    Column(key="batches", heading="Batches", form=",d"),
    Column(key="small_share", heading="Small", form=".1%"),
    Column(key="full_batches", heading="Full batches", form=",d"),
    Column(key="bytes_per_request", heading="Bytes per request", form=",.0f"),
    Column(key="gap", heading="Gap", form=">s"),
)
_TOPIC_COLUMNS: Final = (
    Column(key="topic", heading="Topic"),
    Column(key="client", heading="Client"),
    Column(key="codec", heading="Codec"),
    Column(key="batches", heading="Batches", form=",d"),
    Column(key="bytes_per_batch", heading="Bytes per batch", form=",.0f"),
    Column(key="records_per_batch", heading="Records per batch", form=",.1f"),
    Column(key="ratio", heading="Ratio", form=".2f"),
)


def _histogram(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    number: str,
    counted: str,
    label: str,
    form: FuncFormatter,
    clients: Sequence[str],
    marks: Mapping[str, float] | None = None,
) -> Chart:
    """By client: `clients` have their own colours, the same in all charts of a direction."""
    series: dict[str, Counter[int]] = {client: Counter() for client in clients}
    if not {row["client"] for row in rows} <= series.keys():
        series[_OTHERS] = Counter()
    for row in rows:
        series[row["client"] if row["client"] in series else _OTHERS][row[number]] += row[counted]
    figure = histogram(
        {client_label(client): counts for client, counts in series.items()},
        per_doubling=PER_DOUBLING,
        label=label,
        counted=counted.capitalize(),
        form=form,
        base=2 if form is bytes_label else 10,
        marks=marks,
    )
    return Chart(name=name, figure=figure)


def _largest(rows: Sequence[Mapping[str, Any]], counted: str) -> list[str]:
    totals = Counter[str]()
    for row in rows:
        totals[row["client"]] += row[counted]
    return [client for client, _ in totals.most_common(_TOP)]


def _counted(rows: Sequence[Mapping[str, Any]], number: str, counted: str) -> dict[int, int]:
    counts: dict[int, int] = defaultdict(int)
    for row in rows:
        counts[row[number]] += row[counted]
    return dict(counts)


def _sum(rows: Sequence[Mapping[str, Any]], key: str) -> int:
    return sum(row[key] for row in rows)
