"""The cascade as a query that continues where it was stopped: a checkpoint, and a directory for each turn.

    OUT/flows/batch_id=N       both flows of a turn
    OUT/abnormal/batch_id=N    abnormal counters of the turn's changelog

An interrupted turn is repeated with the same input and the same state, and overwrites its output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from shoal.scenarios.jobs.cascade.abnormal import abnormal
from shoal.scenarios.jobs.cascade.analysis import flows
from shoal.scenarios.jobs.cascade.processor import FLOW
from shoal.scenarios.jobs.cascade.rule import Rule

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from shoal.scenarios.jobs.cascade.levels import CascadeSettings

__all__ = ["CascadeOutput", "read_abnormal", "read_flows", "start"]

_MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
_BY_RENAME: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""For local checkpoints: the default starts a process, `readlink`, for each file that it asks about, 50 in a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeOutput:
    """Paths, or URLs of an object store. `flush_seconds` None: process everything available, then end the query."""

    out: str
    checkpoint: str
    flush_seconds: float | None = None


def start(
    increments: DataFrame, place: CascadeOutput, settings: CascadeSettings, rule: Rule | None = None
) -> StreamingQuery:
    """`increments`: a stream of `source.py`, with the same settings."""
    chosen = rule or Rule()
    if "://" not in place.checkpoint:
        increments.sparkSession.conf.set(_MANAGER, _BY_RENAME)

    def turn(flow: DataFrame, number: int) -> None:
        path = _turn(place.out, "flows", number)
        flow.write.mode("overwrite").parquet(path)
        # not `flow`, whose state must advance only once
        written = flow.sparkSession.read.schema(flow.schema).parquet(path)
        abnormal(written, chosen).coalesce(1).write.mode("overwrite").parquet(_turn(place.out, "abnormal", number))

    trigger: dict[str, Any] = {"availableNow": True}
    if place.flush_seconds is not None:
        trigger = {"processingTime": f"{place.flush_seconds} seconds"}
    writer = flows(increments, settings).writeStream.outputMode("update").option("checkpointLocation", place.checkpoint)
    return writer.trigger(**trigger).foreachBatch(turn).queryName("cascade").start()


def _turn(out: str, what: str, number: int) -> str:
    return f"{out}/{what}/batch_id={number}"


def read_flows(spark: SparkSession, out: str | Path) -> DataFrame:
    return spark.read.schema(f"{FLOW}, batch_id int").parquet(f"{out}/flows")


def read_abnormal(spark: SparkSession, out: str | Path) -> DataFrame:
    return spark.read.parquet(f"{out}/abnormal")
