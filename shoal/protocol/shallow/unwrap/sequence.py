"""Producer ids of Shoal's own: by them a broker removes duplicates and refuses gaps.

A broker keeps, for each producer id and partition, the last epoch and the last five (first, last sequence, offset) of
that epoch (ProducerStateEntry). It takes a batch whose sequence follows, answers a repeated one of the five as it did
the first time, and refuses any other (ProducerAppendInfo.checkSequence). So up to five record sets may be in flight in
order, and one whose answer was lost is simply sent again with the stamp it had: over another connection, too, since an
id belongs to no connection. Therefore the sequences here belong to the partition and live as long as the process.

In a set of several batches each has a stamp of its own. The leader appends a set whole or not at all, but a follower
may have fetched a part of it when it becomes the leader. So a set in doubt is never sent again as a set: its batches
come one by one, each with the stamp it had, and the broker itself finds the place from where on they are missing
(replay.py). A fresh set has no batch that the broker has seen, so it may be longer than five.

What a partition was sent without a clear answer is its `InDoubt`. A retry of the same data resolves it, by the same
stamps. If other data comes instead, the doubtful data will never be asked for again; then the epoch is raised, which
no coordinator need know of (KIP-360): from the first batch of the new epoch on, whatever is still under way in the old
one is refused. A broker counts the age of a producer by the newest timestamp in its batches, and forgets one that is
older than a day, within ten minutes and whenever it loads a snapshot (ProducerStateManager.isProducerExpired). So with
old data it may know nothing of what is in doubt: then that comes twice, in order, as from a producer without an id.
Rejected: a new id for each connection (knows nothing of what the old one had under way); a new id instead of a new
epoch (a late request with the old id would still be appended, behind newer data).

What is in doubt outlives an orderly stop, with its stamps (proxy/shallow/files/doubt.py); nothing else of this does.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from shoal.protocol.records.stamping import LAST_SEQUENCE
from shoal.protocol.wire.types import TopicPartition

__all__ = ["MAX_IN_FLIGHT", "MAX_PARTITIONS", "MAX_SENDERS", "InDoubt", "Sequence", "Sequences", "Shape", "Stamp"]

MAX_IN_FLIGHT = 5  # ProducerStateEntry.NUM_BATCHES_TO_RETAIN
MAX_PARTITIONS = 100_000  # and senders; about 200 bytes each. Above it all begin again, with new ids.
MAX_SENDERS = 8  # of one partition, each with a producer id
_MAX_EPOCH = 32767


class Stamp(NamedTuple):
    producer_id: int
    epoch: int
    sequence: int

    def behind(self, records: int) -> "Stamp":
        """The stamp of the batch behind so many records."""
        return Stamp(self.producer_id, self.epoch, (self.sequence + records) & LAST_SEQUENCE)


class Shape(NamedTuple):
    """A record set without its bytes: where in its plan it begins, and the records of each of its batches.

    `stamp`: the first one's.
    """

    item: int
    batch: int
    first: int
    records: tuple[int, ...]
    stamp: Stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubt:
    """What of a plan (`Plan.identity`) was sent, in order, and may or may not be appended."""

    plan: Hashable
    shapes: tuple[Shape, ...]


@dataclass(slots=True, kw_only=True)
class Sequence:
    """One sender's sequence in one partition. The holder of the partition's lock works with it."""

    producer_id: int
    epoch: int
    next: int = 0
    end: int = -1  # the offset behind what was acknowledged last; -1 = not known
    doubt: InDoubt | None = None

    def take(self, records: int) -> Stamp:
        """The stamp of what has so many records."""
        stamp = Stamp(self.producer_id, self.epoch, self.next)
        self.next = stamp.behind(records).sequence
        return stamp

    def give_back(self, stamp: Stamp) -> None:
        """Nothing from this stamp on was appended."""
        self.next = stamp.sequence

    def raise_epoch(self) -> bool:
        """Begin again at 0, and leave behind what is in doubt; False: this was the last epoch of the producer id."""
        self.doubt = None
        if self.epoch >= _MAX_EPOCH:
            return False
        self.epoch, self.next = self.epoch + 1, 0
        return True


class Sequences:
    """All partitions of one target cluster, and of each one sequence for each sender (`Plan.sender`).

    Two senders in one partition (two sources, one topic) need a producer id each: what one of them left in doubt is
    resolved by its own retry, whatever the other has sent meanwhile. Within one sequence other data means that the
    doubtful data will not be asked for again. A partition must never have two sequences of one producer id: a broker
    would take new data for a duplicate. So there is a pool: the first sender of each partition takes the first id, the
    second one the second.
    """

    def __init__(self, limit: int = MAX_PARTITIONS, senders: int = MAX_SENDERS) -> None:
        self._limit = limit
        self._senders = senders
        self._known: dict[TopicPartition, dict[Hashable, Sequence]] = {}  # the sender that came last is the last
        self._count = 0
        self._pool: dict[int, int] = {}  # epochs by producer id

    def begin(self, producer_id: int, epoch: int) -> None:
        """The answer to InitProducerId: for senders that have no sequence yet."""
        self._pool[producer_id] = epoch

    def lacks_id(self, wanted: Iterable[tuple[TopicPartition, Hashable]]) -> bool:
        """One of these partitions and senders needs a producer id more."""
        return any(
            sender not in (known := self._known.get(partition, {}))
            and len(known) < self._senders
            and self._free(known) is None
            for partition, sender in wanted
        )

    def of(self, partition: TopicPartition, sender: Hashable = None) -> Sequence | None:
        """None: a producer id is lacking. Above `senders`, the one that has not sent for the longest time loses its
        sequence.
        """
        senders = self._known.get(partition, {})
        known = senders.pop(sender, None) or self._new(partition, senders)
        if known is not None:
            for other in senders.values():
                other.end = -1  # records of this one come behind it: its own offsets have gaps
            self._known.setdefault(partition, senders)[sender] = known
            self._forget_all_above_limit()
        return known

    def in_doubt(self) -> Iterator[tuple[TopicPartition, Hashable, Sequence]]:
        """What a later process should `restore`."""
        for partition, senders in self._known.items():
            for sender, known in senders.items():
                if known.doubt is not None:
                    yield partition, sender, known

    def restore(self, partition: TopicPartition, sender: Hashable, sequence: Sequence) -> None:
        """A sequence of a former process. Its producer id is for this partition alone: others may have used it."""
        self._known.setdefault(partition, {})[sender] = sequence
        self._count += 1
        self._forget_all_above_limit()

    def _new(self, partition: TopicPartition, senders: dict[Hashable, Sequence]) -> Sequence | None:
        if len(senders) >= self._senders:
            oldest = senders[next(iter(senders))]
            self.forget(partition, next(iter(senders)), retire=not oldest.raise_epoch())
            oldest.end = -1
            if oldest.producer_id not in self._pool:
                return None
            self._count += 1
            return oldest
        free = self._free(senders)
        if free is None:
            return None
        self._count += 1
        return Sequence(producer_id=free, epoch=self._pool[free])

    def _free(self, senders: Mapping[Hashable, Sequence]) -> int | None:
        taken = {known.producer_id for known in senders.values()}
        return next((producer_id for producer_id in self._pool if producer_id not in taken), None)

    def _forget_all_above_limit(self) -> None:
        if self._count > self._limit:
            self._known.clear()
            self._pool.clear()
            self._count = 0

    def forget(self, partition: TopicPartition, sender: Hashable = None, *, retire: bool = True) -> None:
        """Its stamps are of no use any more: it needs another producer id, and no other sender gets this one."""
        known = self._known.get(partition, {}).pop(sender, None)
        if known is not None:
            self._count -= 1
            if retire:
                self._pool.pop(known.producer_id, None)

    def forget_topic(self, topic: str) -> None:
        for partition in [partition for partition in self._known if partition.topic == topic]:
            for sender in list(self._known[partition]):
                self.forget(partition, sender)
            del self._known[partition]
