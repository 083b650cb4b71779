"""Which clients behave abnormally: a rule on the changelog of the cascade.

A counter is abnormal when it is large (`floor`), many times the value of its own previous windows (`times`), and has
grown many times as much as its peers, the other counters of the same window (`peers`): a rush hour makes no client
abnormal. A client without history, or without peers, is not judged. The rule runs on each change, so a runaway client
is reported within a turn, not at the end of its hour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from shoal.scenarios.jobs.cascade.analysis import KEY, changelog

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from shoal.scenarios.jobs.cascade.rule import Rule

__all__ = ["abnormal", "worst"]


def abnormal(flow: DataFrame, rule: Rule) -> DataFrame:
    """Abnormal counters of one turn's flows, or of all. `growth`: ratio to its own past; `peer_growth`: the median of
    the others in its window."""
    known = changelog(flow).where((F.col("past_windows") >= rule.past_windows) & (F.col("past") > 0))
    grown = known.withColumn("growth", F.col("records") / F.col("past"))
    in_window = Window.partitionBy("level", "window")
    others = F.collect_list("growth").over(in_window)
    ranked = grown.withColumns({"all": F.array_sort(others), "peers": F.count("*").over(in_window) - 1})
    judged = ranked.withColumn("peer_growth", _median_of_others()).drop("all")
    return judged.where(
        (F.col("records") >= rule.floor)
        & (F.col("growth") >= rule.times)
        & (F.col("peers") > 0)
        & (F.col("growth") >= rule.peers * F.col("peer_growth"))
    ).select(*KEY, "records", "bytes", "batches", "past", "past_windows", "growth", "peers", "peer_growth")


def _median_of_others() -> Column:
    """The lower median of the sorted growths, without the counter's own."""
    middle = F.floor((F.size("all") - 2) / 2).cast("int")
    own = (F.array_position("all", F.col("growth")) - 1).cast("int")
    place = F.when(middle < own, middle).otherwise(middle + 1)
    return F.get("all", F.greatest(place, F.lit(0)))


def worst(found: DataFrame) -> DataFrame:
    """Each abnormal counter once, at its largest; the fastest grown first."""
    largest = F.max_by(F.struct("records", "bytes", "batches", "past", "growth", "peer_growth"), "records").alias("at")
    return found.groupBy(*KEY).agg(largest).select(*KEY, "at.*").orderBy(F.desc("growth"), *KEY)
