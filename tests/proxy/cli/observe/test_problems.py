from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shoal.proxy.cli.observe.documents import Ready, Status
from shoal.proxy.cli.observe.problems import problems
from shoal.proxy.cli.observe.rates import rates

NOW = 1_800_000_000.0  # 2027-01-15


def status(listener: dict[str, Any] | None = None, **more: Any) -> Status:
    found = {"version": "1", "pid": 1, "started": "a", "state": "serving", **more}
    return msgspec.convert({**found, "listeners": [{"name": "l", **(listener or {})}]}, Status)


def flows(state: str) -> dict[str, Any]:
    return {"flows": [{"client_id": "mm2", "topics": [{"topic": "t", "state": state, "why": "so"}]}]}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (status(state="draining"), "state is draining"),
        (status(loop_lag_seconds=2.5), "2.5 s late"),
        (status(certificates=[{"where": "cluster c", "expires": "2027-01-14T00:00:00Z"}]), "has expired"),
        (status(certificates=[{"where": "cluster c", "expires": "2027-01-18T00:00:00Z"}]), "expires in 2.7 days"),
        (status(capture={"dropped": 3}), "capture: 3 rows"),
        (status(raw_capture={"lost": 3}), "raw-capture: 3 frames"),
        (status(flows("failed")), "topic t is not wrapped (failed): so"),
        (status(flows("ambiguous")), "not wrapped (ambiguous)"),
        (status({"clusters_differ": False, "connections": 1}), "not known to be two clusters"),
        (status({"mismatches": {"offsets": 2}}), "2 mismatches of kind offsets"),
        (status({"gaps": {"deleted": 1}}), "1 gaps (deleted)"),
        (status({"stopped_partitions": 4}), "4 partitions are refused"),
        (status({"state_errors": 1}), "1 state files"),
        (
            status(workers=[{"worker": 1}, {"worker": 2, "loop_lag_seconds": 1.5}]),
            "event loop of worker 2 is 1.5 s late",
        ),
    ],
)
def test_each_problem_is_one_line(found: Status, words: str) -> None:
    (problem,) = problems(found, Ready(ready=True), NOW)
    assert words in problem


@pytest.mark.parametrize(
    "found",
    [
        status(),
        status(flows("wrapped")),
        status(flows("waiting")),
        status({"clusters_differ": True, "connections": 1}),
        status({"clusters_differ": False}),
        status({"mirrors": [{"mirror": "m", "lag_records": 10**9, "lag_seconds": 1e5}]}),
        status({"closed": {"client_closed": 5}, "mismatches": {"offsets": 0}}),
        status(certificates=[{"where": "c", "expires": "2027-02-14T00:00:00Z"}, {"where": "c", "expires": "never"}]),
    ],
)
def test_what_takes_its_time_is_no_problem(found: Status) -> None:
    assert problems(found, Ready(ready=True), NOW) == []


def test_what_is_not_ready_is_a_problem() -> None:
    ready = Ready(ready=False, clusters={"c": "no answer", "d": None}, listeners={"l": "its ports are closed"})
    assert problems(status(), ready, NOW) == ["cluster 'c': no answer", "listener 'l': its ports are closed"]
    ready = Ready(ready=False, workers={"1": None, "2": "it does not answer"})
    assert problems(status(), ready, NOW) == ["worker 2: it does not answer"]


def test_rates_are_differences_of_one_process() -> None:
    before = status({"traffic": {"requests": 10, "from_client": 100}, "raw_batches": {"old": 1}})
    now = status(
        {
            "traffic": {"requests": 30, "from_client": 100},
            "raw_batches": {"old": 4},
            "closed": {"stalled": 2, "idle": 9},
        }
    )
    (found,) = rates(before, now, 2.0)
    assert (found.requests, found.received, found.raw, found.failed) == (10.0, 0.0, {"old": 3}, {"stalled": 2})
    now.pid = 2
    assert rates(before, now, 2.0)[0].requests == rates(None, now, 2.0)[0].requests == 0.0
