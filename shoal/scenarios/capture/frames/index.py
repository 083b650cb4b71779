"""Rows of the index from a raw capture: its frames pass the tap that writes the index, one tap per connection.

A raw capture records client connections, so an envelope is one batch here, and Shoal's handling is not known:
`handling` is `passed`. Frames that were filtered or redacted make no rows; listener and cluster names are not in the
file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.protocol.capture.frames import pcapng_reader
from shoal.protocol.capture.frames.pcapng import CapturedFrame, Sender
from shoal.protocol.capture.index.blocks import Damaged, Torn
from shoal.protocol.capture.index.columns import ROW_SIZE
from shoal.protocol.capture.index.rows import ConnectionInfo
from shoal.protocol.capture.index.sink import MemorySink
from shoal.protocol.capture.index.tap import Tap
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.scenarios.capture.decode import Decoder
from shoal.scenarios.capture.rows import NameTable, as_rows
from shoal.scenarios.capture.schema import chosen
from shoal.scenarios.capture.selection import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from shoal.scenarios.capture.schema import Column
    from shoal.scenarios.capture.selection import Selection

__all__ = ["raw_batches"]

_PIECE: Final = 1024 * 1024
_ROWS: Final = 5_000


def raw_batches(
    path: Path, columns: Sequence[str] | None = None, selection: Selection = EVERYTHING
) -> Iterator[pa.RecordBatch | Damaged | Torn]:
    """Like `batches.record_batches`, for a `*.pcapng` file. Frames after damage are not read. Raises OSError,
    ValueError."""
    wanted = chosen(columns)
    read = _Read()
    size = path.stat().st_size
    for fault in _through(path, read, size):
        yield from _decoded(read, wanted, selection, least=_ROWS if fault is None else 1)
        if fault is not None:
            yield fault
    read.close()
    yield from _decoded(read, wanted, selection, least=1)


class _Read:
    """Taps by process and connection; rows by process."""

    def __init__(self) -> None:
        self.sinks: dict[str, MemorySink] = {}
        self._taps: dict[tuple[str, int], Tap] = {}

    def feed(self, frame: CapturedFrame) -> None:
        tap = self._taps.get((frame.proxy, frame.connection))
        if tap is None:
            sink = self.sinks.setdefault(frame.proxy, MemorySink())
            place = ConnectionInfo(connection=frame.connection, listener="", cluster="")
            tap = self._taps[frame.proxy, frame.connection] = Tap(place, sink)
        chunk = memoryview(frame.frame)
        if chunk:
            (tap.sent if frame.sender is Sender.CLIENT else tap.received)(chunk, frame.time_ns)

    def close(self) -> None:
        for tap in self._taps.values():
            tap.close()


def _through(path: Path, read: _Read, size: int) -> Iterator[Damaged | Torn | None]:
    """None after each piece of the file."""
    decoder, at = pcapng_reader.Decoder(), 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            try:
                for frame in decoder.feed(piece):
                    read.feed(frame)
            except RemoteProtocolError:
                yield Damaged(at, size)
                return
            at += len(piece)
            yield None
    if decoder.torn:
        yield Torn(at - decoder.torn)


def _decoded(read: _Read, wanted: Sequence[Column], selection: Selection, *, least: int) -> Iterator[pa.RecordBatch]:
    for proxy, sink in read.sinks.items():
        if sink.size >= least * ROW_SIZE:
            rows = as_rows(sink.take(), ROW_SIZE)
            names = NameTable(sink.names)
            rows = selection.of(rows, names)
            if len(rows):
                yield Decoder(wanted, names, proxy).decode(rows)
