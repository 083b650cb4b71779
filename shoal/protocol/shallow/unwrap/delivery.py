"""What is known to be appended, so that a producer's retry appends nothing twice.

One produced partition with envelopes in it becomes several requests to the broker, and the mirror knows of one. When a
later one fails, or the answer to the mirror is lost, the mirror sends all of it again. Its bytes are the same then, so each
item has an identity that only a retry repeats: an envelope its key (which holds the serial of that very copy), a row of plain
records a digest of its outer batch.

It outlives an orderly stop of Shoal (proxy/shallow/files/deliveries.py). What is forgotten is appended twice, never lost; what the broker appended without our hearing of it is appended twice, too,
as it would be without Shoal. Outer batches without an envelope never come here.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

__all__ = ["MAX_DELIVERIES", "Appended", "AppendedLog", "DeliveryStatistics", "Ledger", "Refusal", "Target", "recall"]

# A producer retries what it holds: buffer.memory is 32 MiB by default, and what is wrapped is 4 KiB and more by default.
# Twice that, since several mirrors may share a Shoal. An entry takes about 600 bytes.
MAX_DELIVERIES = 16_384


class Target(NamedTuple):
    """A partition of the target cluster. Its topic is named, whatever the produce request says: one partition, one identity."""

    topic: str
    partition: int


_MAX_TEXTS = 3


class Refusal(NamedTuple):
    """What of one item the target has refused for good: the first error, how many batches, and what the first few are."""

    error_code: int
    texts: tuple[str, ...]
    batches: int = 1

    def joined(self, later: "Refusal | None") -> "Refusal":
        if later is None:
            return self
        texts = (self.texts + later.texts)[:_MAX_TEXTS]
        return Refusal(self.error_code, texts, self.batches + later.batches)

    def __str__(self) -> str:
        more = self.batches - len(self.texts)
        return "; ".join(self.texts) + (f"; and {more} batches more" if more else "")


class Appended(NamedTuple):
    """What of one item is done with: whole sub-batches, then records of the next one (it was split because it was too large).

    All of that is appended but what `refusal` says. `first` and `last` are the target offsets of the first and the last record
    appended; -1 = the broker did not say.
    """

    batches: int = 0
    records: int = 0
    first: int = -1
    last: int = -1
    refusal: Refusal | None = None


NOTHING = Appended()


class Ledger(Protocol):
    """What `PartitionProgress` asks and tells."""

    def recall(self, target: Target, identity: Hashable) -> Appended: ...

    def record(self, target: Target, identity: Hashable, delivered: Appended) -> None: ...


class Deliverable(Protocol):
    """An item of a plan."""

    @property
    def identity(self) -> Hashable: ...

    @property
    def batches(self) -> Sequence[object]: ...


def recall(ledger: Ledger, target: Target, items: Sequence[Deliverable]) -> Iterator[Appended]:
    """Of each item of a plan. What stands behind a forgotten one is sent again, too: it must not be in front of it."""
    whole = True
    for item in items:
        delivered = ledger.recall(target, item.identity) if whole else NOTHING
        whole = delivered.batches == len(item.batches)
        yield delivered


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryStatistics:
    remembered: int
    forgotten: int
    repeats_avoided: int  # sub-batches, or parts of one, that a retry brought again


class AppendedLog:
    """The least recently used of `limit` items are forgotten."""

    def __init__(self, limit: int = MAX_DELIVERIES) -> None:
        self._limit = limit
        self._known: OrderedDict[tuple[Target, Hashable], Appended] = OrderedDict()
        self._forgotten = 0
        self._avoided = 0

    def recall(self, target: Target, identity: Hashable) -> Appended:
        """What of the item is appended already, when a request brings it (again)."""
        known = self._known.get((target, identity), NOTHING)
        self._avoided += known.batches + bool(known.records)
        return known

    def record(self, target: Target, identity: Hashable, delivered: Appended) -> None:
        """Call it with each success of the broker, before anything else is done."""
        self._known[target, identity] = delivered
        self._known.move_to_end((target, identity))
        while len(self._known) > self._limit:
            self._known.popitem(last=False)
            self._forgotten += 1

    def items(self) -> Iterable[tuple[tuple[Target, Hashable], Appended]]:
        """The least recently used first."""
        return self._known.items()

    def forget(self, topic: str) -> None:
        """It was deleted, and with it what was delivered."""
        for key in [key for key in self._known if key[0].topic == topic]:
            del self._known[key]

    def statistics(self) -> DeliveryStatistics:
        return DeliveryStatistics(remembered=len(self._known), forgotten=self._forgotten, repeats_avoided=self._avoided)
