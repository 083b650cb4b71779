"""Rows folded by the reader are those that Spark reads, from any file and with any options."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shoal.scenarios.capture.batches import record_batches
from shoal.scenarios.capture.decode import arrow_schema
from shoal.scenarios.capture.index import IndexReader
from shoal.scenarios.capture.schema import chosen
from shoal.scenarios.jobs.batch_sizes.analysis import FOLDING, count_batches
from shoal.scenarios.jobs.folding import fold_files, fold_rows
from shoal.scenarios.jobs.source.options import Options
from shoal.scenarios.jobs.source.parquet_parts import parquet_parts, read_parquet
from shoal.scenarios.jobs.source.reading import read_index
from tests.scenarios.jobs.captures import one_chunk, write_index

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

CHUNK = one_chunk(6_000)
TIMES = [int(CHUNK.rows["time_ns"][at]) for at in (2_000, 4_000)]
MIDDLE = {"from": str(TIMES[0]), "to": str(TIMES[1]), "topics": "orders,clicks"}
SCHEMA = arrow_schema(chosen(FOLDING.columns))


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return write_index(tmp_path / "index", CHUNK)


@pytest.fixture
def whole(index: Path) -> pa.Table:
    found = record_batches(IndexReader(path=index), list(FOLDING.columns))
    return pa.Table.from_batches([batch for batch in found if isinstance(batch, pa.RecordBatch)])


@pytest.fixture
def parquet(tmp_path: Path, whole: pa.Table) -> Path:
    """Two files named as by `shoal capture compact`, and two that readers ignore."""
    parts = {"hour=3/a": whole[:5_000], "hour=4/b": whole[5_000:], "hour=4/.c": whole, "_d/d": whole}
    for name, rows in parts.items():
        path = tmp_path / "parquet" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path, compression="zstd", row_group_size=400)
    return tmp_path / "parquet"


def read(path: Path, split: int, **given: str) -> pa.Table:
    options = Options.of({"path": str(path), "columns": ",".join(FOLDING.columns), **given})
    batches = [batch for part in parquet_parts(path, split) for batch in read_parquet(part, options)]
    columns = [[batch[field.name].cast(field.type) for field in SCHEMA] for batch in batches]
    return pa.Table.from_batches([pa.RecordBatch.from_arrays(each, schema=SCHEMA) for each in columns])


@pytest.mark.parametrize(("split", "parts"), [(1, 16), (1 << 30, 2)])
def test_parts_of_parquet_files_give_each_row_once_and_in_order(
    parquet: Path, whole: pa.Table, split: int, parts: int
) -> None:
    assert read(parquet, split).equals(whole)
    assert len(parquet_parts(parquet, split)) == parts


def test_conditions_choose_rows_of_parquet_files(parquet: Path, whole: pa.Table) -> None:
    wanted = [
        row
        for row in whole.to_pylist()
        if row["topic"] in {"orders", "clicks"} and TIMES[0] <= row["time_ns"] < TIMES[1]
    ]
    assert 0 < len(wanted) < 2_000
    assert read(parquet, 1, **MIDDLE).to_pylist() == wanted


@pytest.mark.parametrize("name", ["raw_bytes", "codec"])
def test_a_column_that_a_file_lacks_is_null(tmp_path: Path, whole: pa.Table, name: str) -> None:
    pq.write_table(whole.drop_columns([name]), tmp_path / "old.parquet")
    assert read(tmp_path / "old.parquet", 1)[name].null_count == 6_000
    pq.write_table(whole, tmp_path / "new.parquet")
    options = Options.of({"path": str(tmp_path), "columns": ",".join(FOLDING.columns)})
    rows = (batch for part in parquet_parts(tmp_path, 1) for batch in read_parquet(part, options))
    assert sum(batch.num_rows for batch in FOLDING.fold(rows)) > 0, "one task reads both"


@pytest.mark.parametrize("given", [{}, MIDDLE])
def test_files_are_folded_as_their_rows_are(
    spark: SparkSession, index: Path, parquet: Path, given: dict[str, str]
) -> None:
    def counts(folded: DataFrame) -> Counter[tuple[Any, ...]]:
        return Counter(map(tuple, count_batches(folded).collect()))

    columns = {"columns": ",".join(FOLDING.columns)}
    wanted = counts(fold_rows(read_index(spark, str(index), {**given, **columns}), FOLDING))
    assert wanted
    for path in (index.parent, parquet):
        assert counts(fold_files(spark, str(path), {**given, "splitBytes": "20000"}, FOLDING)) == wanted
