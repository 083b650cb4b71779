"""Replace byte ranges of a frame; everything else is handed on as slices of it."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shoal.protocol.wire.errors import LocalProtocolError
from shoal.protocol.wire.types import Buffer, write_int32

__all__ = ["Edit", "splice"]


class Edit(NamedTuple):
    """`pieces` stand for the bytes `start`..`end` of the frame."""

    start: int
    end: int
    pieces: Sequence[Buffer]


def splice(frame: Buffer, edits: Iterable[Edit]) -> list[Buffer]:
    """The frame with `edits` made (in any order, none over another) and its size set right.

    What is not replaced is a memoryview of `frame`, which must not change while the result is in use.
    """
    view = memoryview(frame)
    pieces: list[Buffer] = [b""]
    pos = 4
    for edit in sorted(edits, key=lambda edit: edit.start):
        if edit.start < pos:
            raise LocalProtocolError(f"two edits of one frame overlap at {edit.start}")
        pieces.append(view[pos : edit.start])
        pieces += edit.pieces
        pos = edit.end
    pieces.append(view[pos:])
    pieces[0] = write_int32(sum(map(len, pieces)))
    return pieces
