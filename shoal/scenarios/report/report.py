"""The report of a Spark job or a demo: one self-contained HTML page, the same figures as PNG files, its tables as JSON.

    Report
      facts      what was read, one line each
      sections   a heading, a sentence about the result, and a chart or a table

A job's Parquet tables are complete; its page shows an excerpt. A new job fills a `Report`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future

    from matplotlib.figure import Figure

__all__ = ["Chart", "Column", "Fact", "Listed", "Report", "Section", "Table", "client_label"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """`name`: of its PNG file. `figure`: see `charts.py`."""

    name: str
    figure: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """`form`: a format specification for its values, such as `,.1f`; a column without one is left-aligned text."""

    key: str
    heading: str
    form: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]  # already limited: all are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    heading: str
    says: str
    content: Sequence[Chart | Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """`bad`: highlighted as bad."""

    name: str
    value: str
    bad: bool = False

    @classmethod
    def count(cls, name: str, number: int, *, bad: bool = False) -> Self:
        """`bad`: unless the number is zero."""
        return cls(name=name, value=f"{number:,}", bad=bad and bool(number))


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """The first rows of a Parquet table, and how many it has."""

    total: int
    rows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`tables`: for report.json, by the names of the Parquet tables; a `Future` is awaited when the page is written.
    `summary`: further keys of report.json.

    `origin`: lines of the footer: input, time range, selection."""

    job: str
    title: str
    facts: Sequence[Fact]
    sections: Sequence[Section]
    tables: Mapping[str, Listed | Future[Listed]]
    summary: Mapping[str, Any] = field(default_factory=dict)
    origin: Sequence[str] = ()


def client_label(client: str | None) -> str:
    return client or "(no client id)"
