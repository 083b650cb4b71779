"""Batches of a few thousand rows, joined into pieces that are large enough for numpy, with strings as dictionaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    import numpy.typing as npt

__all__ = ["encoded", "numbers", "pieces"]


def pieces(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """At least `rows` rows each, except the last one."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield pa.Table.from_batches(waiting)
            waiting, count = [], 0
    if count:
        yield pa.Table.from_batches(waiting)


def encoded(piece: pa.Table) -> dict[str, pa.Array]:
    """The columns by name, each in one chunk; strings become dictionaries."""
    piece = piece.combine_chunks()
    for at, field in enumerate(piece.schema):
        if pa.types.is_string(field.type):
            piece = piece.set_column(at, field.name, piece.column(at).dictionary_encode())
    piece = piece.unify_dictionaries().combine_chunks()
    return {name: piece[name].chunk(0) for name in piece.column_names}


def numbers(column: pa.Array, null: int = 0) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = column.cast(pa.int64()).fill_null(null).to_numpy()
    return found
