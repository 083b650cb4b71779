"""Index files as a stream of increments: a task sums its part of a file where it is read, so that neither Java nor the
shuffle sees a batch.

Rejected: a stream of rows, then `mapInArrow`: each row is copied from Python into Java and back (78 s of CPU for ten
million rows instead of 45 to 50).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource

from shoal.scenarios.jobs.cascade.combine import INCREMENT, READS, combining
from shoal.scenarios.jobs.errors import JobError
from shoal.scenarios.jobs.source.options import Options
from shoal.scenarios.jobs.source.stream import IndexReaderStream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
    from pyspark.sql.types import StructType

    from shoal.scenarios.jobs.cascade.levels import CascadeSettings

__all__ = ["stream_increments"]


def stream_increments(
    spark: SparkSession, path: str, options: Mapping[str, str], settings: CascadeSettings
) -> DataFrame:
    """`options`: of `source/options.py`. Columns: `combine.py` INCREMENT. Raises JobError."""
    Options.of({**options, "path": path})
    if not Path(path).exists():
        raise JobError(path, "there is no such file or directory")
    spark.dataSource.register(_IncrementSource)
    own = {"columns": ",".join(READS), "seconds": str(settings.levels[0]), "buckets": str(settings.buckets)}
    return spark.readStream.format(_IncrementSource.name()).options(**{**options, **own}).load(path)


class _IncrementSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "shoal-increments"

    def schema(self) -> str:
        return INCREMENT

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        given = self.options
        return _IncrementStream(Options.of(given), int(given["seconds"]), int(given["buckets"]))


class _IncrementStream(IndexReaderStream):
    def __init__(self, options: Options, seconds: int, buckets: int) -> None:
        super().__init__(options)
        self._seconds, self._buckets = seconds, buckets

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return combining(self._seconds, self._buckets)(map(_counted, super().read(partition)))


def _counted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """`analysis.counted`."""
    produced = pc.and_(pc.equal(batch["direction"], "produced"), pc.greater(batch["batch_bytes"], 0))
    return batch.filter(pc.and_not(produced, batch["control"]))
