"""A split is the input of one task: a range of a captured file; its faults are collected."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from shoal.protocol.capture.index.blocks import Damaged, Torn
from shoal.scenarios.capture.batches import record_batches
from shoal.scenarios.capture.index import IndexReader
from shoal.scenarios.jobs.source.options import FAULTS, Options

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Faults", "IndexSplit", "read_split"]


@dataclass(frozen=True)
class IndexSplit(InputPartition):
    """A range of one file. Both ends are ends of blocks."""

    path: str
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def read_split(split: IndexSplit, options: Options) -> Iterator[pa.RecordBatch]:
    reader = IndexReader(path=Path(split.path), start=split.start, end=split.end)
    found = Faults(split)
    results = reader if options.faults else record_batches(reader, options.columns, options.selection)
    for result in results:
        if isinstance(result, (Damaged, Torn)):
            found.add(reader.proxy, result)
        elif isinstance(result, pa.RecordBatch):
            yield result
    if options.faults:
        found.add_dropped(reader)
        yield found.table()


class Faults:
    """The faults of one split: written to the task's log, and kept for the table."""

    def __init__(self, split: IndexSplit) -> None:
        self._split = split
        self._rows: list[tuple[str, str, str, int, int]] = []

    def add(self, proxy: str, fault: Damaged | Torn) -> None:
        what, end = ("damaged", fault.end) if isinstance(fault, Damaged) else ("torn", self._split.end)
        self._rows.append((self._split.path, proxy, what, fault.start, end - fault.start))
        print(f"shoal: {self._split.path}: {what}: {end - fault.start} bytes at {fault.start}", file=sys.stderr)

    def add_dropped(self, reader: IndexReader) -> None:
        if dropped := reader.state.get("dropped"):
            self._rows.append((self._split.path, reader.proxy, "dropped", self._split.start, int(dropped)))

    def table(self) -> pa.RecordBatch:
        rows = [dict(zip(FAULTS.names, row, strict=True)) for row in self._rows]
        return pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(FAULTS))
