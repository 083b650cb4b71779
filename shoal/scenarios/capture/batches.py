"""An index file as Arrow record batches: reader, selection and decoder in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.scenarios.capture.decode import Decoder
from shoal.scenarios.capture.index import IndexReader, Rows
from shoal.scenarios.capture.rows import NameTable, as_rows
from shoal.scenarios.capture.schema import chosen
from shoal.scenarios.capture.selection import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from shoal.protocol.capture.index.blocks import Damaged, Torn
    from shoal.scenarios.capture.selection import Selection

__all__ = ["record_batches"]


def record_batches(
    reader: IndexReader, columns: Sequence[str] | None = None, selection: Selection = EVERYTHING
) -> Iterator[pa.RecordBatch | Damaged | Torn]:
    """A few thousand rows each, in the file's order, and its faults. Raises OSError, UnreadableFile, ValueError."""
    wanted = chosen(columns)
    names = NameTable(reader.names)
    decoder = None
    for result in reader:
        if not isinstance(result, Rows):
            yield result
            continue
        decoder = decoder or Decoder(wanted, names, reader.proxy)
        rows = selection.of(as_rows(result.payload, reader.row_size), names)
        if len(rows):
            yield decoder.decode(rows)
