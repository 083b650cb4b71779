"""The data source `shoal-raw`: raw captures (`*.pcapng`) as the rows of `shoal`, with the same options. Batch only.

A connection's requests and answers belong together, so a file is one task. It is about twenty times slower than the
index: use it where the index was lost or never written.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from shoal.scenarios.capture.files import RAW, capture_files
from shoal.scenarios.capture.frames.index import raw_batches
from shoal.scenarios.jobs.source.options import Options
from shoal.scenarios.jobs.source.splits import Faults, IndexSplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

__all__ = ["RawSource"]


class RawSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "shoal-raw"

    def schema(self) -> StructType:
        return Options.of(self.options).schema

    def reader(self, schema: StructType) -> DataSourceReader:
        return _RawReader(Options.of(self.options))


class _RawReader(DataSourceReader):
    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        files = capture_files(self._options.path, RAW)
        return [IndexSplit(str(file.path), 0, file.path.stat().st_size) for file in files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, IndexSplit)
        faults = Faults(partition)
        for result in raw_batches(Path(partition.path), self._options.columns, self._options.selection):
            if not isinstance(result, pa.RecordBatch):
                faults.add("", result)
            elif not self._options.faults:
                yield result
        if self._options.faults:
            yield faults.table()
