"""A `Report` as one HTML page: style and charts are inline, nothing is loaded, no script runs."""

from __future__ import annotations

import io
import re
from html import escape
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from shoal.scenarios.jobs.report.report import Chart, Column, Fact, Report, Section, Table

__all__ = ["page"]

_STYLE: Final = """
:root { --ink: #1d2733; --dim: #5b6775; --line: #d9dfe6; --accent: #17677f; --bad: #b3261e; }
body { font: 15px/1.5 "Segoe UI", Ubuntu, "DejaVu Sans", Arial, sans-serif; color: var(--ink); background: #fff;
       max-width: 62rem; margin: 2rem auto 4rem; padding: 0 1.5rem; }
h1 { font-size: 1.7rem; margin: 0 0 1rem; } h2 { font-size: 1.2rem; margin: 2.6rem 0 .3rem; }
p { margin: .2rem 0 .9rem; max-width: 46rem; color: var(--dim); }
dl { display: flex; flex-wrap: wrap; gap: .7rem; margin: 0; }
dl div { border: 1px solid var(--line); border-radius: 6px; padding: .45rem .9rem; min-width: 7rem; }
dt { color: var(--dim); font-size: .8rem; } dd { margin: 0; font-size: 1.1rem; font-variant-numeric: tabular-nums; }
.bad dd { color: var(--bad); font-weight: 600; }
figure { margin: 0 0 1rem; } svg { width: 100%; height: auto; display: block; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .87rem; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; border-bottom: 2px solid var(--line); vertical-align: bottom; }
th, td { padding: .28rem .8rem .28rem 0; } td { border-bottom: 1px solid var(--line); }
.number { text-align: right; white-space: nowrap; }
""".strip()


def page(report: Report) -> str:
    facts = "".join(map(_fact, report.facts))
    sections = "".join(map(_section, report.sections))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(report.title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>\n{_STYLE}\n</style>\n</head>\n'
        f"<body>\n<h1>{escape(report.title)}</h1>\n<dl>{facts}</dl>\n{sections}</body>\n</html>\n"
    )


def _fact(fact: Fact) -> str:
    kind = ' class="bad"' if fact.bad else ""
    return f"<div{kind}><dt>{escape(fact.name)}</dt><dd>{escape(fact.value)}</dd></div>"


def _section(section: Section) -> str:
    content = "".join(map(_content, section.content))
    return f"<h2>{escape(section.heading)}</h2>\n<p>{escape(section.says)}</p>\n{content}"


def _content(content: Chart | Table) -> str:
    figure: Figure | None = getattr(content, "figure", None)
    if figure is not None:
        return f"<figure>{_svg(figure)}</figure>\n"
    return _table(content)  # type: ignore[arg-type]


def _svg(figure: Figure) -> str:
    """Ids are made unique, since several charts are on one page."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    mark = f"f{id(figure):x}-"
    return re.sub(r'(id="|href="#|url\(#)', lambda found: found[1] + mark, svg)


def _table(table: Table) -> str:
    if not table.rows:
        return "<p>None.</p>\n"
    head = "".join(f"<th{_class(column)}>{escape(column.heading)}</th>" for column in table.columns)
    body = "".join(
        "<tr>"
        + "".join(f"<td{_class(column)}>{_cell(column, row[column.key])}</td>" for column in table.columns)
        + "</tr>"
        for row in table.rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>\n'


def _class(column: Column) -> str:
    return "" if column.form is None else ' class="number"'


def _cell(column: Column, value: Any) -> str:
    if value is None:
        return "-"
    return escape(str(value) if column.form is None else format(value, column.form))
