"""Formats values, and reads and formats times."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["aligned", "parse_time", "show_time", "widths"]

_NS = 1_000_000_000


def parse_time(text: str) -> int:
    """ISO 8601 (UTC without a zone) or seconds of Unix time -> nanoseconds. Raises ValueError."""
    try:
        return round(float(text) * _NS)
    except ValueError:
        found = datetime.fromisoformat(text)
    since = (found if found.tzinfo else found.replace(tzinfo=UTC)) - datetime.fromtimestamp(0, UTC)
    return (since.days * 86_400 + since.seconds) * _NS + since.microseconds * 1000


def show_time(time_ns: int | None) -> str:
    """Milliseconds, UTC."""
    if time_ns is None:
        return "-"
    at = datetime.fromtimestamp(time_ns // _NS, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{time_ns % _NS // 1_000_000:03d}Z"


def widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def aligned(row: Sequence[str], sizes: Sequence[int], left: Sequence[bool]) -> str:
    """`left`: which columns are left-aligned; the others are right-aligned."""
    cells = (
        cell.ljust(size) if is_left else cell.rjust(size) for cell, size, is_left in zip(row, sizes, left, strict=True)
    )
    return "  ".join(cells).rstrip()
