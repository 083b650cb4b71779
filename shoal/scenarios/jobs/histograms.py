"""The histograms of `bins.py` in Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from shoal.scenarios.jobs.bins import BELOW_ONE, PER_DOUBLING

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["bin_of"]


def bin_of(value: Column) -> Column:
    """Null for null."""
    return F.when(value >= 1, F.floor(F.log2(value) * PER_DOUBLING)).when(value.isNotNull(), BELOW_ONE).cast("int")
