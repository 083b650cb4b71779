"""The data source `shoal`: live index files for Spark, in batches and as a stream. Options: see `options.py`.

A file is split at block ends. Damaged or incomplete parts are skipped and reported: each task writes a line to its log,
and `show=faults` makes a table of them, with the rows that the proxies could not write. A Python data source cannot
prune columns or push down filters, so both are options. Workers import this module by name: it must be installed there,
or in --py-files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from shoal.scenarios.capture.files import capture_files
from shoal.scenarios.capture.index import splits
from shoal.scenarios.jobs.source.options import Options
from shoal.scenarios.jobs.source.splits import IndexSplit, read_split
from shoal.scenarios.jobs.source.stream import IndexReaderStream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType

__all__ = ["IndexReaderBatch", "ShoalSource"]


class ShoalSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "shoal"

    def schema(self) -> StructType:
        return Options.of(self.options).schema

    def reader(self, schema: StructType) -> DataSourceReader:
        return IndexReaderBatch(Options.of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return IndexReaderStream(Options.of(self.options))


class IndexReaderBatch(DataSourceReader):
    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[IndexSplit]:
        size = self._options.split_bytes
        paths = [file.path for file in capture_files(self._options.path)]
        return [IndexSplit(str(path), *ends) for path in paths for ends in splits(path, 0, path.stat().st_size, size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, IndexSplit)
        return read_split(partition, self._options)
