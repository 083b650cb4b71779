"""The parts of the capture demo that need no broker: its conclusions, its output, and failing jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shoal.scenarios.demo_capture.jobs import JobFailed, run_job
from shoal.scenarios.demo_capture.report import as_report, as_text, compared, is_good
from shoal.scenarios.jobs.coalescing.policies import POLICIES, read_policy

if TYPE_CHECKING:
    from pathlib import Path

PREDICTED: dict[str, Any] = {"policy": "linger=10ms,group=broker", "requests_saved": 0.60, "added_ms_p99": 11.25}
SIZES = {"batches": 1_234, "records_per_batch": 3.25, "requests_per_mb": 700.0}
JOBS: dict[str, dict[str, Any]] = {
    "batch-sizes": {"batch_sizes": SIZES},
    "coalescing": {"coalescing": [PREDICTED]},
    "audit": {"audit": {"missing": 0, "doubled": 0}},
    "cascade": {"cascade": {"levels_equal": True, "abnormal": [{"client": "sensor-07"}, {"client": "sensor-07"}]}},
}
BOOKS = {"envelopes": 20, "reconciled": 20, "mismatches": 0}


def replayed(sent: int = 1_000, reached: int | None = 350, *, clean: bool = True) -> dict[str, Any]:
    return {"produce_requests": sent, "broker_requests": reached, "audit": {"clean": clean}}


def report(**changes: Any) -> dict[str, Any]:
    tried = compared(PREDICTED, replayed())
    return as_report(5_000, JOBS, tried, BOOKS) | changes


@pytest.mark.parametrize(("reached", "near"), [(350, True), (500, True), (501, False), (249, False), (1_000, None)])
def test_the_what_if_is_compared_with_what_was_saved(reached: int, near: bool | None) -> None:
    found = compared(PREDICTED, replayed(reached=reached))
    assert (found["predicted"], found["achieved"], found["near"]) == (0.60, round(1 - reached / 1_000, 4), near)


def test_brokers_that_tell_no_figures_prove_nothing() -> None:
    found = compared(PREDICTED, replayed(reached=None))
    assert (found["achieved"], found["near"]) == (None, None)


def test_the_report_has_the_keys_that_were_agreed() -> None:
    assert report() == {
        "rows": 5_000,
        "batch_sizes": SIZES,
        "coalescing": [PREDICTED],
        "audit": {"missing": 0, "doubled": 0},
        "cascade": JOBS["cascade"]["cascade"],
        "replay": {"policy": PREDICTED["policy"], "predicted": 0.6, "achieved": 0.65, "near": True, "clean": True},
        "books": BOOKS,
    }


@pytest.mark.parametrize(
    "bad",
    [
        {"audit": {"missing": 1, "doubled": 0}},
        {"audit": {"missing": 0, "doubled": 1}},
        {"cascade": {"levels_equal": False, "abnormal": []}},
        {"books": BOOKS | {"mismatches": 1}},
        {"books": BOOKS | {"envelopes": 0}},
        {"replay": {"near": False, "clean": True}},
        {"replay": {"near": True, "clean": False}},
    ],
)
def test_what_is_not_good_is_not_called_so(bad: dict[str, Any]) -> None:
    assert is_good(report())
    assert is_good(report(replay=None))
    assert not is_good(report(**bad))


def test_people_are_told() -> None:
    assert as_text(report()).splitlines() == [
        "5,000 rows captured; 1,234 batches produced, 3.2 records each, 700.0 requests per MB",
        "",
        "what-if: policy            requests saved   added, p99",
        "─" * 54,
        "linger=10ms,group=broker            60.0%      11.2 ms",
        "",
        "the same trace through the coalescer (linger=10ms,group=broker): 65.0% of the requests saved, 60.0% "
        "predicted: within 20%",
        "audit: 0 missing, 0 doubled",
        "envelopes: 20, reconciled 20, mismatches 0",
        "cascade: levels equal; abnormal: sensor-07",
    ]


def test_the_policy_that_is_tried_is_one_of_those_compared() -> None:
    assert read_policy(PREDICTED["policy"]) in POLICIES


def test_a_job_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match=r"(?s)no-such-job ended with 2.*no-such-job"):
        run_job("no-such-job", tmp_path, tmp_path / "out")
