"""The ledger: every record that a producer sent, and its outcome according to the producer."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Fate(Enum):
    UNKNOWN = "unknown"  # no answer, or one that leaves the outcome open
    ACKED = "acked"


class Ending(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Entry:
    cluster: str
    topic: str
    content: int
    timestamp: int | None
    """None where the producer's client chooses it."""
    kind: str
    """Kind of its producer: plain, idempotent, transactional."""
    transaction: tuple[int, int] | None = None
    fate: Fate = Fate.UNKNOWN
    partition: int = -1
    offset: int = -1
    dropped: bool = False
    """The mirror's transform drops it: it must not be in the copy."""


@dataclass(slots=True)
class Ledger:
    entries: dict[bytes, Entry] = field(default_factory=dict)
    """By identity."""
    endings: dict[tuple[int, int], Ending] = field(default_factory=dict)
    """Outcome of transactions, by producer and number."""

    def ending(self, entry: Entry) -> Ending:
        """A record outside of transactions counts as committed."""
        return Ending.COMMITTED if entry.transaction is None else self.endings[entry.transaction]

    def acked(self, cluster: str, topic: str) -> dict[bytes, Entry]:
        """Records that are acknowledged, and committed."""
        return {
            identity: entry
            for identity, entry in self.entries.items()
            if (entry.cluster, entry.topic) == (cluster, topic)
            and entry.fate is Fate.ACKED
            and self.ending(entry) is Ending.COMMITTED
        }
