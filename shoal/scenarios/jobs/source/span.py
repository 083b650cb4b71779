"""The time range of a capture without reading it: its first and last rows, or the statistics of Parquet."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq

from shoal.protocol.capture.index.blocks import HEADER_SIZE, BlockType, read_object
from shoal.protocol.capture.index.columns import ROW_SIZE
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.scenarios.capture.files import capture_files
from shoal.scenarios.capture.scan import hop, read_at
from shoal.scenarios.jobs.source.reading import source_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import FileIO

    from shoal.scenarios.capture.scan import Hop

__all__ = ["time_span"]

_TIME: Final = Struct("<q")  # the first field of a row
_COLUMN: Final = "time_ns"


def time_span(source: str) -> tuple[int, int] | None:
    """Nanoseconds of the capture's clock. None: not known, as for an object store or raw captures."""
    if "://" in source:
        return None
    kind = source_of(source)
    times = list(_TIMES[kind](Path(source))) if kind in _TIMES else []
    return (min(times), max(times)) if times else None


def _index_times(path: Path) -> Iterator[int]:
    """The first and the last row of each file: rows are written in about this order."""
    for capture in capture_files(path):
        with capture.path.open("rb", buffering=0) as file:
            blocks = list(hop(file, 0, capture.path.stat().st_size))
            if rows := [block for block in blocks if block.kind == BlockType.ROWS]:
                last = rows[-1].start + rows[-1].size - _row_size(file, blocks[0])
                for at in (rows[0].start + HEADER_SIZE, last):
                    yield _TIME.unpack(read_at(file, at, _TIME.size))[0]


def _row_size(file: FileIO, first: Hop) -> int:
    """As the writer states it at the start of the file: later versions append fields to a row."""
    with suppress(RemoteProtocolError):  # damaged, or another block
        size = read_object(read_at(file, first.start + HEADER_SIZE, first.size - HEADER_SIZE)).get("row_size")
        return size if isinstance(size, int) else ROW_SIZE
    return ROW_SIZE


def _parquet_times(path: Path) -> Iterator[int]:
    for part in path.rglob("*.parquet") if path.is_dir() else (path,):
        metadata = pq.read_metadata(part)
        names = [metadata.schema.column(number).name for number in range(metadata.num_columns)]
        if _COLUMN in names:
            for group in range(metadata.num_row_groups):
                found = metadata.row_group(group).column(names.index(_COLUMN)).statistics
                if found is not None and found.has_min_max:
                    yield from (found.min, found.max)


_TIMES: Final = {"shoal": _index_times, "parquet": _parquet_times}
