"""Frames of raw captures (`*.pcapng`), read in pieces of limited size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.protocol.capture.frames.pcapng_reader import Decoder
from shoal.protocol.wire.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shoal.protocol.capture.frames.pcapng import CapturedFrame

__all__ = ["read_frames"]

_PIECE: Final = 1024 * 1024


def read_frames(path: Path) -> Iterator[CapturedFrame]:
    """Frames in the file's order; a torn end is skipped. Raises OSError, and RemoteProtocolError for a damaged file."""
    decoder = Decoder()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            try:
                yield from decoder.feed(piece)
            except RemoteProtocolError as error:
                raise RemoteProtocolError(f"{path}: {error}") from None
