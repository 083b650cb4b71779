"""What SIGHUP read again, as one line of the log."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Outcome", "Reread", "summary"]


class Outcome(StrEnum):
    LOADED = "loaded"
    UNCHANGED = "unchanged"
    REFUSED = "refused"  # an error in the log says why


class Reread(NamedTuple):
    what: str  # "listener 'clients': sasl.users"
    outcome: Outcome


def summary(found: Sequence[Reread]) -> str:
    """`loaded: cluster 'kafka': tls; unchanged: listener 'clients': sasl.users`"""
    by_outcome = {outcome: [one.what for one in found if one.outcome is outcome] for outcome in Outcome}
    parts = [f"{outcome}: {', '.join(names)}" for outcome, names in by_outcome.items() if names]
    return "; ".join(parts) or "no setting names a file that is read again"
