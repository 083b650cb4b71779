"""Compacted captures in parts, each read by pyarrow with its strings as dictionaries. Local files only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shoal.scenarios.capture.decode import arrow_schema
from shoal.scenarios.capture.schema import Type, chosen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shoal.scenarios.capture.selection import Selection
    from shoal.scenarios.jobs.source.options import Options

__all__ = ["ParquetPart", "parquet_parts", "read_parquet"]

_ROWS = 250_000  # of a batch
_TYPES = {pa.string(): pa.dictionary(pa.int32(), pa.string())}  # as it is read: a task joins the rows of several files


@dataclass(frozen=True, slots=True)
class ParquetPart:
    """Row groups of a file, from `start` and before `end`; None: to the last. `size`: bytes, approximately."""

    path: str
    size: int
    start: int = 0
    end: int | None = None


def parquet_parts(path: Path, split: int) -> list[ParquetPart]:
    """Parts of a directory or a file. Names that Spark ignores (`_...`, `....`) are skipped; large files are split."""
    return [part for file in _files(path) for part in _divided(file, split)]


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = sorted(path.rglob("*.parquet"))
    return [
        file for file in found if file.is_file() and not any(_is_hidden(part) for part in file.relative_to(path).parts)
    ]


def _is_hidden(name: str) -> bool:
    return name.startswith(("_", "."))


def _divided(file: Path, split: int) -> list[ParquetPart]:
    size = file.stat().st_size
    if size <= split:
        return [ParquetPart(str(file), size)]
    groups = pq.read_metadata(file).num_row_groups
    step = max(1, groups * split // size)
    return [ParquetPart(str(file), size * step // groups, at, min(at + step, groups)) for at in range(0, groups, step)]


def read_parquet(part: ParquetPart, options: Options) -> Iterator[pa.RecordBatch]:
    """Rows in the order of the file; a column that the file lacks is null."""
    schema = arrow_schema(chosen(options.columns))
    names = set(pq.read_schema(part.path).names)
    strings = [column.name for column in chosen(options.columns) if column.type is Type.STRING and column.name in names]
    with pq.ParquetFile(part.path, read_dictionary=strings) as file:
        groups = range(part.start, file.num_row_groups if part.end is None else part.end)
        for batch in file.iter_batches(_ROWS, row_groups=list(groups), columns=schema.names, use_threads=False):
            yield _selected(_filled(batch, schema), options.selection)


def _filled(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = {field.name: pa.nulls(batch.num_rows, _TYPES.get(field.type, field.type)) for field in schema}
    columns |= {name: batch[name] for name in batch.schema.names}
    return pa.RecordBatch.from_pydict(columns)


def _selected(batch: pa.RecordBatch, selection: Selection) -> pa.RecordBatch:
    """Client ids are not selected: the data source has no such option."""
    if selection.topics is not None:
        wanted = pa.array(sorted(selection.topics), pa.string())
        batch = batch.filter(pc.is_in(batch["topic"].cast(pa.string()), value_set=wanted))
    if selection.from_ns is not None:
        batch = batch.filter(pc.greater_equal(batch["time_ns"], selection.from_ns))
    if selection.to_ns is not None:
        batch = batch.filter(pc.less(batch["time_ns"], selection.to_ns))
    return batch
