"""`batch-sizes` folds rows where they are read: a table of sums, a few thousand rows for a million.

A part of a file is read in pieces of PIECE rows; each piece gives sums (`sizes.py`) and runs (`gaps.py`), in one table
whose other columns are null: so one pass makes both. Spark then sums the results of all pieces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from shoal.scenarios.jobs.batch_sizes.gaps import RUN, runs
from shoal.scenarios.jobs.batch_sizes.sizes import COUNTED, added, counted
from shoal.scenarios.jobs.columns.groups import is_word
from shoal.scenarios.jobs.columns.pieces import encoded, pieces

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
_MERGED: Final = 200_000
"""Sums in memory, about 20 MB."""


def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """`batches`: with COLUMNS, in the order of their file. -> FOLDED."""
    counts: list[pa.RecordBatch] = []
    for piece in pieces(batches, PIECE):
        rows = _of_clients(piece)
        if rows.num_rows:
            counts.append(counted(rows))
            yield _widened(runs(rows))
        if sum(map(len, counts)) >= _MERGED:
            yield from map(_widened, added(counts))
            counts.clear()
    yield from map(_widened, added(counts))


def _of_clients(piece: pa.Table) -> pa.Table:
    """Batches of clients: not the brokers' control batches, and not Shoal's own. Messages of the formats before Kafka
    0.11 have no batches, and no sizes."""
    column = encoded(piece)
    control = column["control"].to_numpy(zero_copy_only=False)
    wanted = is_word(column["kind"], "batch") & ~is_word(column["handling"], "own") & ~control
    wanted &= column["batch_bytes"].to_numpy() > 0
    found = pa.table(column)
    return found if wanted.all() else found.filter(pa.array(wanted)).combine_chunks()


def _widened(batch: pa.RecordBatch) -> pa.RecordBatch:
    found = {field.name: batch[field.name] for field in batch.schema}
    columns = [found.get(field.name, pa.nulls(batch.num_rows, field.type)) for field in FOLDED]
    return pa.RecordBatch.from_arrays(columns, schema=FOLDED)
