"""`audit`: the tables `partitions`, `batches` (those with a problem) and `minutes`, and their page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql import functions as F

from shoal.scenarios.jobs.audit.analysis import (
    COLUMNS,
    attempts,
    in_scope,
    judged,
    matched,
    minutes,
    partitions,
    source_batches,
)
from shoal.scenarios.jobs.audit.report import AuditTables, audit_report, complaints, total
from shoal.scenarios.jobs.errors import JobError
from shoal.scenarios.jobs.output.finish import finish
from shoal.scenarios.jobs.output.tables import fault_facts, kept, listed
from shoal.scenarios.jobs.source.reading import read_faults, read_index

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import DataFrame

    from shoal.scenarios.jobs.task import Task

__all__ = ["Audited", "audited", "run"]

COMPLETE, INCOMPLETE = 0, 1
_ALL_PARTITIONS = 1_000_000  # the verdict is summed over them


def run(task: Task) -> int:
    given = task.flags
    rows = read_index(task.spark, task.source, {**task.options, "columns": ",".join(COLUMNS)})
    names = _clusters(rows, given)
    found = _found(task, rows, names, given)
    for line in complaints(found):
        print(line)
    finish(task, audit_report(found))
    return INCOMPLETE if total(found, "missing_records") else COMPLETE


def _clusters(rows: DataFrame, given: argparse.Namespace) -> tuple[str, str]:
    """Names of source and target."""
    if given.source is not None and given.target is not None:
        return given.source, given.target
    seen = rows.where("kind = 'batch'").select("cluster", "direction").distinct().collect()
    read = {row["cluster"] for row in seen if row["direction"] == "fetched"} - {given.target}
    written = {row["cluster"] for row in seen if row["direction"] == "produced"} - {given.source}
    source = given.source or _only("--source", read - written or read)
    target = given.target or _only("--target", written - {source} or written)
    return source, target


def _only(flag: str, names: set[str]) -> str:
    if len(names) != 1:
        listed_names = ", ".join(sorted(names)) or "none"
        raise JobError(flag, f"name the cluster: the captures have several candidates ({listed_names})")
    return next(iter(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    partitions: DataFrame
    batches: DataFrame
    minutes: DataFrame


def audited(rows: DataFrame, names: tuple[str, str], prefix: str = "", tolerance: int = 1) -> Audited:
    """All tables; each step is computed once. `names`: of the clusters, source and target."""
    seen, sent = _once(source_batches(rows, names[0])), _once(attempts(rows, names[1], prefix))
    source, attempted = map(_once, in_scope(seen, sent))
    exact = _once(judged(_once(matched(source, attempted)), tolerance))
    timed = _once(minutes(source, attempted, tolerance))
    return Audited(partitions=partitions(source, attempted, exact, timed), batches=exact, minutes=timed)


def _once(table: DataFrame) -> DataFrame:
    """Spark reads a Python data source again at each mention in a query, and these queries mention it often."""
    return table.persist(StorageLevel.MEMORY_AND_DISK)


def _found(task: Task, rows: DataFrame, names: tuple[str, str], given: argparse.Namespace) -> AuditTables:
    tables = audited(rows, names, given.prefix, given.tolerance)
    timed = kept(tables.minutes, task.out, "minutes")
    summary = kept(tables.partitions, task.out, "partitions")
    faulty = kept(tables.batches.where("state != 'copied'"), task.out, "batches")
    task.spark.catalog.clearCache()
    return AuditTables(
        clusters=names,
        partitions=listed(summary, "topic", "partition", limit=_ALL_PARTITIONS).rows,
        batches=listed(faulty, F.col("state") == "pending", "topic", "partition", "base_offset"),
        minutes=listed(timed.where("short > 0 or over > 0"), "topic", "partition", "minute"),
        timeline=_timeline(timed),
        faults=fault_facts(read_faults(task.spark, task.source)),
    )


def _timeline(timed: DataFrame) -> list[dict[str, Any]]:
    summed = timed.groupBy("minute").agg(
        F.sum("source_records").alias("source"), F.sum("target_records").alias("target")
    )
    rows: list[dict[str, Any]] = summed.orderBy("minute").limit(10_000).toArrow().to_pylist()
    return rows
