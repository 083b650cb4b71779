"""A log of what is appended, so that a producer's retry appends nothing twice.

One produced partition with envelopes becomes several requests to the broker, but the mirror knows of one. If a later
one fails, or the mirror's answer is lost, the mirror sends all of it again, with the same bytes. So each item has an
identity that only a retry repeats: the key of an envelope (which has the serial of this copy), or a digest of the outer
batch for plain items.

It survives a restart of Shoal, also a kill (proxy/shallow/files/deliveries.py). A forgotten item is appended twice,
never lost. If the broker appended something and its answer was lost, that is also appended twice, as without Shoal.
Outer batches without an envelope are not recorded here.
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

# A producer retries what is in its buffer: buffer.memory is 32 MiB by default, and wrapped batches have at least 4 KiB
# by default. Twice that, because several mirrors may share a Shoal. An entry takes about 600 bytes.
MAX_DELIVERIES = 16_384
_MAX_TEXTS = 3


class Refusal(NamedTuple):
    """Batches of one item that the target refuses permanently: the first error, their number, and the first few."""

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
    """The finished part of one item: whole batches, then records of the next one if it was too large and is cut.

    All of it is appended except for `refusal`. `first` and `last` are the target offsets of the first and the last
    record appended; -1: unknown.
    """

    batches: int = 0
    records: int = 0
    first: int = -1
    last: int = -1
    refusal: Refusal | None = None


NOTHING = Appended()


class Ledger(Protocol):
    """The store of `AppendedItems`."""

    def recall(self, partition: TopicPartition, identity: Hashable) -> Appended: ...

    def record(self, partition: TopicPartition, identity: Hashable, delivered: Appended) -> None: ...


class Deliverable(Protocol):
    """An item of a plan."""

    @property
    def identity(self) -> Hashable: ...

    @property
    def batches(self) -> Sequence[object]: ...


def recall(ledger: Ledger, partition: TopicPartition, items: Sequence[Deliverable]) -> Iterator[Appended]:
    """The appended part of each item of a plan. Items after a forgotten one are sent again, too, to keep the order."""
    whole = True
    for item in items:
        delivered = ledger.recall(partition, item.identity) if whole else NOTHING
        whole = delivered.batches == len(item.batches)
        yield delivered


class AppendedLog:
    """Holds `limit` items; the least recently used ones are forgotten."""

    def __init__(self, limit: int = MAX_DELIVERIES) -> None:
        self._limit = limit
        self._known: OrderedDict[tuple[TopicPartition, Hashable], Appended] = OrderedDict()

    def recall(self, partition: TopicPartition, identity: Hashable) -> Appended:
        """The part of the item that is already appended."""
        return self._known.get((partition, identity), NOTHING)

    def record(self, partition: TopicPartition, identity: Hashable, delivered: Appended) -> None:
        """Call it after each success of the broker, before anything else."""
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
