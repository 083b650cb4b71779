"""Why is a record there twice? At least once allows it, but only where the docs name the cause; exactly once allows nothing.

    any batch        a task that starts again goes on where its mirror's offsets were committed, with or without Shoal
    a stamped batch  it has a producer id of Shoal's own, by which the broker removes what a retry brings again. Only a `kill -9` of Shoal
                     brings it twice (README); and records older than `producer.id.expiration.ms`, where a broker was restarted (mirroring.md)
    a raw batch      Kafka Connect's producer is not idempotent: what was not answered, it sends again, with or without Shoal

What no cause of the round explains at its time is a finding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .plan import DOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .faults import Done

_WINDOW_S = 45.0  # after the end of its cause
_BROKERS = frozenset(DOWN)
_SHOAL = frozenset({"kill-shoal", "stop-shoal", "pause-shoal"})
_LINKS = frozenset({"cut-link", "slow-link", "flap-link", "freeze-link"})
_STAMPED = frozenset({"kill-shoal"})
_OLD = _STAMPED | _BROKERS
_RAW = _BROKERS | _SHOAL | _LINKS | {"pause-mirror", "move-leaders"}
_PRODUCERS = ("link:producers", "link:coalesce")  # what they write twice is in the source, too
NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubled:
    """A record that is there twice."""

    where: str
    when: float
    """At which the second one was seen, on the round's clock."""
    stamped: bool
    old: bool = False
    """Its topic has records older than the broker's memory of producers."""


def attribute(doubled: Iterable[Doubled], faults: Sequence[Done], tasks_began: Sequence[float]) -> dict[str, list[str]]:
    """What is there twice, by cause; NONE for what nothing explains."""
    causes: dict[str, list[str]] = {}
    for one in doubled:
        causes.setdefault(_cause(one, faults, tasks_began), []).append(one.where)
    return causes


def _cause(one: Doubled, faults: Sequence[Done], tasks_began: Sequence[float]) -> str:
    if any(began - 2 <= one.when <= began + _WINDOW_S for began in tasks_began):
        return "task-restart"
    allowed = _RAW if not one.stamped else _OLD if one.old else _STAMPED
    for fault in faults:
        if (
            fault.kind in allowed
            and fault.where not in _PRODUCERS
            and fault.begin - 1 <= one.when <= fault.end + _WINDOW_S
        ):
            return f"{fault.kind}, {'stamped' if one.stamped else 'raw'}"
    return NONE
