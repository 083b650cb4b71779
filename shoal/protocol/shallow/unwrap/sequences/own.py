"""Shoal's own producer ids, with which a broker removes duplicates and refuses gaps.

Per producer id and partition, a broker keeps the last epoch and its last five batches (first and last sequence, offset;
ProducerStateEntry). It appends a batch with the next sequence, answers a repeated one of the five as at the first time,
and refuses all others (ProducerAppendInfo.checkSequence). So up to five record sets may be in flight in order, and if
an answer is lost, the record set is sent again with the same stamp, over any connection, because an id does not belong
to a connection. So the sequences here belong to the partition and live as long as the process.

In a set each batch has its own stamp. The leader appends a set completely or not at all, but a follower may have
fetched a part of it when it becomes the leader. So a set in doubt is never sent again as a set: its batches are sent
one by one with the same stamps, and the broker finds the first missing one (replay.py). The broker has seen no batch of
a new set, so a new set may have more than five.

What a partition was sent without a clear answer is its `InDoubt`. A retry of the same data resolves it, by the same
stamps. If other data arrives instead, the data in doubt will never be sent again; then the epoch is raised, without a
coordinator (KIP-360): after the first batch of the new epoch, requests of the old epoch that are still in flight are
refused. A broker takes the age of a producer from the newest timestamp in its batches, and removes one that is older
than a day, within ten minutes and whenever it loads a snapshot (ProducerStateManager.isProducerExpired). So with old
data it may not know what is in doubt; then this is appended twice, in order, as from a producer without an id.
Rejected: a new id for each connection (it does not know what the old one had in flight); a new id instead of a new
epoch (a late request with the old id would still be appended, after newer data).

Batches in doubt survive an orderly stop, with their stamps (proxy/shallow/files/doubt.py); nothing else of this does.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from shoal.protocol.records.producible import LAST_SEQUENCE
from shoal.protocol.wire.types import TopicPartition

__all__ = ["MAX_IN_FLIGHT", "MAX_PARTITIONS", "MAX_SENDERS", "InDoubt", "Sequence", "Sequences", "Shape", "Stamp"]

MAX_IN_FLIGHT = 5  # ProducerStateEntry.NUM_BATCHES_TO_RETAIN
MAX_PARTITIONS = 100_000  # and senders; about 200 bytes each. Above it all start again, with new ids.
MAX_SENDERS = 8  # per partition, each with a producer id
_MAX_EPOCH = 32767


class Stamp(NamedTuple):
    producer_id: int
    epoch: int
    sequence: int

    def behind(self, records: int) -> "Stamp":
        """The stamp of the batch after this many records."""
        return Stamp(self.producer_id, self.epoch, (self.sequence + records) & LAST_SEQUENCE)


class Shape(NamedTuple):
    """A record set without its bytes: its position in the plan, and the record count of each batch.

    `stamp`: the first batch's.
    """

    item: int
    batch: int
    first: int
    records: tuple[int, ...]
    stamp: Stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubt:
    """The record sets of a plan (`Plan.identity`) that were sent, in order, and may or may not be appended."""

    plan: Hashable
    shapes: tuple[Shape, ...]


@dataclass(slots=True, kw_only=True)
class Sequence:
    """One sender's sequence in one partition. Used under the partition's lock."""

    producer_id: int
    epoch: int
    next: int = 0
    end: int = -1  # the offset after the last acknowledged record; -1: unknown
    doubt: InDoubt | None = None

    def take(self, records: int) -> Stamp:
        """The stamp for this many records."""
        stamp = Stamp(self.producer_id, self.epoch, self.next)
        self.next = (self.next + records) & LAST_SEQUENCE
        return stamp

    def give_back(self, stamp: Stamp) -> None:
        """Nothing from this stamp on was appended."""
        self.next = stamp.sequence

    def raise_epoch(self) -> bool:
        """Start again at 0, and drop what is in doubt; False: this was the last epoch of the producer id."""
        self.doubt = None
        if self.epoch >= _MAX_EPOCH:
            return False
        self.epoch, self.next = self.epoch + 1, 0
        return True


class Sequences:
    """All partitions of one target cluster, each with one sequence per sender (`Plan.sender`).

    Two senders in one partition (two sources, one topic) need two producer ids: what one of them left in doubt is
    resolved by its own retry, whatever the other has sent meanwhile, while in one sequence other data means that the
    data in doubt will not be sent again. A partition must never have two sequences with one producer id: a broker would
    treat new data as a duplicate. So there is a pool: the first sender of each partition gets the first id, the second
    one the second.
    """

    def __init__(self, limit: int = MAX_PARTITIONS, senders: int = MAX_SENDERS) -> None:
        self._limit = limit
        self._senders = senders
        self._known: dict[TopicPartition, dict[Hashable, Sequence]] = {}  # senders by last use
        self._count = 0
        self._pool: dict[int, int] = {}  # epochs by producer id

    def begin(self, producer_id: int, epoch: int) -> None:
        """The answer to InitProducerId, for senders without a sequence."""
        self._pool[producer_id] = epoch

    def lacks_id(self, wanted: Iterable[tuple[TopicPartition, Hashable]]) -> bool:
        """True if one of these partitions and senders needs another producer id."""
        return any(
            sender not in (known := self._known.get(partition, {}))
            and len(known) < self._senders
            and self._free(known) is None
            for partition, sender in wanted
        )

    def of(self, partition: TopicPartition, sender: Hashable = None) -> Sequence | None:
        """None: a producer id is missing. Above `senders`, the least recently used one loses its sequence."""
        senders = self._known.get(partition, {})
        known = senders.pop(sender, None) or self._new(partition, senders)
        if known is not None:
            for other in senders.values():
                other.end = -1  # records of this sender follow, so the other's offsets have gaps
            self._known.setdefault(partition, senders)[sender] = known
            self._forget_all_above_limit()
        return known

    def in_doubt(self) -> Iterator[tuple[TopicPartition, Hashable, Sequence]]:
        """What the next process should `restore`."""
        for partition, senders in self._known.items():
            for sender, known in senders.items():
                if known.doubt is not None:
                    yield partition, sender, known

    def restore(self, partition: TopicPartition, sender: Hashable, sequence: Sequence) -> None:
        """A sequence of an earlier process. Its producer id is only for this partition: others may have used it."""
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
        """Its stamps are no longer valid: it needs another producer id, and no other sender gets this one."""
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
