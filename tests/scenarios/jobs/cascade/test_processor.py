"""The operator with Spark's own state in memory, and the sums before the shuffle, without Java."""

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.streaming.tws_tester import TwsTester

from shoal.scenarios.jobs.cascade.combine import combine, combining
from shoal.scenarios.jobs.cascade.levels import CascadeSettings
from shoal.scenarios.jobs.cascade.processor import CascadeProcessor

SMALL = CascadeSettings(levels=(10, 60), delay=5, grace=20, keep=100)
NS = 1_000_000_000


def _table(*batches: dict[str, Any]) -> pa.Table:
    usual = {"topic": "t", "client": "a", "records": 1, "batch_bytes": 100}
    rows = [{**usual, "time_ns": 1005 * NS, "max_timestamp": 1_005_000, **batch} for batch in batches]
    return pa.Table.from_pylist(rows)


def _sums(table: pa.Table) -> list[tuple[Any, ...]]:
    names = ("window", "client", "records", "bytes", "batches", "restamped", "captured")
    return sorted(tuple(row[name] for name in names) for row in table.to_pylist())


def test_batches_are_summed_by_key_and_window_of_their_own_time() -> None:
    found = combine(
        _table({}, {"records": 5, "time_ns": 1012 * NS}, {"client": "b"}, {"max_timestamp": 989_999}), seconds=10
    )
    assert _sums(found) == [
        (980, "a", 1, 100, 1, 0, 1005),
        (1000, "a", 6, 200, 2, 0, 1012),
        (1000, "b", 1, 100, 1, 0, 1005),
    ]


@pytest.mark.parametrize("time", [None, -1, 0, (1005 + 3600) * 1000])
def test_a_time_that_cannot_be_true_is_replaced_and_counted(time: int | None) -> None:
    found = combine(_table({"max_timestamp": time}, {}), seconds=10)
    assert _sums(found) == [(1000, "a", 2, 200, 2, 1, 1005)]


def test_each_task_tells_every_bucket_the_time() -> None:
    batches = list(combining(10, 3)(iter(_table({}, {"time_ns": 2000 * NS}).to_batches())))
    *_, beats = batches
    assert beats["beat"].to_pylist() == [0, 1, 2]
    assert set(beats["captured"].to_pylist()) == {2000}
    assert beats["records"].null_count == 0, "pandas makes a column with nulls inexact"
    assert list(combining(10, 3)(iter([]))) == []


class Operator:
    def __init__(self) -> None:
        self.inner = TwsTester(CascadeProcessor(SMALL))

    def turn(self, bucket: int, *rows: tuple[Any, ...]) -> pd.DataFrame:
        found = self.inner.testInPandas(bucket, _frame(*rows))
        assert isinstance(found, pd.DataFrame)
        return found


def _frame(*rows: tuple[Any, ...]) -> pd.DataFrame:
    """Rows of (beat, client, window, captured, records)."""
    columns = ["beat", "topic", "client", "window", "captured", "records", "bytes", "batches", "restamped"]
    full = [(beat, "t", client, window, captured, n, n * 10, 1, 0) for beat, client, window, captured, n in rows]
    return pd.DataFrame(full, columns=columns)


def test_a_bucket_goes_on_where_it_was() -> None:
    tester = Operator()
    large = (1 << 53) + 1
    first = tester.turn(3, (None, "a", 1000, 1005, 5), (None, "b", 1000, 1005, large))
    assert first[["level", "client", "records", "records_diff"]].to_numpy().tolist() == [
        [10, "a", 5, 5],
        [10, "b", large, large],
        [60, "a", 5, 5],
        [60, "b", large, large],
    ]
    second = tester.turn(3, (None, "a", 1000, 1005, 1), (3, None, 0, 1035, 0))
    assert second[["level", "client", "records", "records_diff", "final"]].to_numpy().tolist() == [
        [10, "a", 6, 1, False],
        [10, "a", 6, 0, True],
        [10, "b", large, 0, True],
        [60, "a", 6, 1, False],
    ]


def test_a_beat_alone_moves_the_clock_and_forgets() -> None:
    tester = Operator()
    tester.turn(3, (None, "a", 1000, 1005, 5))
    assert len(tester.inner.peekMapState("chunks2", 3)) == 2
    finals = tester.turn(3, (3, None, 0, 5000, 0))
    assert finals["final"].tolist() == [True, True]
    assert tester.inner.peekMapState("chunks2", 3) == {}
    again = tester.turn(3, (None, "a", 1000, 1005, 5))
    assert again["orphan"].tolist() == [True, True]
    assert tester.turn(3, (3, None, 0, 5001, 0)).empty
