"""Blocks of a file that may be large, damaged, and still growing: read by windows, or hopped over.

`scan` checks every block. `hop` reads headers only and trusts their lengths, which is enough to find names and split
points. A wrong length is noticed, since no header follows at its end: then the blocks after the last hop are read in
full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from shoal.protocol.capture.index.blocks import HEADER_SIZE, MAX_PAYLOAD, Block, Damaged, Torn, peek_block, read_blocks

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from io import FileIO

__all__ = ["Hop", "end_of", "hop", "read_at", "scan"]

WINDOW: Final = HEADER_SIZE + MAX_PAYLOAD + 65_536
"""Bytes read at once. The largest block fits, so a block that one window cuts off is complete in the next."""


class Hop(NamedTuple):
    """A block that was not read: `size` includes its header."""

    start: int
    kind: int
    size: int


def end_of(block: Block) -> int:
    return block.start + HEADER_SIZE + len(block.payload)


def read_at(file: FileIO, start: int, size: int) -> bytes:
    """Fewer bytes than `size` only at the file's end."""
    file.seek(start)
    pieces = []
    while size > 0 and (piece := file.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def scan(file: FileIO, start: int, end: int) -> Iterator[Block | Damaged | Torn]:
    """Blocks and faults between two positions; `end` may be beyond the file's end. Adjacent damage is one range."""
    hit: Damaged | None = None
    for result in _windows(file, start, end):
        if isinstance(result, Damaged):
            hit = Damaged(hit.start if hit else result.start, result.end)
            continue
        if hit:
            yield hit
            hit = None
        yield result
    if hit:
        yield hit


def _windows(file: FileIO, start: int, end: int) -> Iterator[Block | Damaged | Torn]:
    while start < end:
        data = read_at(file, start, min(WINDOW, end - start))
        is_last = len(data) < WINDOW or start + len(data) >= end
        following = start + len(data)
        for result in read_blocks(data, base=start):
            if isinstance(result, Torn) and not is_last:
                following = result.start
            else:
                yield result
        if is_last:
            return
        start = following


def hop(file: FileIO, start: int, end: int) -> Iterator[Hop]:
    """The blocks that end before `end`. After a wrong length, blocks may be reported twice."""
    last = start
    while start + HEADER_SIZE <= end:
        peeked = peek_block(read_at(file, start, HEADER_SIZE))
        if peeked is None:
            start = last = yield from _read_on(file, last, start, end)
            continue
        kind, size = peeked
        if start + size > end:
            yield from _read_on(file, last, end, end)
            return
        yield Hop(start, kind, size)
        last, start = start, start + size


def _read_on(file: FileIO, start: int, behind: int, end: int) -> Generator[Hop, None, int]:
    """Read in full from `start` until a complete block ends after `behind`; returns its end."""
    for result in scan(file, start, end):
        if isinstance(result, Block):
            yield Hop(result.start, result.kind, end_of(result) - result.start)
            if end_of(result) > behind:
                return end_of(result)
    return end
