"""Rows are folded into a smaller table in the Python worker that reads them.

    part of a file ── Arrow batches, strings as dictionaries ──> fold ──> thousands of rows for a million ──> Spark

A row that passes Spark is copied three times: by a Python source into Java, or by Java's Parquet reader into rows, and
again into Arrow for a Python function. A job that only sums avoids this, and counts by dictionary index, not by string.
Rejected: groupBy in Java (7 s of CPU for ten million rows, of which folding takes 3), mapInArrow over rows with their
strings (5 s and more for the copies alone). Object stores and raw captures are read as usual (`source/reading.py`),
then folded: the result is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shoal.scenarios.jobs.source.options import Options
from shoal.scenarios.jobs.source.parquet_parts import ParquetPart, parquet_parts, read_parquet
from shoal.scenarios.jobs.source.reading import read_index, source_of
from shoal.scenarios.jobs.source.source import IndexReaderBatch
from shoal.scenarios.jobs.source.splits import IndexSplit, read_split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    Fold = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

__all__ = ["Folding", "fold_files", "fold_rows"]

_TASK_BYTES: Final = 128 * 1024 * 1024
"""The most that a task reads, about: it folds all of its parts into one result, so fewer tasks give fewer rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folding:
    """`fold`: in a module that workers can import; batches with `columns` -> batches of `schema`."""

    columns: tuple[str, ...]
    fold: Fold
    schema: StructType


def fold_rows(rows: DataFrame, folding: Folding) -> DataFrame:
    """`rows` may come from any source."""
    return rows.select(*folding.columns).mapInArrow(folding.fold, folding.schema)


def fold_files(spark: SparkSession, path: str, options: Mapping[str, str], folding: Folding) -> DataFrame:
    """`fold_rows` of `read_index`. Raises JobError."""
    given = {**options, "path": path, "columns": ",".join(folding.columns)}
    parts = _parts(source_of(path), Options.of(given))
    if parts is None:
        return fold_rows(read_index(spark, path, given), folding)
    cores = spark.sparkContext.defaultParallelism
    turns = ceil(sum(part.size for part in parts) / (_TASK_BYTES * cores))
    tasks = min(len(parts), turns * cores)
    work = partial(_folded, tuple(parts), Options.of(given), folding.fold)
    return spark.range(0, len(parts), 1, max(tasks, 1)).mapInArrow(work, folding.schema)


def _parts(source: str, options: Options) -> Sequence[IndexSplit | ParquetPart] | None:
    """None: not readable in this way."""
    if source == "shoal":
        return IndexReaderBatch(options).partitions()
    if source == "parquet" and Path(options.path).exists():
        return parquet_parts(options.path, options.split_bytes)
    return None


def _folded(
    parts: Sequence[IndexSplit | ParquetPart], options: Options, fold: Fold, numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    chosen = (parts[number] for batch in numbers for number in batch["id"].to_pylist())
    return fold(
        rows
        for part in chosen
        for rows in (read_parquet(part, options) if isinstance(part, ParquetPart) else read_split(part, options))
    )
