"""Replace byte ranges of a frame; the rest is returned as slices of it."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shoal.protocol.wire.errors import LocalProtocolError
from shoal.protocol.wire.types import Buffer, write_int32

__all__ = ["Edit", "splice"]


class Edit(NamedTuple):
    """`pieces` replace the bytes `start`..`end` of the frame."""

    start: int
    end: int
    pieces: Sequence[Buffer]


def splice(frame: Buffer, edits: Iterable[Edit]) -> list[Buffer]:
    """The frame with `edits` applied (in any order, not overlapping) and its size corrected.

    Unchanged ranges are memoryviews of `frame`, which must not change while the result is in use. Raises
    LocalProtocolError when edits overlap.
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
