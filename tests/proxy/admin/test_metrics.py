"""The table of metrics: names as Prometheus wants them, and a guide that has all of them."""

from __future__ import annotations

import re

import pytest

from shoal.proxy.admin.metrics.metric import Metric, code
from shoal.proxy.admin.metrics.table import METRICS
from shoal.proxy.statistics import CloseCause
from tests.ops.reference import GUIDE, written

_UNITS = ("bytes", "seconds", "ratio", "info")


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_prometheus_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"shoal_[a-z0-9_]+[a-z0-9]", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.name.endswith("_info") == (metric.kind == "info")
    assert metric.kind != "histogram" or metric.name.endswith("_seconds")
    assert metric.help.endswith((".", "%."))


def test_names_are_unique() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_the_guide_is_not_stale() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    assert guide == written(guide), "run python -m tests.ops.reference"


def test_reasons_have_stable_codes() -> None:
    assert code(CloseCause.CLIENT_LOST) == "client_lost"
