"""What is in the index files of a directory, as plain rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.capture.index import IndexReader, Rows
from shoal.protocol.capture.columns import ROW_SIZE
from tests.protocol.capture.readable import read_row

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["content", "files", "whole_index"]


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.kxb"))


def content(path: Path) -> tuple[IndexReader, list[dict[str, Any]], list[Any]]:
    """The reader, at the file's end; the rows; what is torn or damaged."""
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
