"""Attributes duplicates to causes. At least once allows duplicates, but only for causes in the docs; exactly once
allows none.

    any batch        a restarted task continues at its mirror's committed offsets, with or without Shoal
    a stamped batch  has a producer id of Shoal's own, by which the broker discards retries. Only a `kill -9` of Shoal
                     duplicates it (README); or a broker's restart, for records older than `producer.id.expiration.ms`
                     (mirroring.md)
    a raw batch      Kafka Connect's producer is not idempotent: it resends unanswered batches, with or without Shoal

A duplicate without a cause in the round at its time is a finding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.torture.plan import DOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.torture.faults import Done

_WINDOW_S = 45.0  # after the end of its cause
_BROKERS = frozenset(DOWN)
_SHOAL = frozenset({"kill-shoal", "stop-shoal", "pause-shoal"})
_LINKS = frozenset({"cut-link", "slow-link", "flap-link", "freeze-link"})
_STAMPED = frozenset({"kill-shoal"})
_OLD = _STAMPED | _BROKERS
_RAW = _BROKERS | _SHOAL | _LINKS | {"pause-mirror", "move-leaders"}
_PRODUCERS = ("link:producers", "link:coalesce")  # their duplicates are in the source, too
NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubled:
    """A duplicate record."""

    where: str
    when: float
    """Time at which the duplicate was seen, on the round's clock."""
    stamped: bool
    old: bool = False
    """Its topic has records that are older than the broker's memory of producers."""


def attribute(doubled: Iterable[Doubled], faults: Sequence[Done], tasks_began: Sequence[float]) -> dict[str, list[str]]:
    """Duplicates by cause; NONE for unexplained ones."""
    causes: dict[str, list[str]] = {}
    for duplicate in doubled:
        causes.setdefault(_cause(duplicate, faults, tasks_began), []).append(duplicate.where)
    return causes


def _cause(duplicate: Doubled, faults: Sequence[Done], tasks_began: Sequence[float]) -> str:
    if any(began - 2 <= duplicate.when <= began + _WINDOW_S for began in tasks_began):
        return "task-restart"
    allowed = _RAW if not duplicate.stamped else _OLD if duplicate.old else _STAMPED
    for fault in faults:
        if (
            fault.kind in allowed
            and fault.where not in _PRODUCERS
            and fault.begin - 1 <= duplicate.when <= fault.end + _WINDOW_S
        ):
            return f"{fault.kind}, {'stamped' if duplicate.stamped else 'raw'}"
    return NONE
