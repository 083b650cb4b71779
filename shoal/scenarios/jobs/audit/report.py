"""The page of `audit`: is the copy complete, and if not, what is missing. Needs no Spark."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from shoal.scenarios.report.charts import lines
from shoal.scenarios.report.report import Chart, Column, Fact, Listed, Report, Section, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "HARMLESS",
    "MIRROR_COUNTS",
    "NOT_PROVEN",
    "AuditTables",
    "audit_report",
    "complaints",
    "mirror_topics",
    "total",
]

HARMLESS: Final = ("pending", "below_end")
"""States that are no finding."""
NOT_PROVEN: Final = ("missing_records", "wrong_records", "source_changed")
"""Counts of a copy that is not complete, or not known to be."""

_SHOWN: Final = 50
_NAMED: Final = 5
_YEAR_2000: Final = 946_684_800


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTables:
    """`partitions`, `batches`, `minutes`: the tables; the last two with problems only. `timeline`: of all topics.
    `only_read`: topics that were not copied, and are in no table."""

    clusters: tuple[str, str]
    partitions: Sequence[Mapping[str, Any]]
    batches: Listed
    minutes: Listed
    timeline: Sequence[Mapping[str, Any]]
    only_read: Sequence[str]
    faults: Sequence[Fact]


def total(found: AuditTables, key: str) -> int:
    """Sum over all partitions. If both methods find some, the larger sum."""
    also = {"missing_records": "short", "doubled_records": "over"}.get(key, key)
    return sum(max(row[key] or 0, row[also] or 0) for row in found.partitions)


def mirror_topics(found: AuditTables) -> list[dict[str, Any]]:
    """Records of each topic that keeps its offsets, by name."""
    topics: dict[str, dict[str, Any]] = {}
    for row in found.partitions:
        if row["same_offset_records"] is not None:
            sums = topics.setdefault(row["topic"], {"topic": row["topic"], "partitions": 0, **dict.fromkeys(_SUMS, 0)})
            sums["partitions"] += 1
            for name, key in _SUMS.items():
                sums[name] += row[key]
    return list(topics.values())


_SUMS: Final = {
    "same_offset": "same_offset_records",
    "wrong": "wrong_records",
    "missing": "missing_records",
    "below_end": "below_end_records",
    "batches_at_another_offset": "different_offset",
    "batches_doubled": "doubled",
    "batches_aborted": "aborted",
}
MIRROR_COUNTS: Final = ("partitions", *_SUMS)


def complaints(found: AuditTables) -> Iterator[str]:
    """A line for each missing or doubled batch or count; then a summary."""
    for row in found.batches.rows[:_SHOWN]:
        if row["state"] not in HARMLESS:
            place = f"{row['topic']}-{row['partition']} offsets {row['base_offset']}-{row['last_offset']}"
            at = f", at {row['target_offset']}" if row["state"] == "different_offset" else ""
            yield f"{row['state'].replace('_', ' ')}: {place} ({row['records']} records){at}"
    findings = found.batches.total - sum(total(found, state) for state in HARMLESS)
    if findings > _SHOWN:
        yield f"... and {findings - _SHOWN} more batches: see the table batches.parquet"
    if total(found, "source_changed"):
        yield _SOURCE_CHANGED
    for row in found.partitions:
        for key, words in (("short", "missing by count"), ("over", "too many by count")):
            if row[key]:
                yield f"{words}: {row['topic']}-{row['partition']}: {row[key]} records"
    for topic in mirror_topics(found):
        counts = f"{topic['same_offset']:,} records at the same offset, wrong: {topic['wrong']:,}"
        yield f"{topic['topic']}: {counts}, below the log's end: {topic['below_end']:,}"
    missing, doubled = total(found, "missing_records"), total(found, "doubled_records")
    copied, pending = sum(row["target_records"] for row in found.partitions), total(found, "pending")
    summary = f"{copied:,} records at the target; missing: {missing:,}, doubled: {doubled:,}"
    yield f"{summary}; batches in transit: {pending:,}"


_SOURCE_CHANGED: Final = (
    "source changed: another batch was fetched at the same offsets. The topic was created again or truncated, or the "
    "captures are of several clusters with one name. What was copied of which is unknown: audit each by itself, with "
    "--from and --to"
)


def _verdict(found: AuditTables) -> str:
    if total(found, "missing_records"):
        return "incomplete"
    if total(found, "wrong_records"):
        return "not the same"
    if total(found, "source_changed"):
        return "unknown: the source has changed"
    return "complete, of what is in the captures: some of them is lost" if found.faults else "complete"


def audit_report(found: AuditTables) -> Report:
    missing, doubled = total(found, "missing_records"), total(found, "doubled_records")
    records = sum(row["records"] for row in found.partitions)
    topics, verdict = mirror_topics(found), _verdict(found)
    facts = [
        Fact(name="The copy is", value=verdict, bad=verdict != "complete"),
        Fact.count("Records at the source", records),
        Fact.count("Missing records", missing, bad=True),
        Fact.count("Doubled records", doubled, bad=True),
        *(
            Fact.count(name, total(found, key), bad=bad)
            for name, key, bad in (*_COUNTED, *(_BY_OFFSET if topics else ()))
        ),
    ]
    return Report(
        job="audit",
        title=f"Audit: from {found.clusters[0] or 'the source'} to {found.clusters[1] or 'the target'}",
        facts=[*facts, *_only_read(found.only_read), *found.faults],
        sections=[
            *([_mirror_topics(topics)] if topics else []),
            *(_timeline(found), _batches(found), _minutes(found), _partitions(found)),
        ],
        tables={"batches": found.batches, "minutes": found.minutes},
        summary={
            "audit": {"missing": missing, "doubled": doubled}
            | {key: total(found, key) for _, key, _ in _COUNTED}
            | {"mirror_topics": topics}
        },
    )


def _only_read(topics: Sequence[str]) -> Iterator[Fact]:
    if topics:
        more = ", ..." if len(topics) > _NAMED else ""
        yield Fact(name="Topics not copied", value=f"{len(topics):,}: {', '.join(topics[:_NAMED])}{more}")


_COUNTED: Final = (
    ("Batches in transit", "pending", False),
    ("Reordered batches", "reordered", True),
    ("Batches of a source that has changed", "source_changed", True),
    ("Retries", "retries", False),
    ("Fetched again", "fetched_again", False),
)

_BY_OFFSET: Final = (
    ("Records at the same offset", "same_offset_records", False),
    ("Wrong records of mirror topics", "wrong_records", True),
    ("Records below the log's end", "below_end_records", False),
)


def _mirror_topics(topics: Sequence[Mapping[str, Any]]) -> Section:
    return Section(
        heading="Mirror topics",
        says="Records that the target's broker says it has at their source's offset, once. Wrong: batches at another "
        "offset, doubled, aborted at the source, or with another number of records. Below the log's end: the answer "
        "was lost when Shoal or a connection stopped, and the log ended behind them when Shoal asked again.",
        content=[Table(columns=_MIRROR_TOPICS, rows=topics[:_SHOWN])],
    )


def _timeline(found: AuditTables) -> Section:
    known = [row for row in found.timeline if row["minute"] and row["minute"].timestamp() >= _YEAR_2000]
    moments: list[object] = [row["minute"] for row in known]
    sums = {side: list(accumulate(float(row[side]) for row in known)) for side in ("source", "target")}
    ahead = [left - right for left, right in zip(sums["source"], sums["target"], strict=True)]
    chart = lines({"all topics": (moments, ahead)}, label="Minute of the records (UTC)", counted="Records", step=True)
    return Section(
        heading="Records by which the target is behind",
        says="Source minus target, summed over the minutes of the records' own timestamps. It returns to zero in a "
        "complete copy; a step that stays shows missing (upwards) or doubled (downwards) records since that minute.",
        content=[Chart(name="behind", figure=chart)],
    )


def _batches(found: AuditTables) -> Section:
    return Section(
        heading="Batches with a problem",
        says="Source offsets against those that each batch at the target claims to carry. Unconfirmed: sent, but no "
        f"answer was seen. Pending: the newest of its partition. {_SOURCE_CHANGED.capitalize()}. {_cut(found.batches)}",
        content=[Table(columns=_BATCHES, rows=found.batches.rows[:_SHOWN])],
    )


def _minutes(found: AuditTables) -> Section:
    return Section(
        heading="Minutes in which the sums differ",
        says="By more records than the largest batch has, which may straddle two minutes; at the source, by more than "
        "closely follow newer ones. This finds missing records where a mirror makes batches of its own. "
        f"{_cut(found.minutes)}",
        content=[Table(columns=_MINUTES, rows=found.minutes.rows[:_SHOWN])],
    )


def _partitions(found: AuditTables) -> Section:
    worst = sorted(found.partitions, key=lambda row: (-max(row["missing_records"], row["short"]), -row["records"]))
    says = (
        "The worst first, then the largest. Offsets not seen: between the first and the last fetched one, compacted or "
        "not captured."
    )
    return Section(heading="Partitions", says=says, content=[Table(columns=_PARTITIONS, rows=worst[:_SHOWN])])


def _cut(table: Listed) -> str:
    return f"The first {_SHOWN} of {table.total:,}." if table.total > _SHOWN else ""


_PLACE: Final = (Column(key="topic", heading="Topic"), Column(key="partition", heading="Partition", form="d"))
_MIRROR_TOPICS: Final = (
    Column(key="topic", heading="Topic"),
    Column(key="partitions", heading="Partitions", form="d"),
    Column(key="same_offset", heading="At the same offset", form=",d"),
    Column(key="wrong", heading="Wrong", form=",d"),
    Column(key="missing", heading="Missing", form=",d"),
    Column(key="below_end", heading="Below the log's end", form=",d"),
    Column(key="batches_at_another_offset", heading="Batches at another offset", form=",d"),
    Column(key="batches_doubled", heading="Doubled", form=",d"),
    Column(key="batches_aborted", heading="Aborted", form=",d"),
)
_BATCHES: Final = (
    Column(key="state", heading="State"),
    *_PLACE,
    Column(key="base_offset", heading="From offset", form=",d"),
    Column(key="last_offset", heading="To offset", form=",d"),
    Column(key="records", heading="Records", form=",d"),
    Column(key="copies", heading="Copies", form="d"),
    Column(key="target_offset", heading="At the target", form=",d"),
)
_MINUTES: Final = (
    *_PLACE,
    Column(key="minute", heading="Minute (UTC)", form="%Y-%m-%d %H:%M"),
    Column(key="source_records", heading="Source", form=",d"),
    Column(key="target_records", heading="Target", form=",d"),
    Column(key="difference", heading="Behind since the start", form=",d"),
)
_PARTITIONS: Final = (
    *_PLACE,
    Column(key="batches", heading="Batches", form=",d"),
    Column(key="records", heading="Records", form=",d"),
    Column(key="target_records", heading="At the target", form=",d"),
    Column(key="missing", heading="Missing batches", form=",d"),
    Column(key="doubled", heading="Doubled", form=",d"),
    Column(key="reordered", heading="Reordered", form=",d"),
    Column(key="retries", heading="Retries", form=",d"),
    Column(key="offsets_not_seen", heading="Offsets not seen", form=",d"),
)
