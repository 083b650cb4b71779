"""Tables and sizes for people. `rich` loads slowly, so it is imported when something is drawn."""

from __future__ import annotations

import sys
from io import StringIO
from typing import TYPE_CHECKING, Final

from shoal.command_line import printable, say

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.table import Table

__all__ = ["as_text", "bytes_text", "show", "table"]

_WIDE: Final = 1000  # columns of a file or pipe: nothing is cut
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


def bytes_text(size: float) -> str:
    """In powers of 1000, as disks and networks have them."""
    for unit in _UNITS:
        if size < 1000 or unit == _UNITS[-1]:
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def table(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> Table:
    """A column whose name begins with `>` is aligned to the right. Cells are escaped."""
    from rich.table import Table
    from rich.text import Text

    found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        is_number = column.startswith(">")
        found.add_column(
            column.removeprefix(">"), justify="right" if is_number else "left", overflow="fold", no_wrap=is_number
        )
    for row in rows:
        found.add_row(*(Text(printable(str(cell))) for cell in row))
    return found


def as_text(drawn: object) -> str:
    """For standard output: as wide as its terminal."""
    from rich.console import Console

    is_terminal, text = sys.stdout.isatty(), StringIO()
    width = None if is_terminal else _WIDE
    Console(file=text, force_terminal=is_terminal, width=width, no_color=not is_terminal).print(drawn)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def show(drawn: object) -> None:
    """Raises OutputError."""
    say(as_text(drawn))
