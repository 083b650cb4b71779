"""The pages of coalescing and cascade, from hand-made tables."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.scenarios.jobs.cascade.levels import CascadeSettings
from shoal.scenarios.jobs.cascade.report import CascadeTables, cascade_report
from shoal.scenarios.jobs.coalescing.latencies import histogram
from shoal.scenarios.jobs.coalescing.prediction import OPEN_LOOP
from shoal.scenarios.jobs.coalescing.report import coalescing_report
from shoal.scenarios.report.report import Listed
from shoal.scenarios.report.write import write_report

NOTHING = Listed(total=0, rows=[])


def _policy(name: str, requests: int) -> dict[str, Any]:
    added = histogram(np.full(1000, 5_000_000)).tolist()
    sums = {"captured": 1000, "alone": 100, "batches": 1000, "bytes": 500_000, "added_ns": 5_000_000_000}
    return {"policy": name, "requests": requests, "added": added, **sums}


def test_a_policy_s_saving_is_of_all_requests(tmp_path: Path) -> None:
    table = Listed(total=2, rows=[_policy("large", 100), _policy("small", 900)])
    report = coalescing_report(table, NOTHING, ["small", "large"], [])
    small, large = report.summary["coalescing"]
    assert (small["policy"], small["requests_saved"]) == ("small", pytest.approx(0.1))
    assert (large["requests_saved"], large["bytes_per_request"]) == (pytest.approx(0.9), 5000)
    assert small["added_ms_p99"] == pytest.approx(5.0, rel=0.095)
    assert small["added_ms_mean"] == pytest.approx(5.0)
    page = write_report(report, tmp_path).read_text()
    assert OPEN_LOOP in page
    assert "large: 90.0%" in page


def test_a_capture_without_produce_requests_has_a_page(tmp_path: Path) -> None:
    page = write_report(coalescing_report(NOTHING, NOTHING, ["a"], []), tmp_path).read_text()
    assert '<div class="bad"><dt>Produce requests</dt><dd>none</dd></div>' in page


def _found(wrong: dict[str, dict[int, int]] | None) -> CascadeTables:
    level = {"level": 60, "told": 3, "late": 1, "orphans": 0, "records": 90, "restamped": 0}
    suspect = {
        "level": 60,
        "window": 1_750_000_020,
        "topic": "t",
        "client": "wild",
        "records": 9000,
        "bytes": 1,
        "batches": 1,
    }
    return CascadeTables(
        levels=[level],
        counters={60: 3},
        suspects=Listed(total=1, rows=[{**suspect, "past": 9.0, "growth": 1000.0, "peer_growth": 1.0}]),
        timeline=[{"window": 1_750_000_020 + 60 * at, "client": "wild", "records": 30} for at in (0, 1, 3)],
        wrong=wrong,
        faults=[],
    )


@pytest.mark.parametrize(
    ("wrong", "equal", "said"),
    [
        ({"diffs": {}, "changelog": {}}, True, "<div><dt>Against a plain count</dt><dd>all levels equal</dd></div>"),
        (
            {"diffs": {}, "changelog": {60: 2}},
            False,
            '<div class="bad"><dt>Against a plain count</dt><dd>NOT EQUAL</dd></div>',
        ),
        (None, None, "Abnormal clients"),
    ],
)  # fmt: skip
def test_levels_that_are_not_equal_are_an_alarm(
    tmp_path: Path, wrong: dict[str, dict[int, int]] | None, equal: bool | None, said: str
) -> None:
    report = cascade_report(_found(wrong), CascadeSettings())
    assert report.summary["cascade"]["levels_equal"] is equal
    assert report.summary["cascade"]["abnormal"][0]["time"] == "2025-06-15 15:07:00"
    assert said in write_report(report, tmp_path).read_text()


def test_held_levels_are_not_said_to_be_equal(tmp_path: Path) -> None:
    report = cascade_report(_found({"diffs": {}, "changelog": {}}), CascadeSettings(hold=(0, 60)))
    assert "<dd>all levels without a hold equal</dd>" in write_report(report, tmp_path).read_text()


def test_nothing_counted_has_a_page(tmp_path: Path) -> None:
    nothing = CascadeTables(levels=[], counters={}, suspects=NOTHING, timeline=[], wrong=None, faults=[])
    assert "Records counted" in write_report(cascade_report(nothing, CascadeSettings()), tmp_path).read_text()
