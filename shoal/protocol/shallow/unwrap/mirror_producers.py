"""Idempotent and transactional mirrors: renumbers the batches of a produce request, partition by partition.

`prepare` is called for every record set, with or without envelopes, while the caller holds the partition's lock: after
the first envelope the sequences of a producer differ in a partition, so its batches without envelopes change, too. The
caller keeps the lock until all of the batch is answered, also before the first envelope (sequences/mirror.py, rule 3).

Batches of an envelope get the mirror's own stamps: producer id, epoch, transactional bit, sequence. (Source batches
have -1 in all of them, see `producible_header`.) For the target broker these stamps make a batch part of a transaction,
so the copies become visible together with the mirror's offsets, or not at all. The stamps are in the header, which the
CRC covers. The CRC is patched, so the broker still detects damage of the payload.
"""

from bisect import bisect_right
from collections.abc import Hashable, Iterator
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from shoal.protocol.records.batch import HEADER_SIZE, BatchHeader, body_crc
from shoal.protocol.shallow.unwrap.appended_log import Appended
from shoal.protocol.shallow.unwrap.plan import Item, Plan, Refused, plain_plan
from shoal.protocol.shallow.unwrap.sequences.mirror import (
    Misplaced,
    OuterStamp,
    Placed,
    SequenceMap,
    SequenceStatistics,
    add_sequence,
    outer_stamp,
)
from shoal.protocol.shallow.unwrap.sequences.slots import Keep
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.crc import Buffer
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.types import TopicPartition

__all__ = ["DEFAULT_SLOTS", "MirrorProducers", "Prepared", "StampedDeliveries", "restamp"]

# Known (producer id, partition) pairs; 8 MiB if all are in use. A mirror has one for each partition that it writes. A
# pair that is forgotten within an epoch makes its producer start a new one.
DEFAULT_SLOTS = 16_384
# Records of one outer batch by the counts in headers, which are added up, so sequences wrap around.
MAX_RECORDS = 0x7FFFFFFF


def restamp(plan: Plan, stamp: OuterStamp, first: int) -> Plan:
    """The plan with the mirror's stamps on its batches; sequences start at `first`."""
    return replace(plan, items=tuple(_items(plan, stamp, first)))


def _items(plan: Plan, stamp: OuterStamp, sequence: int) -> Iterator[Item]:
    for place, item in enumerate(plan.items):
        row, transactional = item.batches, stamp.is_transactional
        stamped = row.stamped(stamp.producer_id, stamp.epoch, sequence, transactional=transactional)
        yield replace(item, identity=place, batches=stamped)
        sequence = add_sequence(sequence, sum(row.records))


class StampedDeliveries:
    """The appended part of one restamped plan. The identity of an item is its index in the plan.

    It replaces `AppendedLog`, but counts the inner records of one outer batch, so it is also right after a restart. An
    envelope's key is not enough: what an aborted transaction appended is not delivered.
    """

    def __init__(self, sequences: SequenceMap, stamp: OuterStamp, plan: Plan, placed: Placed) -> None:
        self.placed = placed
        self._sequences = sequences
        self._stamp = stamp
        self._with_key = plan.items[0].key is not None
        # Per item: the number of records before each of its batches, and after the last one.
        self._records: list[tuple[int, ...]] = []
        before = 0
        for item in plan.items:
            self._records.append(tuple(accumulate(item.batches.records, initial=before)))
            before = self._records[-1][-1]

    def recall(self, partition: TopicPartition, identity: Hashable) -> Appended:
        before = self._of(identity)
        batches = min(max(bisect_right(before, self.placed.appended) - 1, 0), len(before) - 1)
        is_inside = before[batches] < self.placed.appended < before[-1]
        offset = self.placed.base_offset
        records = self.placed.appended - before[batches] if is_inside else 0
        return Appended(batches=batches, records=records, first=offset, last=offset)

    def record(self, partition: TopicPartition, identity: Hashable, delivered: Appended) -> None:
        records = self._of(identity)[delivered.batches] + delivered.records
        offset = self.placed.base_offset
        if identity == 0:  # the mirror's answer depends on it (appended_items.py)
            offset = delivered.last if self._with_key else delivered.first
        self.placed = self.placed._replace(appended=records, base_offset=offset)
        self._sequences.appended(partition, self._stamp, records, offset)

    def _of(self, identity: Hashable) -> tuple[int, ...]:
        assert isinstance(identity, int)
        return self._records[identity]


class Prepared(NamedTuple):
    """A plan whose batches have the mirror's stamps, and its already appended part."""

    plan: Plan
    deliveries: StampedDeliveries


class MirrorProducers:
    """`slots`: memory, zero at first, that should survive the process. `keep` gets each change (slots.py)."""

    def __init__(
        self, slots: bytearray | memoryview, *, keep: Keep | None = None, plain_codec: Codec | None = None
    ) -> None:
        self._sequences = SequenceMap(slots, keep)
        self._plain_codec = plain_codec

    def prepare(
        self, partition: TopicPartition, frame: Buffer, start: int, end: int, planned: Plan | BatchHeader | None
    ) -> Prepared | Plan | Refused | None:
        """For the record set `frame[start:end]`. The plan itself, or None: its producer is not idempotent."""
        if isinstance(planned, Plan):
            return self._opened(partition, planned, planned.stamp) if planned.stamp else planned
        if not _may_be_stamped(frame, start, end):
            return None
        if (header := planned) is None:
            return Refused(
                error_code=ErrorCode.INVALID_RECORD, message="not exactly one batch of an idempotent producer"
            )
        if header.size != end - start or body_crc(frame, start, end) != header.crc:
            return Refused(error_code=ErrorCode.CORRUPT_MESSAGE, message="damaged on its way from the mirror to Shoal")
        stamp = outer_stamp(header)
        if stamp is None:
            return None
        placed = self._sequences.place(partition, stamp, stamp.records)
        return self._placed(plain_plan(frame, start, end, header, self._plain_codec, 0), stamp, placed)

    def _opened(self, partition: TopicPartition, plan: Plan, stamp: OuterStamp) -> Prepared | Refused:
        inner = sum(sum(item.batches.records) for item in plan.items)
        if inner > MAX_RECORDS:
            return Refused(error_code=ErrorCode.INVALID_RECORD, message=f"envelopes that state {inner} records")
        return self._placed(plan, stamp, self._sequences.place(partition, stamp, inner))

    def _placed(self, plan: Plan, stamp: OuterStamp, placed: Placed | Misplaced) -> Prepared | Refused:
        if isinstance(placed, Misplaced):
            return Refused(error_code=placed.error_code, message=placed.message)
        restamped = restamp(plan, stamp, placed.first)
        return Prepared(restamped, StampedDeliveries(self._sequences, stamp, restamped, placed))

    @property
    def slots(self) -> int:
        return self._sequences.slots

    def statistics(self) -> SequenceStatistics:
        return self._sequences.statistics()


def _may_be_stamped(frame: Buffer, start: int, end: int) -> bool:
    """The first batch has magic 2 and a producer id. The broker checks everything else."""
    return end - start >= HEADER_SIZE and frame[start + 16] == 2 and frame[start + 43] < 0x80
