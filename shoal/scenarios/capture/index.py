"""Reads an index file in pieces: rows as bytes, and their names. Needs neither numpy nor the whole file in memory.

A file may be read while it grows, from the end of any block (`start`), and by several readers at once, each with one of
`splits`. A reader that starts in the middle first hops over the earlier blocks, for the names. Damage between two
splits is read by one of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shoal.protocol.capture.frames.pcapng import SHB
from shoal.protocol.capture.index.blocks import Block, BlockType, Damaged, Torn, read_blocks, read_names, read_object
from shoal.protocol.capture.index.columns import ROW_SIZE
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.scenarios.capture.scan import Hop, end_of, hop, read_at, scan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import FileIO
    from pathlib import Path

__all__ = ["PIECE", "IndexReader", "Rows", "UnreadableFile", "require_index", "require_raw", "splits", "whole_until"]

PIECE: Final = 1024 * 1024
"""Minimum bytes of rows per piece: small blocks are joined, since each piece costs its reader some calls."""
_EVERYTHING: Final = 1 << 62
_PROXY: Final = re.compile(r"shoal-([0-9a-f]{8})-")


class UnreadableFile(ValueError):
    """Not an index file, or one with rows that this Shoal does not know."""


class Rows(NamedTuple):
    """`payload`: rows of the reader's `row_size` bytes. `end`: the position in the file to continue at."""

    payload: bytes
    end: int


@dataclass(kw_only=True)
class IndexReader:
    """Iterate: rows, and faults of the file (`Torn` at most once, at the end; continue there when it has grown).

    `names`, `written_by` (the START block), `state` (the last STATE block) and `blocks` grow while reading; a name
    precedes its rows. Iterating raises OSError, and UnreadableFile.
    """

    path: Path
    start: int = 0
    end: int | None = None
    piece: int = PIECE
    names: dict[int, str] = field(default_factory=dict)
    written_by: dict[str, Any] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    row_size: int = ROW_SIZE
    blocks: int = 0

    @property
    def proxy(self) -> str:
        """Id of the process that wrote the file: from its START block, otherwise from the file's name."""
        named = _PROXY.match(self.path.name)
        return str(self.written_by.get("proxy") or (named[1] if named else ""))

    def __iter__(self) -> Iterator[Rows | Damaged | Torn]:
        with self.path.open("rb", buffering=0) as file:
            if self.start:
                self._learn_until(file, self.start)
            yield from self._joined(scan(file, self.start, _EVERYTHING if self.end is None else self.end))

    def _joined(self, results: Iterator[Block | Damaged | Torn]) -> Iterator[Rows | Damaged | Torn]:
        payloads: list[memoryview] = []
        held = end = 0
        for result in results:
            self.blocks += isinstance(result, Block)
            if not isinstance(result, Block):
                yield result
            elif result.kind != BlockType.ROWS:
                self._learn(result)
            elif len(result.payload) % self.row_size:
                yield Damaged(result.start, end_of(result))
            else:
                payloads.append(result.payload)
                held, end = held + len(result.payload), end_of(result)
            if held >= self.piece:
                yield Rows(b"".join(payloads), end)
                payloads, held = [], 0
        if held:
            yield Rows(b"".join(payloads), end)

    def _learn_until(self, file: FileIO, end: int) -> None:
        for found in hop(file, 0, end):
            if found.kind != BlockType.ROWS:
                for block in read_blocks(read_at(file, found.start, found.size), base=found.start):
                    if isinstance(block, Block):
                        self._learn(block)

    def _learn(self, block: Block) -> None:
        try:
            if block.kind == BlockType.NAMES:
                self.names |= read_names(block.payload)
            elif block.kind == BlockType.STATE:
                self.state = read_object(block.payload)
            elif block.kind == BlockType.START:
                self.written_by = read_object(block.payload)
                self.row_size = _row_size(self.path, self.written_by)
        except RemoteProtocolError as error:
            raise UnreadableFile(f"{self.path}: at byte {block.start}: {error}") from error


def _row_size(path: Path, start: dict[str, Any]) -> int:
    """Later versions append fields to a row."""
    size = start.get("row_size")
    if not isinstance(size, int) or size < ROW_SIZE:
        raise UnreadableFile(f"{path}: rows of {size} bytes; this version of Shoal reads those of {ROW_SIZE} and more")
    return size


def require_index(path: Path) -> None:
    """Reads until the first block. An empty file was only just created. Raises OSError, UnreadableFile."""
    with path.open("rb", buffering=0) as file:
        for found in scan(file, 0, _EVERYTHING):
            if not isinstance(found, Damaged):
                return
    if path.stat().st_size:
        raise UnreadableFile(f"{path}: is not a capture index (*.kxb): it has none of its blocks")


def require_raw(path: Path) -> None:
    """Reads the first block's kind. An empty file was only just created. Raises OSError, UnreadableFile."""
    with path.open("rb", buffering=0) as file:
        first = file.read(4)
    if first and first != SHB.to_bytes(4, "little")[: len(first)]:
        raise UnreadableFile(f"{path}: is not a raw capture (*.pcapng): it has no section header")


def splits(path: Path, start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """Ranges of about `size` bytes that end at block ends; together they cover `start` to `end`. Raises OSError."""
    with path.open("rb", buffering=0) as file:
        first = start
        for found in hop(file, start, end):
            if found.start + found.size - first >= size:
                yield first, found.start + found.size
                first = found.start + found.size
        if first < end:
            yield first, end


def whole_until(path: Path, start: int = 0) -> int:
    """The end of the last block that seems complete, not before `start` (an end of a block). Raises OSError."""
    with path.open("rb", buffering=0) as file:
        end = path.stat().st_size
        return max((_end(found) for found in hop(file, start, end)), default=start)


def _end(found: Hop) -> int:
    return found.start + found.size
