"""The batches of an idempotent or transactional mirror, stamped as its own: producer id, epoch, transactional bit, sequence.

Source batches come with -1 in all of them (`producible_header`). A target broker takes a batch into a transaction by these
stamps alone, so with them the copies become visible together with the mirror's offsets, or not at all. They lie in the header
and within the CRC, which is patched once more: damage to the payload stays visible to the broker.

`StampedDeliveries` stands where `Deliveries` does for other mirrors, but counts the inner records of one outer batch, and so is
true after a restart, too. An envelope's key would not do here: what an aborted transaction has delivered is not delivered.
"""

from bisect import bisect_right
from collections.abc import Hashable, Iterator
from dataclasses import replace
from itertools import accumulate

from shoal.protocol.shallow.unwrap.delivery import Appended, Target
from shoal.protocol.shallow.unwrap.mirror_sequences import OuterStamp, Placed, SequenceMap, add_sequence
from shoal.protocol.shallow.unwrap.plan import Item, Plan

__all__ = ["StampedDeliveries", "restamp"]


def restamp(plan: Plan, stamp: OuterStamp, first: int) -> Plan:
    """The plan with the mirror's stamps on its batches; its records have the sequences from `first` on."""
    return replace(plan, items=tuple(_items(plan, stamp, first)))


def _items(plan: Plan, stamp: OuterStamp, sequence: int) -> Iterator[Item]:
    for place, item in enumerate(plan.items):
        row, transactional = item.batches, stamp.is_transactional
        stamped = row.stamped(stamp.producer_id, stamp.epoch, sequence, transactional=transactional)
        yield replace(item, identity=place, batches=stamped)
        sequence = add_sequence(sequence, sum(row.records))


class StampedDeliveries:
    """What of one restamped plan is appended. Its items' identities are their places in it."""

    def __init__(self, sequences: SequenceMap, stamp: OuterStamp, plan: Plan, placed: Placed) -> None:
        self.placed = placed
        self._sequences = sequences
        self._stamp = stamp
        self._with_key = plan.items[0].key is not None
        # Of each item: how many records are before each of its batches, and behind its last.
        self._records: list[tuple[int, ...]] = []
        before = 0
        for item in plan.items:
            self._records.append(tuple(accumulate(item.batches.records, initial=before)))
            before = self._records[-1][-1]

    def recall(self, target: Target, identity: Hashable) -> Appended:
        before = self._of(identity)
        batches = min(max(bisect_right(before, self.placed.appended) - 1, 0), len(before) - 1)
        is_inside = before[batches] < self.placed.appended < before[-1]
        offset = self.placed.base_offset
        records = self.placed.appended - before[batches] if is_inside else 0
        return Appended(batches=batches, records=records, first=offset, last=offset)

    def record(self, target: Target, identity: Hashable, delivered: Appended) -> None:
        records = self._of(identity)[delivered.batches] + delivered.records
        offset = self.placed.base_offset
        if identity == 0:  # what the answer to the mirror is made of (progress.py)
            offset = delivered.last if self._with_key else delivered.first
        self.placed = self.placed._replace(appended=records, base_offset=offset)
        self._sequences.appended(target, self._stamp, records, offset)

    def _of(self, identity: Hashable) -> tuple[int, ...]:
        assert isinstance(identity, int)
        return self._records[identity]
