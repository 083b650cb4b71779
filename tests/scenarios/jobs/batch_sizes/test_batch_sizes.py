"""The tables of batch-sizes against a plain count of the same rows in Python."""

import json
import math
from argparse import Namespace
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from shoal.scenarios.jobs.batch_sizes.analysis import FOLDING, count_batches, count_gaps, sizes
from shoal.scenarios.jobs.batch_sizes.costs import clients
from shoal.scenarios.jobs.batch_sizes.job import run
from shoal.scenarios.jobs.folding import fold_rows
from shoal.scenarios.jobs.source.reading import read_index
from shoal.scenarios.jobs.task import Task
from tests.scenarios.jobs.captures import one_chunk, write_index

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def captured(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataFrame]:
    directory = tmp_path_factory.mktemp("batch-sizes")
    write_index(directory, one_chunk(6_000))
    rows = read_index(spark, str(directory), {"columns": ",".join(FOLDING.columns)}).persist()
    yield rows
    rows.unpersist()


@pytest.fixture(scope="module")
def folded(captured: DataFrame) -> Iterator[DataFrame]:
    rows = fold_rows(captured, FOLDING).persist()
    yield rows
    rows.unpersist()


@pytest.fixture(scope="module")
def plain(captured: DataFrame) -> Rows:
    return rows_of(captured)


def rows_of(table: DataFrame) -> Rows:
    rows: Rows = table.toArrow().to_pylist()
    return rows


def test_sizes_are_sums_over_the_rows_of_a_group(folded: DataFrame, plain: Rows) -> None:
    wanted: dict[tuple[Any, ...], Counter[str]] = defaultdict(Counter)
    for row in plain:
        group = (row["client"], row["topic"], row["partition"], row["codec"], row["time_ns"] // (3600 * 10**9))
        wanted[group] += Counter(batches=1, records=row["records"], bytes=row["batch_bytes"])
    found = {}
    for each in sizes(count_batches(folded)).collect():
        hour = int(each["hour"].timestamp()) // 3600
        group = (each["client"], each["topic"], each["partition"], each["codec"], hour)
        found[group] = Counter(batches=each["batches"], records=each["records"], bytes=each["bytes"])
    assert found == wanted


def test_percentiles_and_ratios_are_those_of_the_batches(folded: DataFrame, plain: Rows) -> None:
    table = sizes(count_batches(folded)).where("client = 'clickstream'").collect()
    for row in table:
        mine = [
            each
            for each in plain
            if (each["client"], each["partition"]) == ("clickstream", row["partition"])
            and each["time_ns"] // (3600 * 10**9) == int(row["hour"].timestamp()) // 3600
        ]
        exact = sorted(each["batch_bytes"] for each in mine)[math.ceil(0.5 * len(mine)) - 1]
        assert row["bytes_p50"] == pytest.approx(exact, rel=0.095)
        raw = sum(each["raw_bytes"] for each in mine)
        assert row["ratio"] == pytest.approx(sum(each["batch_bytes"] - 61 for each in mine) / raw)
    assert table
    assert {row["ratio"] for row in sizes(count_batches(folded)).where("codec = 'lz4'").collect()} == {None}


def test_a_request_is_counted_once_however_many_batches_it_has(
    captured: DataFrame, folded: DataFrame, plain: Rows
) -> None:
    wanted = Counter(client for client, _, _ in {(r["client"], r["connection"], r["request"]) for r in plain})
    table = clients(rows_of(count_batches(folded)), count_gaps(folded, captured).to_pylist())
    assert {row["client"]: row["requests"] for row in table} == wanted
    costs = [row["requests_per_mb"] for row in table]
    assert costs == sorted(costs, reverse=True)


def test_gaps_are_between_the_requests_of_a_connection(captured: DataFrame, folded: DataFrame, plain: Rows) -> None:
    times: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    for row in plain:
        times[row["client"], row["connection"]][row["request"]] = row["time_ns"]
    wanted: Counter[tuple[str, int | None]] = Counter()
    for (client, _), requests in times.items():
        ordered = [time for _, time in sorted(requests.items())]
        gaps = [(later - earlier) / 1000 for earlier, later in pairwise(ordered)]
        wanted.update((client, math.floor(math.log2(gap) * 4) if gap >= 1 else -1) for gap in gaps)
        wanted[client, None] += 1
    found = {(row["client"], row["gap_bin"]): row["requests"] for row in count_gaps(folded, captured).to_pylist()}
    assert found == wanted


def test_small_batches_are_those_below_the_default_batch_size(
    captured: DataFrame, folded: DataFrame, plain: Rows
) -> None:
    wanted = Counter(row["client"] for row in plain if row["batch_bytes"] < 16_384)
    table = clients(rows_of(count_batches(folded)), count_gaps(folded, captured).to_pylist())
    assert {row["client"]: row["small"] for row in table if row["small"]} == wanted


def test_a_capture_in_which_nobody_sent_anything_has_a_page_all_the_same(spark: SparkSession, tmp_path: Path) -> None:
    write_index(tmp_path / "index", one_chunk(500))
    nothing = {"topics": "no-such-topic"}
    assert run(Task(spark=spark, source=str(tmp_path / "index"), out=tmp_path, options=nothing, flags=Namespace())) == 0
    found = json.loads((tmp_path / "report.json").read_text())
    assert (
        found["batch_sizes"]["batches"] == found["tables"]["clients"]["rows"] == found["tables"]["sizes"]["rows"] == 0
    )
    assert (tmp_path / "batch-sizes.html").exists()
