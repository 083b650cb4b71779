"""`shoal capture cat`: rows as a table, or as lines of JSON."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from shoal.command_line import printable
from shoal.protocol.capture.index.blocks import Damaged
from shoal.scenarios.capture.batches import record_batches
from shoal.scenarios.capture.frames.index import raw_batches
from shoal.scenarios.capture.index import IndexReader
from shoal.scenarios.capture.schema import COLUMNS, Type, chosen
from shoal.scenarios.capture.text import aligned, show_time, widths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from shoal.protocol.capture.index.blocks import Torn
    from shoal.scenarios.capture.files import CaptureFile
    from shoal.scenarios.capture.selection import Selection

__all__ = ["DEFAULT_COLUMNS", "as_json", "as_table", "rows"]

DEFAULT_COLUMNS: Final = (
    "time_ns",
    "client",
    "direction",
    "handling",
    "topic",
    "partition",
    "base_offset",
    "records",
    "batch_bytes",
    "codec",
    "latency_ns",
)
_PAGE: Final = 200
"""Column widths are computed anew after this many rows: a table is printed while it is read."""


def rows(
    files: Iterable[CaptureFile],
    columns: Sequence[str] | None,
    selection: Selection,
    skipped: Callable[[Path, Damaged], None],
) -> Iterator[dict[str, Any]]:
    """Rows of all files, one file after the other; `skipped` gets what is damaged. Raises OSError, ValueError."""
    for file in files:
        for batch in _batches(file.path, columns, selection):
            if isinstance(batch, pa.RecordBatch):
                yield from batch.to_pylist()
            elif isinstance(batch, Damaged):
                skipped(file.path, batch)


def _batches(
    path: Path, columns: Sequence[str] | None, selection: Selection
) -> Iterator[pa.RecordBatch | Damaged | Torn]:
    if path.suffix == ".pcapng":
        return raw_batches(path, columns, selection)
    return record_batches(IndexReader(path=path), columns, selection)


def as_json(found: Iterable[dict[str, Any]]) -> Iterator[str]:
    return map(json.dumps, found)


def as_table(found: Iterator[dict[str, Any]], columns: Sequence[str]) -> Iterator[str]:
    left = [column.type is Type.STRING or column.name == "time_ns" for column in chosen(columns)]
    sizes = [0] * len(columns)
    while page := [[_shown(name, row[name]) for name in columns] for row in islice(found, _PAGE)]:
        titles = [list(columns)] if not any(sizes) else []
        sizes = [max(pair) for pair in zip(sizes, widths(titles + page), strict=True)]
        yield from (aligned(row, sizes, left) for row in titles + page)


def _shown(name: str, value: object) -> str:
    if value is None:
        return "-"
    if name == "time_ns":
        return show_time(int(str(value)))
    return str(value).lower() if COLUMNS[name].type is Type.BOOLEAN else printable(str(value))
