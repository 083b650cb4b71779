"""The board and the alerts of deploy/ are those of the source, and read only what Shoal exposes.

promtool tries the rules in `make ops`.
"""

from __future__ import annotations

import json
import re
from itertools import chain
from typing import TYPE_CHECKING

import pytest

from tests.ops.monitoring.alerts import ALERTS, Alert
from tests.ops.monitoring.board import ROWS, Query, expression
from tests.ops.monitoring.examples import EXAMPLES, HEALTHY
from tests.ops.monitoring.expressions import exposed, selectors
from tests.ops.monitoring.files import BOARD, ROOT, wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

QUERIES = [query for row in ROWS for panel in row.panels for query in panel.queries]


def assert_exposed(text: str) -> None:
    series = exposed()
    for selector in selectors(text):
        assert selector.metric in series, f"Shoal has no such metric: {selector.metric}"
        assert selector.labels <= series[selector.metric], selector


def test_the_files_are_not_stale() -> None:
    stale = [str(path.relative_to(ROOT)) for path, text in wanted().items() if path.read_text("utf-8") != text]
    assert stale == [], "run python -m tests.ops.monitoring"


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_reads_metrics_that_shoal_exposes(alert: Alert) -> None:
    assert_exposed(alert.expression)


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.text)
def test_a_panel_reads_metrics_that_shoal_exposes(query: Query) -> None:
    assert_exposed(expression(query))


def test_every_expression_of_the_board_is_one_of_these() -> None:
    """The board has no expression that was not checked above, apart from those of its variables and marks."""
    checked = {expression(query) for query in QUERIES}
    board = json.loads(BOARD.read_text("utf-8"))
    assert {target["expr"] for panel in board["panels"] for target in panel.get("targets", ())} == checked
    for variable in board["templating"]["list"][1:]:
        inner = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
        assert inner is not None
        assert_exposed(inner[1])
    for mark in board["annotations"]["list"]:
        assert_exposed(mark["expr"])


def test_panels_of_the_board_do_not_overlap() -> None:
    taken = [cell for panel in json.loads(BOARD.read_text("utf-8"))["panels"] for cell in _cells(panel["gridPos"])]
    assert len(taken) == len(set(taken))
    assert all(x < 24 for x, _ in taken)


def _cells(place: dict[str, int]) -> Iterator[tuple[int, int]]:
    for x in range(place["x"], place["x"] + place["w"]):
        for y in range(place["y"], place["y"] + place["h"]):
            yield x, y


def test_names_are_unique_and_every_alert_is_tried() -> None:
    names = [alert.name for alert in ALERTS]
    assert len(set(names)) == len(names)
    assert set(EXAMPLES) == set(names)
    series = exposed()
    tried = [HEALTHY, *(example.fires for example in EXAMPLES.values()), *(one.quiet for one in EXAMPLES.values())]
    for text in chain.from_iterable(tried):
        for selector in selectors(text):
            assert selector.labels <= series[selector.metric], selector


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_has_a_way_out_and_a_page(alert: Alert) -> None:
    assert alert.remedy.endswith(".")
    page, _, heading = alert.runbook.partition("#")
    headings = re.findall(r"^### (\w+)$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    assert heading in [found.lower() for found in headings]
    for link in alert.see.values():
        assert (ROOT / "docs" / link.partition("#")[0]).exists()
