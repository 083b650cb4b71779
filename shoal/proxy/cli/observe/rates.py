"""The difference of two statuses, as rates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.proxy.cli.observe.documents import Listener, Status

__all__ = ["Rates", "rates"]

_NORMAL_ENDS = frozenset({"client_closed", "client_lost", "drained", "shutdown", "idle"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """One listener; per second, except for `raw` (batches by reason) and `failed` (connections by cause)."""

    listener: Listener
    requests: float = 0.0
    received: float = 0.0
    sent: float = 0.0
    raw: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)


def rates(before: Status | None, now: Status, seconds: float) -> list[Rates]:
    """`seconds`: between both. Another process begins at zero: its rates are unknown, and shown as zero."""
    is_same = before is not None and (before.pid, before.started) == (now.pid, now.started)
    former = {listener.name: listener for listener in before.listeners} if before is not None and is_same else {}
    return [_rates(former.get(listener.name), listener, seconds) for listener in now.listeners]


def _rates(before: Listener | None, now: Listener, seconds: float) -> Rates:
    if before is None or seconds <= 0:
        return Rates(listener=now)

    def rate(name: str) -> float:
        return max(now.traffic.get(name, 0) - before.traffic.get(name, 0), 0) / seconds

    return Rates(
        listener=now,
        requests=rate("requests"),
        received=rate("from_client"),
        sent=rate("to_client"),
        raw=_more(before.raw_batches, now.raw_batches),
        failed={cause: n for cause, n in _more(before.closed, now.closed).items() if cause not in _NORMAL_ENDS},
    )


def _more(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    more = {name: count - before.get(name, 0) for name, count in now.items()}
    return {name: count for name, count in more.items() if count > 0}
