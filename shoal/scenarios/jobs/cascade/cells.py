"""Counters and how they are stored: a cell is one topic and client in one window of one level.

    Cell   its count (`total`), and how much of it has been emitted (`emitted`): the difference is the next diff
    chunk  the cells of some adjacent windows of a level: one value of the state store, since an access is a round trip

A stored chunk is MessagePack of arrays. A checkpoint outlives the program: increment FORMAT with any change here, and
keep it in the name of the state.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

__all__ = ["COUNTERS", "FORMAT", "Cell", "CellKey", "Counts", "decode_cells", "encode_cells"]

FORMAT: Final = 1
COUNTERS: Final = ("records", "bytes", "batches", "restamped")
"""`restamped`: batches whose own time is impossible, counted in the window in which they were captured."""

Counts = tuple[int, int, int, int]
NOTHING: Final[Counts] = (0, 0, 0, 0)


class CellKey(NamedTuple):
    window: int  # its start, Unix time in seconds
    topic: str
    client: str


class Cell(msgspec.Struct, array_like=True):
    total: Counts = NOTHING
    emitted: Counts = NOTHING
    version: int = 0

    def add(self, counts: Counts) -> None:
        self.total = plus(self.total, counts)

    def emit(self) -> Counts:
        """The increase since the last call."""
        diff = tuple(now - then for now, then in zip(self.total, self.emitted, strict=True))
        self.emitted = self.total
        self.version += 1
        return diff  # type: ignore[return-value]


def plus(left: Counts, right: Counts) -> Counts:
    return left[0] + right[0], left[1] + right[1], left[2] + right[2], left[3] + right[3]


class _Entry(msgspec.Struct, array_like=True):
    window: int
    topic: str
    client: str
    cell: Cell


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[_Entry])


def encode_cells(cells: dict[CellKey, Cell]) -> bytes:
    return _encoder.encode([_Entry(*key, cell) for key, cell in cells.items()])


def decode_cells(data: bytes) -> dict[CellKey, Cell]:
    """Raises msgspec.DecodeError if the checkpoint is another program's, or damaged."""
    return {CellKey(entry.window, entry.topic, entry.client): entry.cell for entry in _decoder.decode(data)}
