"""What was written: every record that a producer handed out, and what became of it by the producer's own account."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Fate(Enum):
    UNKNOWN = "unknown"  # asked for, and no answer, or one that leaves open what happened
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
    """Of its producer: plain, idempotent, transactional."""
    transaction: tuple[int, int] | None = None
    fate: Fate = Fate.UNKNOWN
    partition: int = -1
    offset: int = -1
    dropped: bool = False
    """By the mirror's transform: it is not to be in the copy."""


@dataclass(slots=True)
class Ledger:
    entries: dict[bytes, Entry] = field(default_factory=dict)
    """By identity."""
    endings: dict[tuple[int, int], Ending] = field(default_factory=dict)
    """Of transactions, by producer and number."""

    def ending(self, entry: Entry) -> Ending:
        """A record outside of transactions counts as committed."""
        return Ending.COMMITTED if entry.transaction is None else self.endings[entry.transaction]

    def acked(self, cluster: str, topic: str) -> dict[bytes, Entry]:
        """What the producers were told to be in the topic, and committed."""
        return {
            identity: entry
            for identity, entry in self.entries.items()
            if (entry.cluster, entry.topic) == (cluster, topic)
            and entry.fate is Fate.ACKED
            and self.ending(entry) is Ending.COMMITTED
        }
