"""Histograms with four bins per doubling, and percentiles from them.

A histogram can be added to another one, a percentile cannot; so jobs count bins first and read percentiles off at the end. Bin b holds
what is at least 2^(b/4) and less than 2^((b+1)/4), so a value that is told as the middle of its bin is off by 9 % at most. All below 1
is bin -1. Powers of two are edges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column

__all__ = [
    "BELOW_ONE",
    "PER_DOUBLING",
    "bin_of",
    "cumulated",
    "lower_edge",
    "middle",
    "middle_of",
    "percentile",
    "share_bin",
]

PER_DOUBLING: Final = 4
BELOW_ONE: Final = -1


def bin_of(value: Column) -> Column:
    """Null for null."""
    return F.when(value >= 1, F.floor(F.log2(value) * PER_DOUBLING)).when(value.isNotNull(), BELOW_ONE).cast("int")


def lower_edge(number: int) -> float:
    return 0.0 if number < 0 else float(2 ** (number / PER_DOUBLING))


def middle(number: int) -> float:
    """The geometric middle, which is what a percentile is told as."""
    return 0.0 if number < 0 else float(2 ** ((number + 0.5) / PER_DOUBLING))


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


def share_bin(counts: Iterable[tuple[int, int]], share: float) -> int | None:
    """The same in Python, of (bin, count): the bin in which the share is reached. None without counts."""
    ordered = sorted(counts)
    total, reached = sum(count for _, count in ordered), 0
    for number, count in ordered:
        reached += count
        if total and reached >= (share - 1e-9) * total:
            return number
    return None
