"""Bins and percentiles, in Spark and in Python."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from shoal.scenarios.jobs.batch_sizes.analysis import bin_of
from shoal.scenarios.jobs.batch_sizes.shares import share_bins
from shoal.scenarios.jobs.columns.bins import bins_of, lower_edge, middle, share_bin


def test_a_value_is_within_the_edges_of_its_bin(spark: SparkSession) -> None:
    values = [*range(1, 2_000), 16_384, 16_383, 10**9, 2**40]
    rows = spark.createDataFrame([(value,) for value in values], "value long")
    for row in rows.select("value", bin_of(F.col("value")).alias("number")).collect():
        assert lower_edge(row["number"]) <= row["value"] * (1 + 1e-12)
        assert row["value"] < lower_edge(row["number"] + 1) * (1 + 1e-12)


def test_what_is_below_one_has_a_bin_and_null_has_none(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(0,), (-5,), (1,), (None,)], "value long")
    assert [row[0] for row in rows.select(bin_of(F.col("value"))).collect()] == [-1, -1, 0, None]


def test_percentiles_are_those_of_the_values_but_for_the_width_of_a_bin() -> None:
    values = [[3**k % 1009 + 1 for k in range(500)], [7]]
    rows = [(group, number, 1) for group in (0, 1) for number in bins_of(np.array(values[group]))]
    codes, bins, counts = np.array(rows[::-1]).T
    for group, number in enumerate(share_bins(codes, bins, counts, 0.9)):
        exact = sorted(values[group])[math.ceil(0.9 * len(values[group])) - 1]
        assert middle(number) == pytest.approx(exact, rel=0.095)


HISTOGRAM = st.lists(st.tuples(st.integers(-1, 9), st.integers(1, 2**40)), min_size=1, max_size=6)


@given(st.lists(HISTOGRAM, min_size=1, max_size=4), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_shares_of_many_groups_are_those_of_each(histograms: list[list[tuple[int, int]]], share: float) -> None:
    rows = [(code, *each) for code, histogram in enumerate(histograms) for each in histogram]
    codes, bins, counts = np.array(rows).T
    assert list(share_bins(codes, bins, counts, share)) == [share_bin(each, share) for each in histograms]


def test_a_share_is_reached_in_the_first_bin_that_has_enough() -> None:
    counts = [(3, 1), (0, 8), (9, 1)]
    assert [share_bin(counts, share) for share in (0.5, 0.8, 0.81, 0.9, 1.0)] == [0, 0, 3, 3, 9]
    assert share_bin([], 0.5) is None


def test_the_middle_is_nine_percent_from_either_edge() -> None:
    assert middle(40) / lower_edge(40) == pytest.approx(lower_edge(41) / middle(40)) == pytest.approx(1.0905, abs=1e-4)
    assert middle(-1) == 0
