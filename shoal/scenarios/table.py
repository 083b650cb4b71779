"""Plain text tables: the first column is left-aligned, figures are right-aligned."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RULE", "number", "ratio", "render"]

RULE: Sequence[str] = ()  # a row that is drawn as a line
GAP = "   "


def render(rows: Sequence[Sequence[str]]) -> str:
    """The first row is the heading. A shorter row leaves its last columns empty; an empty row is a rule."""
    columns = max(len(row) for row in rows)
    padded = [[*row, *[""] * (columns - len(row))] if row else None for row in rows]
    widths = [max(len(row[at]) for row in padded if row) for at in range(columns)]
    line = "─" * (sum(widths) + len(GAP) * (columns - 1))
    return "\n".join(line if row is None else _line(row, widths) for row in padded)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = row
    cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
    return GAP.join(cells).rstrip()


def number(value: float | None, digits: int = 1) -> str:
    """A number with a thousands separator; a dash where nothing was measured."""
    return "-" if value is None else f"{value:,.{digits}f}"


def ratio(larger: float | None, smaller: float | None, digits: int = 1) -> str:
    """`larger` / `smaller`; a dash if either is missing or zero."""
    return "-" if not larger or not smaller else f"{larger / smaller:.{digits}f}x"
