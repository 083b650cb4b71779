"""How large batches are, who makes the small ones, and what these cost.

Rows are counted where they are read (`counts/fold.py`): by bins of size, and by bins of the time between two requests of a
connection. Here Spark adds that up (`count_batches`, `count_gaps`); every other table is made of those two. A request may have many
batches, so requests are counted where they differ from the one before on their connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from shoal.scenarios.jobs.bins import PER_DOUBLING
from shoal.scenarios.jobs.counts.fold import COLUMNS, FOLDED, fold
from shoal.scenarios.jobs.counts.gaps import LINK
from shoal.scenarios.jobs.folding import Folding
from shoal.scenarios.jobs.histograms import bin_of, cumulated, percentile

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["FOLDING", "SMALL", "clients", "count_batches", "count_gaps", "sizes"]

FOLDING: Final = Folding(columns=COLUMNS, fold=fold, schema=from_arrow_schema(FOLDED))
"""What is read, and how it is folded."""
SMALL: Final = 16_384
"""Bytes: the producers' default `batch.size`. What is below could have been larger by the defaults alone."""
_SMALL_BIN: Final = (SMALL.bit_length() - 1) * PER_DOUBLING
_FLOW: Final = ("cluster", "direction", "client")
_GROUP: Final = (*_FLOW, "topic", "partition", "codec", "hour")
_SUMS: Final = ("batches", "records", "bytes", "known_bytes", "known_raw_bytes")
_PERCENTILES: Final = ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"))


def count_batches(folded: DataFrame) -> DataFrame:
    """By group and by bins of bytes and of records: batches, records, bytes; and of those whose raw size is known, both sizes."""
    sums = folded.where(F.col("connection").isNull()).withColumn("hour", F.timestamp_seconds(F.col("hour") * 3600))
    return sums.groupBy(*_GROUP, "bytes_bin", "records_bin").agg(*(F.sum(name).alias(name) for name in _SUMS))


def count_gaps(folded: DataFrame, rows: DataFrame) -> DataFrame:
    """By client and by bins of microseconds since the last request with records on the same connection; null for its first one.

    `folded`: persisted, since its runs may be others when they are made again. `rows`: those that were folded; they are
    read again if runs of one connection overlap.
    """
    runs = _lined_up(folded.where(F.col("connection").isNotNull()))
    straight = runs.where(~F.col("is_tangled")).select(*_FLOW, F.inline(F.concat("gaps", _joint())))
    tangled = runs.where(F.col("is_tangled")).select(*LINK).distinct()
    sorted_ = _gaps_by_sorting(rows.join(F.broadcast(tangled), list(LINK), "left_semi"))
    return straight.union(sorted_).groupBy(*_FLOW, "gap_bin").agg(F.sum("requests").alias("requests"))


def _lined_up(runs: DataFrame) -> DataFrame:
    """`before`: the end of the run before on its connection. `is_tangled`: runs of this connection overlap."""
    link = Window.partitionBy(*LINK)
    before = F.lag(F.struct("last_ns", "last_request")).over(
        link.orderBy("first_ns", "first_request", "last_ns", "last_request")
    )
    overlaps = F.col("before") > F.struct(
        F.col("first_ns").alias("last_ns"), F.col("first_request").alias("last_request")
    )
    known = runs.withColumn("before", before).withColumn("overlaps", F.coalesce(overlaps, F.lit(False)))
    return known.withColumn("is_tangled", F.max("overlaps").over(link))


def _joint() -> Column:
    """What the first request of a run adds; nothing if the run before has ended with the same one."""
    gap = bin_of((F.col("first_ns") - F.col("before.last_ns")) / 1000)
    added = F.array(F.struct(gap.alias("gap_bin"), F.lit(1).cast("long").alias("requests")))
    is_new = F.col("before").isNull() | (F.col("before.last_request") != F.col("first_request"))
    return F.when(is_new, added).otherwise(F.slice("gaps", 1, 0))


def _gaps_by_sorting(rows: DataFrame) -> DataFrame:
    """The plain way, for any rows."""
    ordered = Window.partitionBy(*LINK).orderBy("time_ns", "request")
    wanted = (F.col("kind") == "batch") & ~F.col("control") & (F.col("handling") != "own")
    return (
        rows.where(wanted)
        .withColumn("last_request", F.lag("request").over(ordered))
        .withColumn("last_ns", F.lag("time_ns").over(ordered))
        .where(F.col("last_request").isNull() | (F.col("last_request") != F.col("request")))
        .groupBy(*_FLOW, bin_of((F.col("time_ns") - F.col("last_ns")) / 1000).alias("gap_bin"))
        .agg(F.count("*").alias("requests"))
    )


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
