"""`cascade`: OUT/flows and OUT/abnormal as they grow; the tables `counters` (latest values) and `suspects`, and their
page.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from shoal.scenarios.capture.files import capture_files
from shoal.scenarios.jobs.cascade.abnormal import worst
from shoal.scenarios.jobs.cascade.analysis import changelog, counts, diffs, mismatches
from shoal.scenarios.jobs.cascade.cells import FORMAT
from shoal.scenarios.jobs.cascade.combine import READS
from shoal.scenarios.jobs.cascade.levels import CascadeSettings
from shoal.scenarios.jobs.cascade.report import CascadeTables, cascade_report
from shoal.scenarios.jobs.cascade.rule import Rule
from shoal.scenarios.jobs.cascade.source import stream_increments
from shoal.scenarios.jobs.cascade.streaming import CascadeOutput, read_abnormal, read_flows, start
from shoal.scenarios.jobs.cascade.totals import counters_by_level, records_by_client, sums_by_level
from shoal.scenarios.jobs.errors import JobError
from shoal.scenarios.jobs.output.finish import finish
from shoal.scenarios.jobs.output.tables import fault_facts, kept, listed
from shoal.scenarios.jobs.source.reading import read_faults, read_index

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import DataFrame

    from shoal.scenarios.jobs.task import Task

__all__ = ["run"]

_TURN_BYTES = 512 * 1024 * 1024
"""Bytes of captures in one turn, 3 M rows: it limits the counters in memory. A turn costs seconds, however small."""
_COUNTED_WITH = "checkpoint-id"
"""File of OUT: the id that Spark gave to the checkpoint, which may be moved."""
_PARTITIONS = "spark.sql.shuffle.partitions"


def run(task: Task) -> int:
    given = task.flags
    checkpoint = given.checkpoint or str(task.out / "checkpoint")
    settings = _settings(given)
    if not any(True for _ in capture_files(Path(task.source))):
        raise JobError(task.source, "has no index files (*.kxb); the cascade follows them as they grow")
    task.spark.conf.set(_PARTITIONS, task.spark.sparkContext.defaultParallelism)  # 200 would be 200 stores in each turn
    options = {"maxBytesPerTrigger": str(_TURN_BYTES), **task.options}
    if "://" not in checkpoint:
        _same_settings(Path(checkpoint), settings, task.out)
    place = CascadeOutput(out=str(task.out), checkpoint=checkpoint, flush_seconds=given.flush)
    rule = Rule(floor=given.floor, times=given.times, peers=given.peers)
    query = start(stream_increments(task.spark, task.source, options, settings), place, settings, rule)
    (task.out / _COUNTED_WITH).write_text(query.id)
    query.awaitTermination()
    found = _found(task, settings, recount=given.recount)
    finish(task, cascade_report(found, settings))
    return 0


def _settings(given: argparse.Namespace) -> CascadeSettings:
    names = ("levels", "hold", "delay", "grace", "keep", "buckets")
    return CascadeSettings(**{name: getattr(given, name) for name in names})


def _same_settings(checkpoint: Path, settings: CascadeSettings, out: Path) -> None:
    """Levels, buckets and format are part of the state: with other values its counters would not be found. What is in
    OUT belongs to the state, too: a new one would count everything a second time."""
    file = checkpoint / "cascade.json"
    chosen = {"levels": list(settings.levels), "buckets": settings.buckets, "format": FORMAT}
    if file.exists() and (known := json.loads(file.read_text())) != chosen:
        raise JobError("--checkpoint", f"{checkpoint} was made with {known}; use another one for {chosen}")
    if _is_of_another(checkpoint, out):
        raise JobError("OUT", f"{out} has the counters of another checkpoint than {checkpoint}; use another directory")
    try:
        checkpoint.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(chosen))
    except OSError as error:
        raise JobError("--checkpoint", f"{checkpoint} cannot be written: {error.strerror}") from None


def _is_of_another(checkpoint: Path, out: Path) -> bool:
    """Whether OUT has counters, and not of this checkpoint."""
    if not (out / "flows").exists():
        return False
    try:
        known: str = json.loads((checkpoint / "metadata").read_text())["id"]  # Spark's own file
        return known != (out / _COUNTED_WITH).read_text()
    except FileNotFoundError:
        return not (checkpoint / "cascade.json").exists()


def _found(task: Task, settings: CascadeSettings, *, recount: bool) -> CascadeTables:
    flow = read_flows(task.spark, task.out)
    latest = kept(changelog(flow), task.out, "counters")
    suspects = kept(worst(read_abnormal(task.spark, task.out)), task.out, "suspects")
    return CascadeTables(
        levels=sums_by_level(task.out),
        counters=counters_by_level(task.out),
        suspects=listed(suspects, F.desc("growth")),
        timeline=records_by_client(task.out, settings.levels[0]),
        wrong=_wrong(task, settings, flow, latest) if recount and settings.not_held else None,
        faults=fault_facts(read_faults(task.spark, task.source)),
    )


def _wrong(task: Task, settings: CascadeSettings, flow: DataFrame, latest: DataFrame) -> dict[str, dict[int, int]]:
    """Level -> wrong counters, of both flows against a recount of the captures; without levels that may lag behind,
    because they are held."""
    rows = read_index(task.spark, task.source, {**task.options, "columns": ",".join(READS)})
    wanted = counts(rows, settings).persist()
    wrong = {"diffs": mismatches(diffs(flow), wanted), "changelog": mismatches(latest, wanted)}
    wanted.unpersist()
    return {
        name: {level: counters for level, counters in found.items() if level in settings.not_held}
        for name, found in wrong.items()
    }
