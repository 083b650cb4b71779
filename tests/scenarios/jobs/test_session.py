"""The session builder's settings, read from the session."""

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from shoal.scenarios.jobs.session import STREAMS


def test_times_are_shown_in_utc(spark: SparkSession) -> None:
    shown = spark.range(1).select(F.timestamp_seconds(F.lit(0)).cast("string").alias("at")).toArrow()
    assert shown.to_pylist() == [{"at": "1970-01-01 00:00:00"}]


def test_workers_run_this_python(spark: SparkSession) -> None:
    assert spark.range(1).mapInArrow(lambda batches: batches, "id long").toArrow().num_rows == 1
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_streams_have_the_store_that_keeps_state_on_disk(spark: SparkSession) -> None:
    assert {name: spark.conf.get(name) for name in STREAMS} == dict(STREAMS)
