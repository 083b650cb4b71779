"""Rows folded into a smaller table where they are read, in the Python worker that reads them.

    part of a file ── Arrow batches, strings as dictionaries ──> fold ──> some thousand rows for a million ──> Spark

A row that goes through Spark is copied three times: by a Python source into Java, or by Java's Parquet reader into rows, and again
into Arrow for a Python function. A job that only adds up needs none of it, and counts by dictionary places, not by strings. Rejected:
groupBy in Java (7 s of CPU for ten million rows, of which folding takes 3), mapInArrow over rows with their strings (5 s and more for
the copies alone). Object stores and raw captures are read as everywhere (`source/reading.py`), then folded: the result is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shoal.scenarios.jobs.source.options import Options
from shoal.scenarios.jobs.source.parquet_parts import ParquetPart, parquet_parts, read_parquet
from shoal.scenarios.jobs.source.reading import read_index, source_of
from shoal.scenarios.jobs.source.source import IndexReaderBatch, Part, read_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    Fold = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

__all__ = ["Folding", "fold_files", "fold_rows"]

_TASK_BYTES: Final = 16 * 1024 * 1024
"""Of files that one task reads, if these are many and small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folding:
    """`fold`: of a module that workers can import; batches with `columns` -> batches of `schema` ."""

    columns: tuple[str, ...]
    fold: Fold
    schema: StructType


def fold_rows(rows: DataFrame, folding: Folding) -> DataFrame:
    """`rows` may come from anywhere."""
    return rows.select(*folding.columns).mapInArrow(folding.fold, folding.schema)


def fold_files(spark: SparkSession, path: str, options: Mapping[str, str], folding: Folding) -> DataFrame:
    """As `fold_rows` of `read_index`. Raises JobError."""
    given = {**options, "path": path, "columns": ",".join(folding.columns)}
    parts = _parts(source_of(path), Options.of(given))
    if parts is None:
        return fold_rows(read_index(spark, path, given), folding)
    size = sum(part.size for part in parts)
    tasks = min(len(parts), max(size // _TASK_BYTES, spark.sparkContext.defaultParallelism))
    work = partial(_folded, tuple(parts), Options.of(given), folding.fold)
    return spark.range(0, len(parts), 1, max(tasks, 1)).mapInArrow(work, folding.schema)


def _parts(source: str, options: Options) -> Sequence[Part | ParquetPart] | None:
    """None: these cannot be read so."""
    if source == "shoal":
        return IndexReaderBatch(options).partitions()
    if source == "parquet" and Path(options.path).exists():
        return parquet_parts(options.path, options.split_bytes)
    return None


def _folded(
    parts: Sequence[Part | ParquetPart], options: Options, fold: Fold, numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch["id"].to_pylist():
            part = parts[number]
            yield from fold(read_parquet(part, options) if isinstance(part, ParquetPart) else read_part(part, options))
