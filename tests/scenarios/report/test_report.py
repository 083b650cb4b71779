"""A page is self-contained, and shows any input unchanged."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from shoal.scenarios.report.charts import bars, bytes_label, count_label, histogram, lines, microseconds_label
from shoal.scenarios.report.report import Chart, Column, Fact, Listed, Report, Section, Table
from shoal.scenarios.report.write import write_report


def a_report() -> Report:
    rows = [{"name": "<b>&", "count": 1234567, "share": None}]
    table = Table(
        columns=[Column(key="name", heading="Name"), Column(key="count", heading="Count", form=",d")], rows=rows
    )
    chart = histogram({"a": {4: 3.0, 5: 2.0}, "b": {5: 1.0}}, per_doubling=4, label="x", counted="y", form=bytes_label)
    moments = [datetime(2026, 11, 22, hour, tzinfo=UTC) for hour in range(3)]
    content: list[Chart | Table] = [
        Chart(name="sizes", figure=chart),
        Chart(name="clients", figure=bars({"c" * 100: 5.0}, label="z", form=count_label)),
        Chart(name="times", figure=lines({"t": (moments, [1.0, 2.0, 3.0])}, label="when", counted="many")),
        table,
    ]
    return Report(
        job="a-job",
        title="A job's <title>",
        facts=[Fact(name="Rows", value="3"), Fact(name="Missing", value="1", bad=True)],
        sections=[Section(heading="All", says="What is seen.", content=content)],
        tables={"sizes": Listed(total=70, rows=[*rows, {"name": moments[0]}])},
        summary={"missing": 1},
    )


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in {"link", "img", "iframe"}
        given = dict(attrs)
        self.found += [value or "" for name, value in given.items() if name.split(":")[-1] in {"href", "src"}]
        self.ids += [given["id"] or ""] if "id" in given else []


def test_a_page_needs_nothing_else(tmp_path: Path) -> None:
    links = Links()
    links.feed(write_report(a_report(), tmp_path).read_text())
    assert links.found
    assert all(link.startswith("#") for link in links.found)
    assert {link[1:] for link in links.found} <= set(links.ids)
    assert len(links.ids) == len(set(links.ids))


def test_a_page_has_its_facts_and_cells_and_they_are_no_markup(tmp_path: Path) -> None:
    text = write_report(a_report(), tmp_path).read_text()
    assert "<h1>A job&#x27;s &lt;title&gt;</h1>" in text
    assert "<td>&lt;b&gt;&amp;</td>" in text
    assert '<td class="number" data-value="1234567">1,234,567</td>' in text
    assert '<div class="bad"><dt>Missing</dt><dd>1</dd></div>' in text


def test_a_page_says_what_it_was_made_of(tmp_path: Path) -> None:
    text = write_report(replace(a_report(), origin=("Input: <a>",)), tmp_path).read_text()
    made = r"<div>Made by Shoal \S+, \d{4}-\d\d-\d\d \d\d:\d\d UTC</div>"
    assert re.search(f"<footer><div>Input: &lt;a&gt;</div>{made}", text)


def test_no_colour_of_a_chart_is_fixed(tmp_path: Path) -> None:
    """A dark page has other colours."""
    text = write_report(a_report(), tmp_path).read_text()
    charts = text[text.index("<svg") :]
    assert set(re.findall(r"(?:fill|stroke): ?(#[0-9a-f]{6})", charts)) == set()
    assert "var(--c0)" in charts


def test_charts_are_files_too_and_tables_are_json(tmp_path: Path) -> None:
    write_report(a_report(), tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["clients.png", "sizes.png", "times.png"]
    found = json.loads((tmp_path / "report.json").read_text())
    assert found["missing"] == 1
    assert found["tables"]["sizes"]["rows"] == 70
    assert found["tables"]["sizes"]["first"][1] == {"name": "2026-11-22T00:00:00+00:00"}


@pytest.mark.parametrize(
    ("value", "size", "time"),
    [
        (1.0, "1 B", "1 us"),
        (1023.0, "1,023 B", "1.02 ms"),
        (16384.0, "16 KiB", "16.4 ms"),
        (2.0**50, "1,024 TiB", "1,126 Ms"),
    ],
)
def test_values_have_their_units(value: float, size: str, time: str) -> None:
    assert (bytes_label(value), microseconds_label(value)) == (size, time)
