"""What is counted, and how it is kept: a cell is one topic and client in one window of one level.

    Cell   what it has counted (`total`), and what of that has been told already (`told`): the difference is the next diff
    chunk  the cells of some neighbouring windows of a level: one value of the state store, since each access to it is a round trip

A stored chunk is MessagePack of arrays. A checkpoint outlives the program: raise FORMAT with any change here, and keep it in the name
of the state.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

__all__ = ["COUNTERS", "FORMAT", "Cell", "Counts", "Key", "decode_cells", "encode_cells"]

FORMAT: Final = 1
COUNTERS: Final = ("records", "bytes", "batches", "restamped")
"""`restamped`: batches whose own time cannot be true, counted in the window in which they were captured."""

Counts = tuple[int, int, int, int]
NOTHING: Final[Counts] = (0, 0, 0, 0)


class Key(NamedTuple):
    window: int  # where it begins, Unix time in seconds
    topic: str
    client: str


class Cell(msgspec.Struct, array_like=True):
    total: Counts = NOTHING
    told: Counts = NOTHING
    version: int = 0

    def add(self, counts: Counts) -> None:
        self.total = plus(self.total, counts)

    def tell(self) -> Counts:
        """What has not been told yet, which is told by that."""
        diff = tuple(now - then for now, then in zip(self.total, self.told, strict=True))
        self.told = self.total
        self.version += 1
        return diff  # type: ignore[return-value]


def plus(one: Counts, other: Counts) -> Counts:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3]


class _Entry(msgspec.Struct, array_like=True):
    window: int
    topic: str
    client: str
    cell: Cell


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[_Entry])


def encode_cells(cells: dict[Key, Cell]) -> bytes:
    return _encoder.encode([_Entry(*key, cell) for key, cell in cells.items()])


def decode_cells(data: bytes) -> dict[Key, Cell]:
    """Raises msgspec.DecodeError: the checkpoint is another program's, or damaged."""
    return {Key(entry.window, entry.topic, entry.client): entry.cell for entry in _decoder.decode(data)}
