from typing import Any

import pytest

from bench.overhead.report import LITTLE, Figures, as_json, as_tables
from bench.proxies.names import DIRECT, HAPROXY, SHOAL
from bench.runs import Forwarding, Lone, percentile


@pytest.fixture
def figures() -> Figures:
    """Three rounds, the second of which was disturbed."""
    figures = Figures()
    for slow in (1, 5, 1):
        forwarding, lone = figures.forwarding["fetch"], figures.lone["Fetch"]
        forwarding[DIRECT].append(Forwarding(None, 2.0, 2.0 * slow))
        forwarding[HAPROXY].append(Forwarding(1.0 * slow, 2.0, 2.5))
        forwarding[SHOAL].append(Forwarding(0.8 * slow, 2.0, 2.5))
        figures.forwarding["wrap"][SHOAL].append(Forwarding(1.2 * slow, 2.0, 4.0))
        for way, added in ((DIRECT, 0), (HAPROXY, 30), (SHOAL, 80)):
            lone[way].append(Lone(p50=100.0 * slow + added, p99=200.0 * slow + 2 * added))
    figures.peak_mib[HAPROXY] = {"idle": 15.04, "1,000 idle connections": 18.0}
    figures.peak_mib[SHOAL] = {"idle": 36.0, "1,000 idle connections": 48.0}
    return figures


def test_medians_are_per_way_and_added_latency_is_per_round(figures: Figures) -> None:
    report: Any = as_json(figures, kafka="4.3.0")
    assert report["kafka"] == "4.3.0"
    assert report["forwarding"]["fetch"] == {
        DIRECT: {"cpu_s_per_gib": None, "gib_per_s": 1.0},
        HAPROXY: {"cpu_s_per_gib": 0.5, "gib_per_s": 0.8},
        SHOAL: {"cpu_s_per_gib": 0.4, "gib_per_s": 0.8},
    }
    assert report["latency_us"]["Fetch"][SHOAL] == {"p50": 180.0, "p99": 360.0, "added_p50": 80.0, "added_p99": 160.0}
    assert report["peak_mib"][HAPROXY]["idle"] == 15.0


def test_tables_set_the_ways_side_by_side(figures: Figures) -> None:
    lines = as_tables(as_json(figures)).splitlines()
    assert ["fetch", "0.50", "0.40", "0.80x", "1.00", "0.80", "0.80"] in [line.split() for line in lines]
    assert ["wrap", "-", "0.60", "-", "-", "-", "0.50"] in [line.split() for line in lines]
    assert ["Fetch", "100", "200", "30", "60", "80", "160"] in [line.split() for line in lines]


def test_a_way_that_was_not_there_leaves_its_columns_empty(figures: Figures) -> None:
    del figures.forwarding["fetch"][HAPROXY], figures.lone["Fetch"][HAPROXY], figures.peak_mib[HAPROXY]
    lines = [line.split() for line in as_tables(as_json(figures)).splitlines()]
    assert ["fetch", "-", "0.40", "-", "1.00", "-", "0.80"] in lines
    assert ["idle", "-", "36.0"] in lines


def test_what_was_not_measured_has_no_table(figures: Figures) -> None:
    figures.lone.clear()
    assert "lone request" not in as_tables(as_json(figures))


@pytest.mark.parametrize(("percent", "value"), [(50, 5), (99, 10), (100, 10), (1, 1)])
def test_percentiles_are_by_nearest_rank(percent: int, value: int) -> None:
    assert percentile(list(range(1, 11)), percent) == value


def test_little_requests_are_counted_and_not_weighed(figures: Figures) -> None:
    for name, cpu in zip(LITTLE, (0.5, 0.6), strict=True):
        figures.forwarding[name][SHOAL].append(Forwarding(cpu, 0.01, 2.0, 10_000))
    lines = [line.split() for line in as_tables(as_json(figures)).splitlines()]
    assert [*LITTLE[0].split(), "50.0", "5,000"] in lines
    assert [*LITTLE[1].split(), "60.0", "5,000"] in lines
    assert sum(line[:2] == ["produce", "of"] for line in lines) == 2


def test_what_the_index_costs_has_a_table_of_its_own(figures: Figures) -> None:
    assert "the index" not in as_tables(as_json(figures))
    figures.index_us = {"fetched": 0.4, "produced": 23.0}
    lines = [line.split() for line in as_tables(as_json(figures)).splitlines()]
    assert ["fetched", "0.40"] in lines
    assert ["produced", "23.00"] in lines
