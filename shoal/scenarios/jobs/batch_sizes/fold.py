"""`batch-sizes` folds rows where they are read: a table of sums, a few thousand rows for a million.

A part of a file is read in pieces of PIECE rows; each piece gives sums (`sizes.py`) and runs (`gaps.py`), in one table
whose other columns are null: so one pass makes both. Spark then sums the results of all pieces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from shoal.scenarios.jobs.batch_sizes.gaps import RUN, runs
from shoal.scenarios.jobs.batch_sizes.groups import is_word
from shoal.scenarios.jobs.batch_sizes.sizes import COUNTED, counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["COLUMNS", "FOLDED", "fold"]

COLUMNS: Final = (
    *("time_ns", "proxy", "connection", "request", "client", "cluster", "kind", "direction", "handling"),
    *("topic", "partition", "records", "batch_bytes", "raw_bytes", "codec", "control"),
)
"""All columns that are read."""
FOLDED: Final = pa.schema([*COUNTED, *(field for field in RUN if field.name not in COUNTED.names)])
"""A row with a `connection` is a run, one without is a sum."""
PIECE: Final = 1_000_000
"""Rows in memory at a time, about 200 MB."""


def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """`batches`: with COLUMNS, in the order of their file. -> FOLDED."""
    for piece in _pieces(batches):
        rows = _of_clients(piece)
        if rows.num_rows:
            yield _widened(counted(rows))
            yield _widened(runs(rows))


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        if count >= PIECE:
            yield pa.Table.from_batches(waiting)
            waiting, count = [], 0
    if count:
        yield pa.Table.from_batches(waiting)


def _of_clients(piece: pa.Table) -> pa.Table:
    """Batches of clients: not the brokers' control batches, and not Shoal's own. Strings become dictionaries."""
    piece = piece.combine_chunks()
    for at, field in enumerate(piece.schema):
        if pa.types.is_string(field.type):
            piece = piece.set_column(at, field.name, piece.column(at).dictionary_encode())
    piece = piece.unify_dictionaries().combine_chunks()
    kind, handling = (piece[name].chunk(0) for name in ("kind", "handling"))
    control = piece["control"].to_numpy()
    wanted = is_word(kind, "batch") & ~is_word(handling, "own") & ~control
    return piece if wanted.all() else piece.filter(pa.array(wanted)).combine_chunks()


def _widened(batch: pa.RecordBatch) -> pa.RecordBatch:
    found = {field.name: batch[field.name] for field in batch.schema}
    columns = [found.get(field.name, pa.nulls(batch.num_rows, field.type)) for field in FOLDED]
    return pa.RecordBatch.from_arrays(columns, schema=FOLDED)
