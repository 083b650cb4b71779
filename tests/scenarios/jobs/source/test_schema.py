"""Spark's schema agrees with the Arrow schema of the capture readers."""

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from shoal.scenarios.capture.decode import arrow_schema
from shoal.scenarios.capture.schema import chosen
from shoal.scenarios.jobs.source.schema import ROW, projection


def test_rows_are_what_the_decoder_gives() -> None:
    assert to_arrow_schema(ROW) == arrow_schema(chosen())


def test_a_projection_keeps_the_order_that_is_asked_for() -> None:
    assert projection(["topic", "time_ns"]).names == ["topic", "time_ns"]


def test_a_projection_names_the_columns_that_are_unknown() -> None:
    with pytest.raises(ValueError, match=r"no such column: bytes, colour \(there are time_ns, "):
        projection(["bytes", "topic", "colour"])
