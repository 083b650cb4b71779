"""`report.html` of the demo: the figures of the table, and speed, CPU and memory over time as charts."""

from __future__ import annotations

import os
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from matplotlib.ticker import FuncFormatter

from shoal.scenarios.demo.report import MIRROR, PROXY, ROLES, cpu_of, peak_of
from shoal.scenarios.demo.table import as_range, times
from shoal.scenarios.report.charts import count_label, lines
from shoal.scenarios.report.page import page
from shoal.scenarios.report.report import Chart, Column, Fact, Report, Section, Table
from shoal.scenarios.table import number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from matplotlib.figure import Figure

    from shoal.scenarios.demo.measure import Sample
    from shoal.scenarios.demo.report import DemoRun, FigureOf
    from shoal.scenarios.demo.report import Report as DemoReport
    from shoal.scenarios.spread import Spread

__all__ = ["demo_page"]

SMOOTHED_S = 1.0  # CPU is counted in hundredths of a second: a shorter interval shows the counting
_NAMES = {MIRROR: "MirrorMaker 2", PROXY: "Shoal"}
_plain = FuncFormatter(lambda value, _=None: f"{value:g}")
_mib = FuncFormatter(lambda value, _=None: f"{value:,.0f} MiB")


def demo_page(report: DemoReport, title: str, notes: Sequence[str]) -> str:
    """HTML. `notes`: how it was measured."""
    runs = report.typical()
    speed, cpu = (times(report.times_less(attrgetter(name))[0]).rstrip("x") for name in ("wall_s", "mirroring_cpu_s"))
    says = f"{speed} times less time and {cpu} times less CPU of mirror and proxy."
    facts = [
        Fact(name="records", value=f"{report.source.records:,}"),
        Fact(name="size, MB", value=f"{report.source.size / 1e6:,.1f}"),
        Fact(name="Kafka", value=report.kafka),
        Fact(name="cores", value=str(os.cpu_count())),
        Fact(
            name="every record equal",
            value="NO" if report.differences() else "yes",
            bad=bool(report.differences()),
        ),
        Fact.count("envelopes left", report.envelopes_left, bad=True),
    ]
    figures = Section(heading="Figures", says=says, content=[_figures(report)])
    sections = [
        figures,
        *_over_time(runs, rounds=len(report.rounds)),
        Section(heading="How", says=" ".join(notes), content=[]),
    ]
    return page(Report(job="demo", title=title, facts=facts, sections=sections, tables={}))


def _figures(report: DemoReport) -> Table:
    headings = [*(run.column for run in report.typical()), *(ratio.heading for ratio in report.ratios)]
    columns = [Column(key="", heading=""), *(Column(key=name, heading=name, form="") for name in headings)]
    rows = [
        dict(zip(("", *headings), (label, *_cells(report, figure)), strict=True))
        for label, figure in _measured(counts_requests=report.counts_requests)
    ]
    return Table(columns=columns, rows=rows)


def _cells(report: DemoReport, figure: FigureOf) -> Iterator[str]:
    for shown, spreads in ((_median, report.figures(figure)), (times, report.times_less(figure))):
        for found in spreads:
            yield f"{shown(found)} ({as_range(found)})" if found and len(report.rounds) > 1 else shown(found)


def _median(found: Spread | None) -> str:
    return number(found and found.median)


def _measured(*, counts_requests: bool) -> Iterator[tuple[str, FigureOf]]:
    yield "wall time, s", attrgetter("wall_s")
    yield "CPU of mirror and proxy, s", attrgetter("mirroring_cpu_s")
    for role in ROLES:
        yield f"CPU of {role.replace('_', ' ')}, s", cpu_of(role)
    for role in ROLES:
        yield f"peak memory of {role.replace('_', ' ')}, MiB", peak_of(role)
    if counts_requests:
        yield "Produce requests", attrgetter("requests")


def _over_time(runs: Sequence[DemoRun], *, rounds: int) -> Iterator[Section]:
    x = "seconds since the first record"
    says = "Each run in the round where it took its median time." if rounds > 1 else ""
    records = {run.column: _curve(run.samples, lambda sample: sample.records) for run in runs}
    yield _section("Records on the target", says, lines(records, label=x, counted="records", form=count_label))
    cpu = {name: _cores(samples, role) for name, role, samples in _series(runs)}
    says = "Averages over a second. A core that is busy is 1."
    yield _section("CPU of mirror and proxy", says, lines(cpu, label=x, counted="cores", form=_plain))
    mib = {name: _curve(samples, partial(_resident, role)) for name, role, samples in _series(runs)}
    yield _section("Resident memory of mirror and proxy", "", lines(mib, label=x, counted="", form=_mib))


def _section(heading: str, says: str, figure: Figure) -> Section:
    return Section(heading=heading, says=says, content=[Chart(name=heading, figure=figure)])


def _series(runs: Sequence[DemoRun]) -> Iterator[tuple[str, str, Sequence[Sample]]]:
    """Name of the line, role, samples."""
    for run in runs:
        for role, name in _NAMES.items():
            if role in run.cpu_s:
                yield f"{run.column}: {name}", role, run.samples


def _resident(role: str, sample: Sample) -> float:
    return sample.mib[role]


def _curve(samples: Sequence[Sample], value: Callable[[Sample], float]) -> tuple[list[float], list[float]]:
    return [sample.at_s for sample in samples], [value(sample) for sample in samples]


def _cores(samples: Sequence[Sample], role: str) -> tuple[list[float], list[float]]:
    """Cores in use: the mean of each second, in its middle."""
    at, cores, start = [], [], samples[0]
    for sample in samples:
        seconds = sample.at_s - start.at_s
        if seconds >= SMOOTHED_S:
            at.append(start.at_s + seconds / 2)
            cores.append((sample.cpu_s[role] - start.cpu_s[role]) / seconds)
            start = sample
    return at, cores
