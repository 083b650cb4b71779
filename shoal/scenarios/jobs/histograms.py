"""The histograms of `bins.py` in Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from shoal.scenarios.jobs.bins import BELOW_ONE, PER_DOUBLING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

__all__ = ["bin_of", "cumulated", "middle_of", "percentile"]


def bin_of(value: Column) -> Column:
    """Null for null."""
    return F.when(value >= 1, F.floor(F.log2(value) * PER_DOUBLING)).when(value.isNotNull(), BELOW_ONE).cast("int")


def middle_of(number: Column) -> Column:
    """`middle` in Spark."""
    return F.when(number < 0, 0.0).otherwise(F.pow(F.lit(2.0), (number + 0.5) / PER_DOUBLING))


def cumulated(group: Sequence[str], number: str, count: str) -> Column:
    """Of the rows of a histogram: the share of their group's count in this bin and those below."""
    ordered = Window.partitionBy(*group).orderBy(number)
    return F.sum(count).over(ordered) / F.sum(count).over(Window.partitionBy(*group))


def percentile(share: float, cumulated: str, number: str) -> Column:
    """An aggregate over a group's rows that have their `cumulated` share: the value below which `share` of the count is."""
    return middle_of(F.min(F.when(F.col(cumulated) >= share - 1e-9, F.col(number))))
