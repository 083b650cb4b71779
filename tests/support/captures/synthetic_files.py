"""Rows to real index files, as the proxy would have written them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from shoal.protocol.capture.index.blocks import BlockType, encode_block, encode_names, encode_object
from shoal.protocol.capture.index.columns import VERSION
from tests.support.captures.synthetic import ROW

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.support.captures.synthetic import Array, Chunk

__all__ = ["IndexFiles", "index_bytes"]

ROWS_PER_BLOCK: Final = 4096


@dataclass(slots=True, kw_only=True)
class IndexFiles:
    """`proxy`: eight hexadecimal digits, another one for each process that is pretended. `rows_per_file`: then the next
    file begins."""

    directory: Path
    proxy: str = "00c0ffee"
    rows_per_block: int = ROWS_PER_BLOCK
    rows_per_file: int = 700_000
    closed: bool = True
    _number: int = field(default=0, init=False)

    def write(self, chunks: Iterable[Chunk]) -> list[Path]:
        """Each chunk begins a file. Returns the files in their order."""
        return [self._write(piece, chunk.names) for chunk in chunks for piece in self._pieces(chunk.rows)]

    def _pieces(self, rows: Array) -> Iterator[Array]:
        for start in range(0, len(rows), self.rows_per_file):
            yield rows[start : start + self.rows_per_file]

    def _write(self, rows: Array, names: tuple[str, ...]) -> Path:
        path = self.directory / f"shoal-{self.proxy}-{self._number:08d}.kxb"
        blocks = index_bytes(
            rows, names, proxy=self.proxy, number=self._number, rows_per_block=self.rows_per_block, closed=self.closed
        )
        path.write_bytes(b"".join(blocks))
        self._number += 1
        return path


def index_bytes(
    rows: Array,
    names: tuple[str, ...],
    *,
    proxy: str = "00c0ffee",
    number: int = 0,
    rows_per_block: int = ROWS_PER_BLOCK,
    closed: bool = True,
) -> list[bytes]:
    """The blocks of one index file. A name's number is its place in `names`, from 1."""
    rows = rows.astype(ROW, copy=False)  # joined arrays have the byte order of this machine
    start = {"version": VERSION, "row_size": ROW.itemsize, "proxy": proxy, "host": "synthetic", "pid": 1, "tags": {}}
    blocks = [encode_object(BlockType.START, {**start, "started_ns": 0, "number": number})]
    blocks.append(encode_names(dict(enumerate(names, 1))))
    for first in range(0, len(rows), rows_per_block):
        blocks.append(encode_block(BlockType.ROWS, rows[first : first + rows_per_block].tobytes()))
    blocks.append(encode_object(BlockType.STATE, {"written": len(rows), "dropped": 0, "closed": closed}))
    return blocks
