"""Frames of raw captures (`*.pcapng`), read by pieces of bounded size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.protocol.capture.frames.pcapng_reader import Decoder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shoal.protocol.capture.frames.pcapng import CapturedFrame

__all__ = ["read_frames"]

_PIECE: Final = 1024 * 1024


def read_frames(path: Path) -> Iterator[CapturedFrame]:
    """In the file's order; a torn end is passed over. Raises OSError, and RemoteProtocolError where the file is damaged."""
    decoder = Decoder()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield from decoder.feed(piece)
