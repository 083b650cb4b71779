"""The page of `cascade`: traffic by client and time, abnormal clients, agreement of the levels. Needs no Spark."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from shoal.scenarios.report.charts import count_label, lines
from shoal.scenarios.report.report import Chart, Column, Fact, Listed, Report, Section, Table, client_label

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shoal.scenarios.jobs.cascade.levels import CascadeSettings

__all__ = ["CascadeTables", "cascade_report"]

_TOP: Final = 7
_SHOWN: Final = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeTables:
    """`levels`: sums of the flows by level. `counters`: number by level.

    `timeline`: records by window of the first level and client. `wrong`: flow -> level -> counters that differ from a
    plain count; None: not compared.
    """

    levels: Sequence[Mapping[str, Any]]
    counters: Mapping[int, int]
    suspects: Listed
    timeline: Sequence[Mapping[str, Any]]
    wrong: Mapping[str, Mapping[int, int]] | None
    faults: Sequence[Fact]


def cascade_report(found: CascadeTables, settings: CascadeSettings) -> Report:
    suspects = Listed(total=found.suspects.total, rows=[_suspect(row) for row in found.suspects.rows])
    return Report(
        job="cascade",
        title="Cascade: counters by client and topic, and clients that behave abnormally",
        facts=[*_facts(found, settings), *found.faults],
        sections=_sections(found, suspects, settings),
        tables={"suspects": suspects},
        summary={"cascade": _summary(found, suspects)},
    )


def _summary(found: CascadeTables, suspects: Listed) -> dict[str, Any]:
    equal = None if found.wrong is None else not any(found.wrong.values())
    return {"levels_equal": equal, "levels": list(map(dict, found.levels)), "abnormal": list(suspects.rows)}


def _suspect(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "size": _size(row["level"]), "time": _time(row["window"]).strftime("%Y-%m-%d %H:%M:%S")}


def _facts(found: CascadeTables, settings: CascadeSettings) -> list[Fact]:
    first: Mapping[str, Any] = found.levels[0] if found.levels else {}
    facts = [
        Fact.count("Records counted", first.get("records", 0)),
        Fact(name="Counters", value=f"{sum(found.counters.values()):,} in {len(found.counters)} levels"),
        Fact(name="Late", value=f"{first.get('late', 0):,} of {first.get('told', 0):,} changes"),  # prose: ok
    ]
    if first.get("orphans"):
        facts.append(Fact.count("Orphans, of forgotten windows", first["orphans"], bad=True))
    if first.get("restamped"):
        facts.append(Fact.count("Batches with an impossible time", first["restamped"], bad=True))
    facts.append(Fact.count("Abnormal counters", found.suspects.total, bad=True))
    if found.wrong is not None:
        bad = any(found.wrong.values())
        equal = "all levels equal" if settings.not_held == settings.levels else "all levels without a hold equal"
        facts.append(Fact(name="Against a plain count", value="NOT EQUAL" if bad else equal, bad=bad))
    return facts


def _sections(found: CascadeTables, suspects: Listed, settings: CascadeSettings) -> list[Section]:
    return [
        Section(
            heading="Records by client",
            says=f"Produced in each window of {_size(settings.levels[0])}, by the batches' own times, on a logarithmic "
            "scale: the clients with most of them, and abnormal ones.",
            content=[Chart(name="records", figure=_records(found, settings.levels[0]))],
        ),
        Section(
            heading="Abnormal clients",
            says="Counters that are many times the value of their own previous windows (their median: past), and have "
            "grown more than the other counters of the same window. The fastest grown first, each at its largest.",
            content=[Table(columns=_SUSPECTS, rows=suspects.rows[:_SHOWN])],
        ),
        Section(
            heading="Levels",
            says="Each level counts only what the level below has emitted (its diffs), so the sums of all must be "
            "equal. Wrong: counters that differ from a plain count of the captures, in the diffs and in the latest "
            "values (there without orphans).",
            content=[Table(columns=_LEVELS, rows=_levels(found))],
        ),
    ]


def _records(found: CascadeTables, seconds: int) -> Any:
    totals: Counter[str] = Counter()
    by_client: dict[str, dict[int, int]] = defaultdict(dict)
    for row in found.timeline:
        totals[row["client"]] += row["records"]
        by_client[row["client"]][row["window"]] = row["records"]
    windows = sorted({row["window"] for row in found.timeline})
    whole = range(windows[0], windows[-1] + seconds, seconds) if windows else range(0)
    places = whole if len(whole) <= 5000 else windows
    times = list(map(_time, places))
    suspects = [row["client"] for row in found.suspects.rows]
    shown = list(dict.fromkeys([*suspects[:2], *(client for client, _ in totals.most_common(_TOP))]))[:_TOP]
    series = {
        client_label(client): (times, [by_client[client].get(window) or math.nan for window in places])
        for client in shown
    }
    return lines(series, label="Time (UTC)", counted="Records", form=count_label, step=True, log=True)


def _levels(found: CascadeTables) -> list[dict[str, Any]]:
    wrong = found.wrong or {}
    return [
        {
            **row,
            "size": _size(row["level"]),
            "counters": found.counters.get(row["level"], 0),
            **{f"wrong_{name}": wrong[name].get(row["level"], 0) if name in wrong else None for name in _FLOWS},
        }
        for row in found.levels
    ]


_FLOWS: Final = ("diffs", "changelog")
_LEVELS: Final = (
    Column(key="size", heading="Window"),
    Column(key="counters", heading="Counters", form=",d"),
    Column(key="told", heading="Changes emitted", form=",d"),
    Column(key="records", heading="Records", form=",d"),
    Column(key="late", heading="Late", form=",d"),
    Column(key="orphans", heading="Orphans", form=",d"),
    Column(key="wrong_diffs", heading="Wrong in diffs", form=",d"),
    Column(key="wrong_changelog", heading="Wrong in values", form=",d"),
)
_SUSPECTS: Final = (
    Column(key="client", heading="Client"),
    Column(key="topic", heading="Topic"),
    Column(key="size", heading="Window"),
    Column(key="time", heading="From (UTC)"),
    Column(key="records", heading="Records", form=",d"),
    Column(key="past", heading="Past", form=",.0f"),
    Column(key="growth", heading="Times its past", form=",.1f"),
    Column(key="peer_growth", heading="Peers, times theirs", form=",.1f"),
)


def _size(seconds: int) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
