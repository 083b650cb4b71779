"""Batch sizes, the clients of small batches, and their cost.

Rows are counted where they are read (`fold.py`): by bins of size, and by bins of the time between two requests of a
connection. Spark sums these (`count_batches`, `count_gaps`); every other table is made from the two. A request may have
many batches, so requests are counted where they differ from the previous one on their connection.

Spark computes whatever grows with topics, partitions, hours and connections. Tables by client are small: they are made
in the driver (`costs.py`), since a query takes some tenths of a second of two cores, however few rows it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from shoal.scenarios.jobs.batch_sizes.costs import FLOW
from shoal.scenarios.jobs.batch_sizes.fold import COLUMNS, FOLDED, fold
from shoal.scenarios.jobs.batch_sizes.gaps import LINK
from shoal.scenarios.jobs.batch_sizes.shares import GROUP, SIZED, sized
from shoal.scenarios.jobs.batch_sizes.sizes import SUMS
from shoal.scenarios.jobs.columns.bins import BELOW_ONE, PER_DOUBLING
from shoal.scenarios.jobs.folding import Folding

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["FOLDING", "bin_of", "count_batches", "count_gaps", "sizes"]

FOLDING: Final = Folding(columns=COLUMNS, fold=fold, schema=from_arrow_schema(FOLDED))
"""The columns that are read, and how they are folded."""


def count_batches(folded: DataFrame) -> DataFrame:
    """By group and by bins of bytes and records: batches, records, bytes; and both sizes if the raw size is known."""
    sums = folded.where(F.col("connection").isNull()).withColumn("hour", F.timestamp_seconds(F.col("hour") * 3600))
    return sums.groupBy(*GROUP, "bytes_bin", "records_bin").agg(*(F.sum(name).alias(name) for name in SUMS))


def count_gaps(folded: DataFrame, rows: DataFrame) -> pa.Table:
    """By client and by bins of microseconds since the connection's previous request with records; null for its first
    one.

    `folded`: persisted, since its runs can change when they are computed again. `rows`: the rows that were folded; they
    are read again if runs of one connection overlap. That is rare, so it is checked first.
    """
    runs = _lined_up(folded.where(F.col("connection").isNotNull()))
    joined = runs.select(*FLOW, "is_tangled", F.inline(F.concat("gaps", _joint())))
    counted = joined.groupBy(*FLOW, "is_tangled", "gap_bin").agg(F.sum("requests").alias("requests")).toArrow()
    found = [counted.filter(pc.invert(counted["is_tangled"])).drop_columns("is_tangled")]
    if pc.any(counted["is_tangled"]).as_py():
        tangled = runs.where("is_tangled").select(*LINK).distinct()
        found.append(_gaps_by_sorting(rows.join(F.broadcast(tangled), list(LINK), "left_semi")).toArrow())
    grouped = (
        pa.concat_tables(found, promote_options="default").group_by([*FLOW, "gap_bin"]).aggregate([("requests", "sum")])
    )
    return grouped.rename_columns({"requests_sum": "requests"}).select([*FLOW, "gap_bin", "requests"])


def _lined_up(runs: DataFrame) -> DataFrame:
    """`before`: the end of the previous run on its connection. `is_tangled`: runs of this connection overlap."""
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
    """The gap before the first request of a run; none if the previous run ended with the same request."""
    gap = bin_of((F.col("first_ns") - F.col("before.last_ns")) / 1000)
    added = F.array(F.struct(gap.alias("gap_bin"), F.lit(1).cast("long").alias("requests")))
    is_new = F.col("before").isNull() | (F.col("before.last_request") != F.col("first_request"))
    return F.when(is_new, added).otherwise(F.slice("gaps", 1, 0))


def _gaps_by_sorting(rows: DataFrame) -> DataFrame:
    """The simple way, for any rows."""
    ordered = Window.partitionBy(*LINK).orderBy("time_ns", "request")
    wanted = (F.col("kind") == "batch") & ~F.col("control") & (F.col("handling") != "own") & (F.col("batch_bytes") > 0)
    return (
        rows.where(wanted)
        .withColumn("last_request", F.lag("request").over(ordered))
        .withColumn("last_ns", F.lag("time_ns").over(ordered))
        .where(F.col("last_request").isNull() | (F.col("last_request") != F.col("request")))
        .groupBy(*FLOW, bin_of((F.col("time_ns") - F.col("last_ns")) / 1000).alias("gap_bin"))
        .agg(F.count("*").alias("requests"))
    )


def sizes(counts: DataFrame) -> DataFrame:
    """By cluster, direction, client, topic, partition, codec and hour: `shares.py`. `counts`: of `count_batches`."""
    return counts.repartition(*GROUP).mapInArrow(sized, from_arrow_schema(SIZED))


def bin_of(value: Column) -> Column:
    """The bin of `bins.py`; null for null."""
    return F.when(value >= 1, F.floor(F.log2(value) * PER_DOUBLING)).when(value.isNotNull(), BELOW_ONE).cast("int")
