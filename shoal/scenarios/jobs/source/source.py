"""The data source `shoal`: live index files for Spark, in batches and as a stream. Options: see `options.py`.

A file is split where its blocks end. What is damaged, or not there yet, is passed over and told: each task writes a line to its log,
and `show=faults` makes a table of it, with the rows that the proxies could not write. A Python data source prunes no columns and
gets no filters, so both are options. Workers import this module by its name: it must be installed there, or in --py-files.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from shoal.protocol.capture.index.blocks import Damaged, Torn
from shoal.scenarios.capture.batches import record_batches
from shoal.scenarios.capture.files import capture_files
from shoal.scenarios.capture.index import IndexReader, splits
from shoal.scenarios.jobs.source.options import FAULTS, Options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType

__all__ = ["Faults", "IndexReaderBatch", "Part", "ShoalSource", "read_part"]


class ShoalSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "shoal"

    def schema(self) -> StructType:
        return Options.of(self.options).schema

    def reader(self, schema: StructType) -> DataSourceReader:
        return IndexReaderBatch(Options.of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from shoal.scenarios.jobs.source.stream import IndexReaderStream

        return IndexReaderStream(Options.of(self.options))


@dataclass(frozen=True)
class Part(InputPartition):
    """Of one file. Both ends are ends of blocks."""

    path: str
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class IndexReaderBatch(DataSourceReader):
    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[Part]:
        size = self._options.split_bytes
        paths = [file.path for file in capture_files(self._options.path)]
        return [Part(str(path), *ends) for path in paths for ends in splits(path, 0, path.stat().st_size, size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        return read_part(partition, self._options)


def read_part(part: Part, options: Options) -> Iterator[pa.RecordBatch]:
    reader = IndexReader(path=Path(part.path), start=part.start, end=part.end)
    found = Faults(part)
    for result in record_batches(reader, options.columns, options.selection):
        if not isinstance(result, pa.RecordBatch):
            found.add(reader.proxy, result)
        elif not options.faults:
            yield result
    if options.faults:
        found.add_dropped(reader)
        yield found.table()


class Faults:
    """Of one part: told in the task's log, and kept for the table."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._rows: list[tuple[str, str, str, int, int]] = []

    def add(self, proxy: str, fault: Damaged | Torn) -> None:
        what, end = ("damaged", fault.end) if isinstance(fault, Damaged) else ("torn", self._part.end)
        self._rows.append((self._part.path, proxy, what, fault.start, end - fault.start))
        print(f"shoal: {self._part.path}: {what}: {end - fault.start} bytes at {fault.start}", file=sys.stderr)

    def add_dropped(self, reader: IndexReader) -> None:
        if dropped := reader.state.get("dropped"):
            self._rows.append((self._part.path, reader.proxy, "dropped", self._part.start, int(dropped)))

    def table(self) -> pa.RecordBatch:
        rows = [dict(zip(FAULTS.names, row, strict=True)) for row in self._rows]
        return pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(FAULTS))
