"""What is known to be appended, so that a producer's retry appends nothing twice.

One produced partition with envelopes in it becomes several requests to the broker, and the mirror knows of one. When a
later one fails, or the answer to the mirror is lost, the mirror sends all of it again. Its bytes are the same then, so
each item has an identity that only a retry repeats: an envelope's is its key (which holds the serial of that very
copy), a plain item's is a digest of its outer batch.

It outlives an orderly stop of Shoal (proxy/shallow/files/deliveries.py). What is forgotten is appended twice, never
lost; what the broker appended without an answer that arrived is appended twice, too, as it would be without Shoal.
Outer batches without an envelope are never recorded here.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from shoal.protocol.wire.types import TopicPartition

__all__ = [
    "MAX_DELIVERIES",
    "Appended",
    "AppendedLog",
    "Ledger",
    "Refusal",
    "recall",
]

# A producer retries what it holds: buffer.memory is 32 MiB by default, and what is wrapped is 4 KiB and more by
# default. Twice that, since several mirrors may share a Shoal. An entry takes about 600 bytes.
MAX_DELIVERIES = 16_384
_MAX_TEXTS = 3


class Refusal(NamedTuple):
    """What the target refuses of one item permanently: the first error, how many batches, and the first few."""

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
    """What of one item is done with: whole batches, then records of the next one, which was too large and is cut.

    All of that is appended except for what `refusal` says. `first` and `last` are the target offsets of the first and
    the last record appended; -1 = the broker did not say.
    """

    batches: int = 0
    records: int = 0
    first: int = -1
    last: int = -1
    refusal: Refusal | None = None


NOTHING = Appended()


class Ledger(Protocol):
    """What `AppendedItems` reads and writes."""

    def recall(self, partition: TopicPartition, identity: Hashable) -> Appended: ...

    def record(self, partition: TopicPartition, identity: Hashable, delivered: Appended) -> None: ...


class Deliverable(Protocol):
    """An item of a plan."""

    @property
    def identity(self) -> Hashable: ...

    @property
    def batches(self) -> Sequence[object]: ...


def recall(ledger: Ledger, partition: TopicPartition, items: Sequence[Deliverable]) -> Iterator[Appended]:
    """What is appended of each item of a plan. An item behind a forgotten one is sent again, too, to stay behind it."""
    whole = True
    for item in items:
        delivered = ledger.recall(partition, item.identity) if whole else NOTHING
        whole = delivered.batches == len(item.batches)
        yield delivered


class AppendedLog:
    """The least recently used of `limit` items are forgotten."""

    def __init__(self, limit: int = MAX_DELIVERIES) -> None:
        self._limit = limit
        self._known: OrderedDict[tuple[TopicPartition, Hashable], Appended] = OrderedDict()

    def recall(self, partition: TopicPartition, identity: Hashable) -> Appended:
        """What of the item is appended already, when a request brings it (again)."""
        return self._known.get((partition, identity), NOTHING)

    def record(self, partition: TopicPartition, identity: Hashable, delivered: Appended) -> None:
        """Call it with each success of the broker, before anything else is done."""
        self._known[partition, identity] = delivered
        self._known.move_to_end((partition, identity))
        while len(self._known) > self._limit:
            self._known.popitem(last=False)

    def items(self) -> Iterable[tuple[tuple[TopicPartition, Hashable], Appended]]:
        """The least recently used first."""
        return self._known.items()

    def forget(self, topic: str) -> None:
        """The topic was deleted, and its records with it."""
        for key in [key for key in self._known if key[0].topic == topic]:
            del self._known[key]
