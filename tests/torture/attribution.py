"""Why is a record there twice? At least once allows it, but only where the docs name the cause.

A mirror that starts a task again goes on where its offsets were committed, with or without Shoal. A producer without idempotence (Kafka
Connect's own) sends again what was not answered; so does Shoal's after a `kill -9` (README). What no cause of the round explains at its
time is a finding. Exactly once allows nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .faults import Done

# A fault, and how many seconds after its end what it has caused may still arrive.
_WINDOW_S = {
    "kill-shoal": 60.0,
    "kill-mirror": 60.0,
    "stop-mirror": 60.0,
    "pause-mirror": 60.0,
    "kill-broker": 60.0,
    "stop-broker": 60.0,
    "pause-broker": 60.0,
    "pause-shoal": 60.0,
    "cut-link": 60.0,
    "freeze-link": 60.0,
    "slow-link": 60.0,
}
_TASK_S = 60.0
NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubled:
    """A record that is there twice, and when the second one was seen."""

    where: str
    when: float


def attribute(doubled: Iterable[Doubled], faults: Sequence[Done], tasks_began: Sequence[float]) -> dict[str, list[str]]:
    """What is there twice, by cause; NONE for what nothing explains."""
    causes: dict[str, list[str]] = {}
    for one in doubled:
        causes.setdefault(_cause(one.when, faults, tasks_began), []).append(one.where)
    return causes


def _cause(when: float, faults: Sequence[Done], tasks_began: Sequence[float]) -> str:
    if any(began - 1 <= when <= began + _TASK_S for began in tasks_began):
        return "task-restart"
    for fault in faults:
        if fault.kind in _WINDOW_S and fault.begin - 1 <= when <= fault.end + _WINDOW_S[fault.kind]:
            return fault.kind
    return NONE
