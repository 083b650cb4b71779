"""Counters of records, bytes and batches by client and topic, in windows of 1 m, 10 m, 1 h and 1 d, updated as captures
grow.

    rows -> increments (source.py) -> by bucket: the cascade (levels.py) -> flows -> OUT/flows/batch_id=N
                                                                         the flows of one turn -> abnormal clients

A row of the flows has both: a counter's value with its version (`changelog`), and the increase since the previous
version (`diffs`). A micro-batch writes its own directory, so a repeated one after a crash replaces what it had written.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from shoal.scenarios.jobs.cascade.cells import COUNTERS
from shoal.scenarios.jobs.cascade.combine import AHEAD_SECONDS
from shoal.scenarios.jobs.cascade.processor import FLOW, CascadeProcessor

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from shoal.scenarios.jobs.cascade.levels import CascadeSettings

__all__ = ["KEY", "changelog", "counted", "counts", "diffs", "flows", "mismatches"]

KEY: Final = ("level", "window", "topic", "client")


def counted(rows: DataFrame) -> DataFrame:
    """The captured rows that are counted: batches sent by clients."""
    produced = (F.col("direction") == "produced") & (F.col("batch_bytes") > 0)
    return rows.where(produced & ~F.col("control"))


def flows(increments: DataFrame, settings: CascadeSettings) -> DataFrame:
    """`increments`: of `source.py`. Columns: `processor.py` FLOW."""
    bucket = F.coalesce("beat", F.expr(f"pmod(hash(topic, client), {settings.buckets})")).alias("bucket")
    return (
        increments.select(bucket, "*")
        .groupBy("bucket")
        .transformWithStateInPandas(
            statefulProcessor=CascadeProcessor(settings), outputStructType=FLOW, outputMode="Update", timeMode="None"
        )
    )


def changelog(flow: DataFrame) -> DataFrame:
    """The latest value of each counter. Without orphans: only their increases are known."""
    latest = F.max_by(F.struct(*COUNTERS, "final", "late", "past", "past_windows"), "version").alias("latest")
    return flow.where(~F.col("orphan")).groupBy(*KEY).agg(latest).select(*KEY, "latest.*")


def diffs(flow: DataFrame) -> DataFrame:
    """The sum of all increases of each counter."""
    sums = [F.sum(f"{name}_diff").alias(name) for name in COUNTERS]
    return flow.groupBy(*KEY).agg(*sums, F.max("late").alias("late"), F.max("orphan").alias("orphan"))


def counts(rows: DataFrame, settings: CascadeSettings) -> DataFrame:
    """The same counters, counted directly, without a cascade: the expected result."""
    captured = F.expr("time_ns div 1000000000")
    own = F.expr("max_timestamp div 1000")
    true = F.coalesce((own > 0) & (own - captured < AHEAD_SECONDS), F.lit(False))
    timed = counted(rows).withColumns({"at": F.when(true, own).otherwise(captured), "true": true})
    return reduce(lambda left, right: left.unionByName(right), [_level(timed, seconds) for seconds in settings.levels])


def _level(timed: DataFrame, seconds: int) -> DataFrame:
    sums: dict[str, Column] = {
        "records": F.sum("records"),
        "bytes": F.sum(F.col("batch_bytes").cast("long")),
        "batches": F.count("*"),
        "restamped": F.sum((~F.col("true")).cast("long")),
    }
    window = F.expr(f"(at div {seconds}) * {seconds}").alias("window")
    grouped = timed.groupBy(window, "topic", "client").agg(*(column.alias(name) for name, column in sums.items()))
    return grouped.select(F.lit(seconds).alias("level"), "window", "topic", "client", *COUNTERS)


def mismatches(found: DataFrame, wanted: DataFrame) -> dict[int, int]:
    """Level -> number of counters that differ, or are on one side only. Empty: they are equal."""
    ours, theirs = found.select(*KEY, *COUNTERS), wanted.select(*KEY, *COUNTERS)
    wrong = ours.exceptAll(theirs).unionByName(theirs.exceptAll(ours)).groupBy("level").agg(F.countDistinct(*KEY[1:]))
    rows: list[Any] = wrong.collect()
    return {row[0]: row[1] for row in rows}
