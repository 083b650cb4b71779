"""Files that are read again while Shoal runs: whether one has changed, and what SIGHUP found, in one line."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Outcome", "Reread", "identity_of", "summary"]


def identity_of(path: Path) -> object:
    """Another one for every new content, owner or rights, and for every error. Symlinks are followed."""
    resolved = os.path.realpath(path)
    try:
        status = os.stat(resolved)
    except OSError as error:
        return resolved, error.errno
    return resolved, status.st_ino, status.st_ctime_ns, status.st_size


class Outcome(StrEnum):
    LOADED = "loaded"
    UNCHANGED = "unchanged"
    REFUSED = "refused"  # an error in the log says why


class Reread(NamedTuple):
    what: str  # "listener 'clients': sasl.users"
    outcome: Outcome


def summary(found: Sequence[Reread]) -> str:
    """`loaded: cluster 'kafka': tls; unchanged: listener 'clients': sasl.users`"""
    by_outcome = {outcome: [file.what for file in found if file.outcome is outcome] for outcome in Outcome}
    parts = [f"{outcome}: {', '.join(names)}" for outcome, names in by_outcome.items() if names]
    return "; ".join(parts) or "no setting names a file that is read again"
