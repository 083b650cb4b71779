"""A loud line is expected only if a fault of the round explains it."""

from __future__ import annotations

import json

from .logs import unexplained


def line(level: str, message: str) -> str:
    return json.dumps({"time": "t", "level": level, "event": "some-event", "message": message})


def test_what_no_fault_explains_is_found_once() -> None:
    lost = line("warning", "cluster 'B': broker 1 no longer takes several batches per request: gone; one by one again")
    log = "\n".join([line("info", "listening"), lost, lost])
    assert unexplained(log, ["kill-shoal"]) == [f"warning: {json.loads(lost)['message']}"]
    assert unexplained(log, ["kill-broker"]) == []


def test_a_full_disk_explains_what_a_restart_then_costs() -> None:
    event = (
        "cannot write state/x (No space left on device): an envelope that is appended in part now may be appended twice"
    )
    assert unexplained(line("warning", event), ["full-disk"]) == []
    assert unexplained(line("warning", event), ["fail-disk"]) != []


def test_a_traceback_is_always_found() -> None:
    log = f'{line("info", "listening")}\nTraceback (most recent call last):\n  File "x"\n{{"time": "cut by a ki'
    assert unexplained(log, ["kill-shoal"]) == ["raw: Traceback (most recent call last):", 'raw:   File "x"']
