"""How large batches are, who makes the small ones, and what these cost.

All is counted once, by bins of size (`count_batches`) and by bins of the time between two requests (`count_gaps`); every other table
is made of those two. A request may have many batches, so requests are counted where they differ from the one before on their
connection: that takes the one sort of this job, of three numbers per batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from shoal.scenarios.jobs.bins import PER_DOUBLING
from shoal.scenarios.jobs.histograms import bin_of, cumulated, percentile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["COLUMNS", "SMALL", "clients", "count_batches", "count_gaps", "sizes"]

COLUMNS: Final = [
    "time_ns",
    "proxy",
    "connection",
    "request",
    "client",
    "cluster",
    "kind",
    "direction",
    "handling",
    "topic",
    "partition",
    "records",
    "batch_bytes",
    "raw_bytes",
    "codec",
    "control",
]
"""All that this job reads."""
SMALL: Final = 16_384
"""Bytes: the producers' default `batch.size`. What is below could have been larger by the defaults alone."""
_SMALL_BIN: Final = (SMALL.bit_length() - 1) * PER_DOUBLING
_HEADER: Final = 61
_HOUR_NS: Final = 3_600_000_000_000
_FLOW: Final = ("cluster", "direction", "client")
_GROUP: Final = (*_FLOW, "topic", "partition", "codec", "hour")
_SUMS: Final = ("batches", "records", "bytes", "known_bytes", "known_raw_bytes")
_PERCENTILES: Final = ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"))


def _batches(rows: DataFrame) -> DataFrame:
    """Of clients: not the brokers' control batches, and not Shoal's own."""
    return rows.where((F.col("kind") == "batch") & ~F.col("control") & (F.col("handling") != "own"))


def count_batches(rows: DataFrame) -> DataFrame:
    """By group and by bins of bytes and of records: batches, records, bytes; and of those whose raw size is known, both sizes."""
    known = F.col("raw_bytes").isNotNull()
    counted = _batches(rows).select(
        *_FLOW,
        "topic",
        "partition",
        "codec",
        F.timestamp_seconds(F.expr(f"time_ns div {_HOUR_NS}") * 3600).alias("hour"),
        bin_of(F.col("batch_bytes")).alias("bytes_bin"),
        bin_of(F.col("records")).alias("records_bin"),
        F.col("records").cast("long"),
        F.col("batch_bytes").cast("long").alias("bytes"),
        F.when(known, F.col("batch_bytes") - _HEADER).cast("long").alias("known_bytes"),
        F.col("raw_bytes").cast("long").alias("known_raw_bytes"),
    )
    sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _SUMS[1:]]
    return counted.groupBy(*_GROUP, "bytes_bin", "records_bin").agg(F.count("*").alias("batches"), *sums)


def count_gaps(rows: DataFrame) -> DataFrame:
    """By client and by bins of microseconds since the last request with records on the same connection; null for its first one."""
    flow = F.xxhash64("proxy", "connection", *_FLOW).alias("flow")
    batches = _batches(rows)
    clients = batches.groupBy(flow).agg(*(F.first(name).alias(name) for name in _FLOW))
    ordered = Window.partitionBy("flow").orderBy("time_ns", "request")
    gaps = (
        batches.select(flow, "request", "time_ns")
        .withColumn("last_request", F.lag("request").over(ordered))
        .withColumn("last_ns", F.lag("time_ns").over(ordered))
        .where(F.col("last_request").isNull() | (F.col("last_request") != F.col("request")))
        .groupBy("flow", bin_of((F.col("time_ns") - F.col("last_ns")) / 1000).alias("gap_bin"))
        .agg(F.count("*").alias("requests"))
    )
    counted = gaps.join(F.broadcast(clients), "flow")
    return counted.groupBy(*_FLOW, "gap_bin").agg(F.sum("requests").alias("requests"))


def sizes(counts: DataFrame) -> DataFrame:
    """By cluster, direction, client, topic, partition, codec and hour. `counts`: of `count_batches`.

    `ratio`: compressed size to raw size, null where no raw size is known. Percentiles are off by 9 % at most.
    """
    shared = counts.withColumns(
        {f"{measure}_share": cumulated(_GROUP, f"{measure}_bin", "batches") for measure in ("bytes", "records")}
    )
    grouped = shared.groupBy(*_GROUP).agg(
        *(F.sum(name).alias(name) for name in _SUMS),
        *(
            percentile(share, f"{measure}_share", f"{measure}_bin").alias(f"{measure}_{name}")
            for measure in ("bytes", "records")
            for share, name in _PERCENTILES
        ),
    )
    return grouped.withColumns(
        {
            "records_per_batch": F.col("records") / F.col("batches"),
            "ratio": F.when(F.col("known_raw_bytes") > 0, F.col("known_bytes") / F.col("known_raw_bytes")),
        }
    )


def clients(counts: DataFrame, gaps: DataFrame) -> DataFrame:
    """By cluster, direction and client: what its batches cost, most requests per MB first.

    `small`: batches below SMALL bytes. `full_batches`: as many would do, if each had SMALL bytes.
    """
    small = F.col("bytes_bin") < _SMALL_BIN
    summed = counts.groupBy(*_FLOW).agg(
        *(F.sum(name).alias(name) for name in _SUMS[:3]),
        F.sum(F.when(small, F.col("batches")).otherwise(0)).alias("small"),
        F.ceil(F.sum("bytes") / SMALL).alias("full_batches"),
    )
    known = F.when(F.col("gap_bin").isNotNull(), F.col("requests")).otherwise(0)
    shared = gaps.withColumn("known", known).withColumn("share", cumulated(_FLOW, "gap_bin", "known"))
    requests = shared.groupBy(*_FLOW).agg(
        F.sum("requests").alias("requests"), percentile(0.5, "share", "gap_bin").alias("gap_p50_us")
    )
    joined = summed.join(requests, list(_FLOW)).withColumns(
        {
            "requests_per_mb": F.col("requests") / (F.col("bytes") / 1_000_000),
            "bytes_per_request": F.col("bytes") / F.col("requests"),
        }
    )
    return joined.orderBy(F.desc("requests_per_mb"), *_FLOW)
