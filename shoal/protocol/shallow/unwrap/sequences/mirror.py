"""Sequence numbers of the batches of an idempotent or transactional mirror on the target.

The mirror's producer uses one sequence per outer record. An envelope is one outer record with n inner records, and the
broker requires each batch to begin where the previous one ended. So after the first envelope the numbers of a (producer
id, epoch, partition) differ, and every later batch of it is renumbered, also batches without envelopes. Until then the
numbers are the mirror's own.

Rules:
1. A new epoch begins at 0 on both sides. So an unknown producer id, epoch and partition must begin at 0; otherwise its
   map is lost. The answer is then OUT_OF_ORDER_SEQUENCE_NUMBER, and the batch is never passed on: the broker remembers
   the ranges of the last 5 batches, and would acknowledge and drop an outer number that happens to match one of them as
   a duplicate.
2. The same bytes with the same outer sequence are a retry and get the same inner sequences. The last 5 outer batches
   are known (a producer has at most 5 in flight), with the appended part of each. That part is not sent again: the
   broker recognises only the last 5 *inner* batches.
3. A batch is accepted only if all of the previous one is appended. Until then a producer with several requests in
   flight gets OUT_OF_ORDER_SEQUENCE_NUMBER, as from a broker, and sends the batch again after the other one. This also
   applies before the first envelope: an envelope is so many batches that the broker forgets the ones before it, and a
   retry of one that was still unanswered would be out of order.
4. Everything else is out of order. Shoal never guesses.

How the Java producer reacts to OUT_OF_ORDER_SEQUENCE_NUMBER (TransactionManager.canRetry, handleFailedBatch): it
retries a batch that is not the next one after the last acknowledged; otherwise an idempotent producer starts a new
epoch and sends everything in flight again, and a transactional one can only abort. Rejected: UNKNOWN_PRODUCER_ID, to
which a transactional producer may respond with sequence 0 in the same epoch and transaction, as if nothing had been
appended; INVALID_PRODUCER_EPOCH and PRODUCER_FENCED, which state a wrong cause, and the second is always fatal.

The map is in a buffer (slots.py). If that is in a file, it survives the process: a killed Shoal finds it
again, and a mirror continues its open transaction. It is written before anything is sent, so it is never behind. An old
map would be worse than none: the owner of the buffer must never restore one.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import NamedTuple

from shoal.protocol.records.batch import BatchHeader
from shoal.protocol.shallow.unwrap.sequences.slots import Keep, Lineage, Outer, SlotTable, slot_key
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.types import TopicPartition

__all__ = [
    "Misplaced",
    "OuterStamp",
    "Placed",
    "SequenceMap",
    "SequenceStatistics",
    "add_sequence",
    "outer_stamp",
]

_SEQUENCES = 1 << 31  # 0 follows 2^31 - 1 (DefaultRecordBatch.incrementSequence)
_IN_FLIGHT = 5  # outer batches: the highest max.in.flight.requests.per.connection of an idempotent producer


def add_sequence(sequence: int, records: int) -> int:
    return (sequence + records) % _SEQUENCES


class OuterStamp(NamedTuple):
    """The stamp of an outer batch. `identity` (CRC and size) is equal only in a retry."""

    producer_id: int
    epoch: int
    base_sequence: int
    records: int
    is_transactional: bool
    identity: tuple[int, int]


def outer_stamp(header: BatchHeader) -> OuterStamp | None:
    """None: its producer is not idempotent. The CRC must be checked before, because it identifies a retry."""
    if header.producer_id < 0:
        return None
    return OuterStamp(
        producer_id=header.producer_id,
        epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        records=header.record_count,
        is_transactional=header.is_transactional,
        identity=(header.crc, header.batch_length),
    )


class Placed(NamedTuple):
    """Sequences of the inner records start at `first`; `appended` of them are already appended.

    `base_offset`: of the mirror's answer, if known (-1: unknown). `again`: it was sent before, so more may be appended
    than is known.
    """

    first: int
    appended: int = 0
    base_offset: int = -1
    again: bool = False


class Misplaced(NamedTuple):
    """Nothing of the batch may be sent; the mirror gets this error."""

    error_code: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceStatistics:
    known: int
    forgotten: int
    refused: int


class SequenceMap:
    """One for each target cluster. It has the most recently used (producer id, partition) pairs, as many as `slots`.

    Call `place` before anything of a batch is sent, and `appended` after each success of the broker.
    """

    def __init__(self, slots: bytearray | memoryview, keep: Keep | None = None) -> None:
        self._slots = SlotTable(slots, keep)
        self._known: OrderedDict[bytes, Lineage] = OrderedDict(self._slots.load())
        self._forgotten = 0
        self._forgotten_keys: OrderedDict[bytes, None] = OrderedDict()  # at most as many as there are slots
        self._refused = 0

    @property
    def slots(self) -> int:
        return self._slots.count

    def place(self, partition: TopicPartition, stamp: OuterStamp, inner: int) -> Placed | Misplaced:
        """The sequences of the batch, which has `inner` records for the broker."""
        key = slot_key(stamp.producer_id, partition)
        placed = self._place(key, stamp, inner)
        self._refused += isinstance(placed, Misplaced)
        return placed

    def _place(self, key: bytes, stamp: OuterStamp, inner: int) -> Placed | Misplaced:
        lineage = self._known.get(key)
        if lineage is not None and stamp.epoch < lineage.epoch:
            return Misplaced(
                ErrorCode.INVALID_PRODUCER_EPOCH, f"{_numbered(stamp)}: the partition has seen epoch {lineage.epoch}"
            )
        if lineage is None or not lineage.window or stamp.epoch > lineage.epoch:
            if stamp.base_sequence != 0:
                return _out_of_order(stamp, self._why_unknown(key))
            return self._take(key, Lineage(epoch=stamp.epoch), stamp, 0, inner)
        self._known.move_to_end(key)
        return _known(lineage, stamp, inner) or self._go_on(key, lineage, stamp, inner)

    def _go_on(self, key: bytes, lineage: Lineage, stamp: OuterStamp, inner: int) -> Placed | Misplaced:
        last = lineage.window[-1]
        expected = add_sequence(last.base, last.records)
        if stamp.base_sequence != expected:
            return _out_of_order(stamp, f"the next is {expected}")
        if last.appended < last.inner:
            return _out_of_order(stamp, f"of the batch before it {last.appended} of {last.inner} records are appended")
        return self._take(key, lineage, stamp, add_sequence(last.first, last.inner), inner)

    def _take(self, key: bytes, lineage: Lineage, stamp: OuterStamp, first: int, inner: int) -> Placed:
        crc, size = stamp.identity
        outer = Outer(base=stamp.base_sequence, records=stamp.records, first=first, inner=inner, crc=crc, size=size)
        self._store(key, replace(lineage, window=(*lineage.window, outer)[-_IN_FLIGHT:]))
        return Placed(first)

    def appended(self, partition: TopicPartition, stamp: OuterStamp, records: int, base_offset: int) -> None:
        """`records` of the inner records of a placed batch are appended now."""
        key = slot_key(stamp.producer_id, partition)
        lineage = self._known.get(key)
        if lineage is None or lineage.epoch != stamp.epoch:
            return  # meanwhile forgotten or outdated
        window = tuple(
            outer._replace(appended=records, base_offset=base_offset)
            if (outer.base, outer.crc, outer.size) == (stamp.base_sequence, *stamp.identity)
            else outer
            for outer in lineage.window
        )
        self._store(key, replace(lineage, window=window))

    def _store(self, key: bytes, lineage: Lineage) -> None:
        self._known[key] = lineage
        self._known.move_to_end(key)
        if len(self._known) > self._slots.count:
            forgotten, _ = self._known.popitem(last=False)
            self._slots.release(forgotten)
            self._forgotten += 1
            self._forgotten_keys[forgotten] = None
            if len(self._forgotten_keys) > self._slots.count:
                self._forgotten_keys.popitem(last=False)
        self._slots.write(key, lineage)

    def _why_unknown(self, key: bytes) -> str:
        if key in self._forgotten_keys:
            in_use = f"more than {self.slots} producers and partitions are in use (producer-slots)"
            return f"what came before it was forgotten, since {in_use}"
        return "what came before it is not known here"

    def statistics(self) -> SequenceStatistics:
        return SequenceStatistics(known=len(self._known), forgotten=self._forgotten, refused=self._refused)


def _known(lineage: Lineage, stamp: OuterStamp, inner: int) -> Placed | None:
    """The earlier sequences of a retry."""
    for outer in lineage.window:
        if outer.base == stamp.base_sequence and (outer.crc, outer.size) == stamp.identity and outer.inner == inner:
            return Placed(outer.first, outer.appended, outer.base_offset, again=True)
    return None


def _out_of_order(stamp: OuterStamp, why: str) -> Misplaced:
    return Misplaced(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"{_numbered(stamp)} is out of order: {why}")


def _numbered(stamp: OuterStamp) -> str:
    return f"sequence {stamp.base_sequence} of producer id {stamp.producer_id}, epoch {stamp.epoch}"
