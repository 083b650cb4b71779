"""The capture files of a directory: the index as plain rows, raw captures as frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.protocol.capture.frames.pcapng_reader import Decoder
from shoal.protocol.capture.index.columns import ROW_SIZE
from shoal.scenarios.capture.index import IndexReader, Rows
from tests.support.captures.readable import read_row

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.protocol.capture.frames.pcapng import CapturedFrame

__all__ = ["content", "files", "whole_index", "whole_raw_capture"]


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.kxb"))


def content(path: Path) -> tuple[IndexReader, list[dict[str, Any]], list[Any]]:
    """-> the reader, at the file's end; the rows; torn and damaged places."""
    reader = IndexReader(path=path)
    rows, wrong = [], []
    for found in reader:
        if isinstance(found, Rows):
            pieces = (found.payload[at : at + ROW_SIZE] for at in range(0, len(found.payload), ROW_SIZE))
            rows += [read_row(piece, reader.names) for piece in pieces]
        else:
            wrong.append(found)
    return reader, rows, wrong


def whole_index(directory: Path) -> list[dict[str, Any]]:
    """All rows; every file must have been closed, with nothing dropped."""
    rows = []
    for path in files(directory):
        reader, found, wrong = content(path)
        assert not wrong
        assert reader.state == {"written": len(found), "dropped": 0, "closed": True}
        rows += found
    return rows


def whole_raw_capture(directory: Path) -> list[CapturedFrame]:
    """All frames; no file may be torn."""
    decoder = Decoder()
    frames: list[CapturedFrame] = []
    for path in sorted(directory.glob("shoal-*.pcapng")):
        frames += decoder.feed(path.read_bytes())
        assert (decoder.torn, decoder.incomplete) == (0, 0)
    return frames
