"""A `Report` as one HTML page, light or dark as the browser prefers.

Style and charts are inline, and nothing is loaded. The only script sorts a table by the column that is clicked.
"""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime
from html import escape
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

from shoal.scenarios.report.charts import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from shoal.scenarios.report.report import Chart, Column, Fact, Report, Section, Table

__all__ = ["page"]

_STYLE: Final = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1d2733; --dim: #5b6775; --line: #d9dfe6; --bad: #b3261e;
        --c0: #17677f; --c1: #d1782b; --c2: #6d8f3c; --c3: #8a4f9e; --c4: #b3453f; --c5: #4f6d9e; --c6: #8c7a4b;
        --c7: #5b6775; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14191f; --ink: #e3e9ef; --dim: #9fadba; --line: #33404c; --bad: #ff8a80;
          --c0: #4fb3d0; --c1: #eda365; --c2: #a3c76b; --c3: #c08fd6; --c4: #ea8a83; --c5: #8facdf; --c6: #c9b67f;
          --c7: #9fadba; }
}
body { font: 15px/1.5 "Segoe UI", Ubuntu, "DejaVu Sans", Arial, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 62rem; margin: 2rem auto 4rem; padding: 0 1.5rem; }
h1 { font-size: 1.7rem; margin: 0 0 1rem; } h2 { font-size: 1.2rem; margin: 2.6rem 0 .3rem; }
p { margin: .2rem 0 .9rem; max-width: 46rem; color: var(--dim); }
dl { display: flex; flex-wrap: wrap; gap: .7rem; margin: 0; }
dl div { border: 1px solid var(--line); border-radius: 6px; padding: .45rem .9rem; min-width: 7rem; }
dt { color: var(--dim); font-size: .8rem; } dd { margin: 0; font-size: 1.1rem; font-variant-numeric: tabular-nums; }
.bad dd { color: var(--bad); font-weight: 600; }
figure { margin: 0 0 1rem; } svg { width: 100%; height: auto; display: block; } svg text { fill: var(--ink); }
.scroll { overflow: auto; max-height: 34rem; }
table { border-collapse: separate; border-spacing: 0; width: 100%; font-size: .87rem;
        font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; border-bottom: 2px solid var(--line); vertical-align: bottom; cursor: pointer;
     position: sticky; top: 0; background: var(--paper); }
th[aria-sort=ascending]::after { content: " \\2191"; } th[aria-sort=descending]::after { content: " \\2193"; }
th, td { padding: .28rem .8rem .28rem 0; } td { border-bottom: 1px solid var(--line); }
.number { text-align: right; white-space: nowrap; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: .6rem; color: var(--dim);
         font-size: .85rem; }
footer div { overflow-wrap: anywhere; }
""".strip()

_SCRIPT: Final = """
document.querySelectorAll("th").forEach((head) => head.addEventListener("click", () => {
  const column = head.cellIndex, down = head.getAttribute("aria-sort") !== "descending";
  const body = head.closest("table").tBodies[0], number = head.classList.contains("number");
  const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
  const figure = (text) => text === "" ? -1e300 : +text;
  const order = (a, b) => {
    const difference = number ? figure(a) - figure(b) : NaN;
    return isNaN(difference) ? a.localeCompare(b, undefined, { numeric: true }) : difference;
  };
  const rows = [...body.rows].sort((a, b) => order(value(a), value(b)));
  head.parentNode.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  body.append(...(down ? rows.reverse() : rows));
}));
""".strip()

# Colours of `charts.py`, as variables of the style: dark pages have others.
_VARIABLES: Final = {
    **{colour: f"var(--c{number})" for number, colour in enumerate(COLOURS)},
    "#1d2733": "var(--ink)",
    "#5b6775": "var(--dim)",
    "#d9dfe6": "var(--line)",
    "#ffffff": "var(--paper)",
}
_COLOUR: Final = re.compile("|".join(_VARIABLES))


def page(report: Report) -> str:
    facts = "".join(map(_fact, report.facts))
    sections = "".join(map(_section, report.sections))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(report.title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>\n{_STYLE}\n</style>\n</head>\n'
        f"<body>\n<h1>{escape(report.title)}</h1>\n<dl>{facts}</dl>\n{sections}{_footer(report)}"
        f"<script>\n{_SCRIPT}\n</script>\n</body>\n</html>\n"
    )


def _footer(report: Report) -> str:
    """What the page was made of, by whom and when."""
    made = f"Made by Shoal {_version()}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    return f"<footer>{''.join(f'<div>{escape(line)}</div>' for line in (*report.origin, made))}</footer>\n"


def _version() -> str:
    try:
        return version("shoal")
    except PackageNotFoundError:  # a worker has the package as a zip
        return "(not installed)"


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
    svg = re.sub(r'(id="|href="#|url\(#)', lambda found: found[1] + mark, svg)
    return _COLOUR.sub(lambda found: _VARIABLES[found[0]], svg)


def _table(table: Table) -> str:
    if not table.rows:
        return "<p>None.</p>\n"
    head = "".join(f"<th{_class(column)}>{escape(column.heading)}</th>" for column in table.columns)
    body = "".join(
        f"<tr>{''.join(_cell(column, row[column.key]) for column in table.columns)}</tr>" for row in table.rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>\n'


def _class(column: Column) -> str:
    return "" if column.form is None else ' class="number"'


def _cell(column: Column, value: Any) -> str:
    """Numbers are sorted by their value, since their text has separators and units."""
    if column.form is None:
        return f"<td>{'-' if value is None else escape(str(value))}</td>"
    text = "-" if value is None else escape(format(value, column.form))
    return f'<td{_class(column)} data-value="{"" if value is None else escape(str(value))}">{text}</td>'
