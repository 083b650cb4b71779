"""Rows of the index out of a raw capture: its frames go through the very tap that writes the index, one for each connection.

A raw capture is of connections of clients, so an envelope is one batch here, and what Shoal did with it is not known: `handling` is
`passed`. Frames that were filtered or withheld make no rows; names of listeners and clusters are not in the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.protocol.capture.frames import pcapng_reader
from shoal.protocol.capture.frames.pcapng import CapturedFrame, Sender
from shoal.protocol.capture.index.blocks import Damaged, Torn
from shoal.protocol.capture.index.columns import ROW_SIZE
from shoal.protocol.capture.index.names import Names
from shoal.protocol.capture.index.rows import Place
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

    from shoal.protocol.wire.types import Topic
    from shoal.scenarios.capture.schema import Column
    from shoal.scenarios.capture.selection import Selection

__all__ = ["raw_batches"]

_PIECE: Final = 1024 * 1024
_ROWS: Final = 5_000


def raw_batches(
    path: Path, columns: Sequence[str] | None = None, selection: Selection = EVERYTHING
) -> Iterator[pa.RecordBatch | Damaged | Torn]:
    """As `batches.record_batches`, of a `*.pcapng` file. What is behind damage is not read. Raises OSError, ValueError."""
    wanted = chosen(columns)
    read = _Read()
    size = path.stat().st_size
    for fault in _through(path, read, size):
        yield from _decoded(read, wanted, selection, least=_ROWS if fault is None else 1)
        if fault is not None:
            yield fault
    read.close()
    yield from _decoded(read, wanted, selection, least=1)


class _Rows:
    """A Sink: what the taps of one process's connections make."""

    def __init__(self) -> None:
        self._names = Names(lambda _cluster, _topic_id: None)
        self.names: dict[int, str] = {}
        self.rows: list[bytes] = []
        self.size = 0

    @property
    def epoch(self) -> int:
        return self._names.epoch

    def number(self, name: str) -> int:
        return self._names.number(name)

    def topic(self, cluster: str, topic: Topic) -> int:
        return self._names.topic(cluster, topic)

    def knows(self, cluster: str, topic: Topic) -> bool:
        return self._names.knows(cluster, topic)

    def add(self, rows: bytes) -> None:
        self.rows.append(rows)
        self.size += len(rows)

    def drop(self, rows: int) -> None:
        pass

    def taken(self) -> bytes:
        self.names |= self._names.taken()
        rows, self.rows, self.size = b"".join(self.rows), [], 0
        return rows


class _Read:
    """Taps by process and connection; rows by process."""

    def __init__(self) -> None:
        self.sinks: dict[str, _Rows] = {}
        self._taps: dict[tuple[str, int], Tap] = {}

    def feed(self, frame: CapturedFrame) -> None:
        tap = self._taps.get((frame.proxy, frame.connection))
        if tap is None:
            sink = self.sinks.setdefault(frame.proxy, _Rows())
            place = Place(connection=frame.connection, listener="", cluster="")
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
            rows = as_rows(sink.taken(), ROW_SIZE)
            names = NameTable(sink.names)
            rows = selection.of(rows, names)
            if len(rows):
                yield Decoder(wanted, names, proxy).decode(rows)
