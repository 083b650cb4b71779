"""Captured rows from any source: live index files, raw captures, or compacted Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from shoal.scenarios.capture.compact import noted_faults
from shoal.scenarios.jobs.errors import JobError
from shoal.scenarios.jobs.source.options import FAULTS, Options
from shoal.scenarios.jobs.source.raw_source import RawSource
from shoal.scenarios.jobs.source.source import ShoalSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read_faults", "read_index", "source_of", "stream_index"]


_SOURCES: Final = {".kxb": "shoal", ".pcapng": "shoal-raw", ".parquet": "parquet"}
"""By file name in a directory; the first that matches."""


def read_index(spark: SparkSession, path: str, options: Mapping[str, str] | None = None) -> DataFrame:
    """`options`: of `options.py`. Index files use `shoal`, raw captures `shoal-raw`, Parquet Spark's reader. Raises
    JobError."""
    source, given = source_of(path), options or {}
    understood = Options.of({**given, "path": path})
    if source == "parquet":
        return _from_parquet(spark, path, understood)
    _register(spark)
    return spark.read.format(source).options(**given).load(path)


def stream_index(spark: SparkSession, path: str, options: Mapping[str, str] | None = None) -> DataFrame:
    """Index files as they grow. Raises JobError."""
    Options.of({**(options or {}), "path": path})
    if not Path(path).exists():
        raise JobError(path, "there is no such file or directory")
    _register(spark)
    return spark.readStream.format("shoal").options(**(options or {})).load(path)


def read_faults(spark: SparkSession, path: str) -> DataFrame:
    """Unreadable parts, as `options.FAULTS`. Of Parquet: those that were noted when it was compacted, if `path` is the
    whole output, on a local disk."""
    if source_of(path) != "parquet":
        return read_index(spark, path, {"show": "faults"})
    if noted := list(noted_faults(Path(path.removeprefix("file:")))):
        return spark.createDataFrame(noted, FAULTS)
    return spark.createDataFrame([], FAULTS).limit(0)  # so that Spark knows it is empty, and runs no job for it


def _register(spark: SparkSession) -> None:
    spark.dataSource.register(ShoalSource)
    spark.dataSource.register(RawSource)


def source_of(path: str) -> str:
    """`shoal`, `shoal-raw` or `parquet`, by the files found. Raises JobError."""
    if "://" in path:
        return "parquet"  # an object store has compacted files only
    local = Path(path.removeprefix("file:"))
    if not local.exists():
        raise JobError(path, "there is no such file or directory")
    for suffix, source in _SOURCES.items():
        if local.suffix == suffix or (local.is_dir() and any(local.glob(f"*{suffix}"))):
            return source
    if any(local.rglob("*.parquet")):
        return "parquet"
    raise JobError(path, "has neither captures (*.kxb, *.pcapng) nor compacted ones (*.parquet)")


def _from_parquet(spark: SparkSession, path: str, options: Options) -> DataFrame:
    rows = spark.read.parquet(path)
    selection = options.selection
    if selection.topics is not None:
        rows = rows.where(F.col("topic").isin(*selection.topics))
    if selection.from_ns is not None:
        rows = rows.where(F.col("time_ns") >= selection.from_ns)
    if selection.to_ns is not None:
        rows = rows.where(F.col("time_ns") < selection.to_ns)
    return rows.select(*options.columns)
