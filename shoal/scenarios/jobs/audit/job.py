"""`audit`: the tables `partitions`, `batches` (those with a problem) and `minutes`, and their page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from shoal.scenarios.jobs.audit.analysis import CLUSTERS, audited, packing
from shoal.scenarios.jobs.audit.report import (
    HARMLESS,
    MIRROR_COUNTS,
    NOT_PROVEN,
    AuditTables,
    audit_report,
    complaints,
    mirror_topics,
    total,
)
from shoal.scenarios.jobs.errors import JobError
from shoal.scenarios.jobs.folding import fold_files
from shoal.scenarios.jobs.output.finish import finish
from shoal.scenarios.jobs.output.tables import fault_facts, kept, listed, summed, written
from shoal.scenarios.jobs.source.reading import read_faults

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from pathlib import Path

    from shoal.scenarios.jobs.task import Task

__all__ = ["run"]

COMPLETE, INCOMPLETE = 0, 1
_LISTED = 10_000
MIRROR_TOPICS = pa.schema([("topic", pa.string()), *((name, pa.int64()) for name in MIRROR_COUNTS)])
_TIMELINE = {"minute": "minute", "source_records": "source", "target_records": "target"}


def run(task: Task) -> int:
    given = task.flags
    found = _found(task, _clusters(task, given), given)
    for line in complaints(found):
        print(line)
    finish(task, audit_report(found))
    return INCOMPLETE if any(total(found, key) for key in NOT_PROVEN) else COMPLETE


def _clusters(task: Task, given: argparse.Namespace) -> tuple[str, str]:
    """Names of source and target."""
    if given.source is not None and given.target is not None:
        return given.source, given.target
    seen = fold_files(task.spark, task.source, _all_topics(task.options), CLUSTERS).distinct().collect()
    read = {row["cluster"] for row in seen if row["direction"] == "fetched"} - {given.target}
    filled = {row["cluster"] for row in seen if row["direction"] == "produced"} - {given.source}
    source = given.source or _only("--source", read - filled or read)
    target = given.target or _only("--target", filled - {source} or filled)
    return source, target


def _only(flag: str, names: set[str]) -> str:
    if len(names) != 1:
        listed_names = ", ".join(sorted(names)) or "none"
        raise JobError(flag, f"name the cluster: the captures have several candidates ({listed_names})")
    return next(iter(names))


def _all_topics(options: Mapping[str, str]) -> Mapping[str, str]:
    """They are chosen by their names at the source, and a copy may have any name."""
    return {name: value for name, value in options.items() if name != "topics"}


def _found(task: Task, names: tuple[str, str], given: argparse.Namespace) -> AuditTables:
    topics = None if (text := task.options.get("topics")) is None else frozenset(map(str.strip, text.split(",")))
    packed = fold_files(task.spark, task.source, _all_topics(task.options), packing(names, given.prefix, topics))
    tables = audited(packed, given.tolerance)
    partitions = tables.partitions.toArrow().sort_by([(name, "ascending") for name in ("topic", "partition")])
    if not partitions.num_rows:
        source, target = (name or side for name, side in zip(names, ("the source", "the target"), strict=True))
        what = f"no topic was fetched from {source} and copied to {target}: nothing is compared (--prefix, --topics)"
        raise JobError("IN", what)
    written(partitions, task.out, "partitions")
    timed = kept(tables.minutes, task.out, "minutes")
    faulty = kept(tables.batches, task.out, "batches")
    only_read = sorted(tables.only_read.toArrow()["topic"].to_pylist())
    task.spark.catalog.clearCache()
    found = AuditTables(
        clusters=names,
        partitions=partitions.to_pylist(),
        batches=listed(faulty, F.col("state").isin(*HARMLESS), "topic", "partition", "base_offset"),
        minutes=listed(timed.where("short > 0 or over > 0"), "topic", "partition", "minute"),
        timeline=_timeline(task.out),
        only_read=only_read,
        faults=fault_facts(read_faults(task.spark, task.source)),
    )
    written(pa.Table.from_pylist(mirror_topics(found), MIRROR_TOPICS), task.out, "mirror_topics")
    return found


def _timeline(out: Path) -> list[dict[str, Any]]:
    found = summed(out, "minutes", ["minute"], ["source_records", "target_records"]).sort_by("minute")
    rows: list[dict[str, Any]] = found.rename_columns(_TIMELINE).slice(0, _LISTED).to_pylist()
    return rows
