"""Idempotent and transactional mirrors: what of a produce request is renumbered, and how, partition by partition.

`prepare` is asked for every record set, with or without envelopes, while the partition is nobody else's: as soon as the numbers
of a producer have diverged in a partition (mirror_sequences.py), its batches without envelopes must change, too.
"""

from typing import NamedTuple

from shoal.protocol.records.batch import HEADER_SIZE, BatchHeader, body_crc, read_batch_header
from shoal.protocol.records.recordset import split
from shoal.protocol.shallow.batch_row import BatchSlice, OutgoingBatch
from shoal.protocol.shallow.unwrap.delivery import Target
from shoal.protocol.shallow.unwrap.mirror_sequences import (
    Misplaced,
    OuterStamp,
    Placed,
    SequenceMap,
    SequenceStatistics,
    outer_stamp,
)
from shoal.protocol.shallow.unwrap.plain import compress_plain
from shoal.protocol.shallow.unwrap.plan import Item, Plan, Refused
from shoal.protocol.shallow.unwrap.restamp import StampedDeliveries, restamp
from shoal.protocol.shallow.unwrap.sequence_slots import Keep
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.crc import Buffer
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.errors import RemoteProtocolError

__all__ = ["DEFAULT_SLOTS", "MirrorProducers", "Passing", "Prepared"]

# (producer id, partition) pairs that are known at a time, 8 MiB where all are in use. A mirror has one for each partition that
# it writes; a pair that is forgotten in the middle of an epoch makes its producer begin anew.
DEFAULT_SLOTS = 16_384
# Behind one outer batch, by the counts in headers: they are added up, and wrap around.
MAX_RECORDS = 0x7FFFFFFF


class Prepared(NamedTuple):
    """A plan whose batches carry the mirror's stamps, and what of it is appended already."""

    plan: Plan
    deliveries: StampedDeliveries


class Passing(NamedTuple):
    """A batch that passes as it is. `appended` when the broker says so."""

    sequences: SequenceMap
    target: Target
    stamp: OuterStamp

    def appended(self, base_offset: int) -> None:
        self.sequences.appended(self.target, self.stamp, self.stamp.records, base_offset)


class MirrorProducers:
    """`slots`: memory that is zero at first, and should outlive the process: `keep` is told what changes there (sequence_slots.py)."""

    def __init__(
        self, slots: bytearray | memoryview, *, keep: Keep | None = None, plain_codec: Codec | None = None
    ) -> None:
        self._sequences = SequenceMap(slots, keep)
        self._plain_codec = plain_codec

    def prepare(
        self, target: Target, frame: Buffer, start: int, end: int, plan: Plan | None
    ) -> Prepared | Passing | Refused | None:
        """For the record set `frame[start:end]`, of which `plan` is the plan; None: it is of no idempotent producer."""
        if plan is not None:
            return self._opened(target, plan, plan.stamp) if plan.stamp else None
        if not _may_be_stamped(frame, start, end):
            return None
        try:
            (span,), tail = split(frame, start, end)
            header = read_batch_header(frame, span.start, span.end)
        except (RemoteProtocolError, ValueError):
            return Refused(
                error_code=ErrorCode.INVALID_RECORD, message="not exactly one batch of an idempotent producer"
            )
        if tail != end or body_crc(frame, start, end) != header.crc:
            return Refused(error_code=ErrorCode.CORRUPT_MESSAGE, message="damaged on its way from the mirror to Shoal")
        stamp = outer_stamp(header)
        if stamp is None:
            return None
        placed = self._sequences.place(target, stamp, None)
        if isinstance(placed, Placed) and placed.as_it_is:
            return Passing(self._sequences, target, stamp)
        return self._placed(self._plan_of(frame, start, end, header), stamp, placed)

    def _opened(self, target: Target, plan: Plan, stamp: OuterStamp) -> Prepared | Refused:
        inner = sum(sum(item.batches.records) for item in plan.items)
        if inner > MAX_RECORDS:
            return Refused(error_code=ErrorCode.INVALID_RECORD, message=f"envelopes that state {inner} records")
        return self._placed(plan, stamp, self._sequences.place(target, stamp, inner))

    def _placed(self, plan: Plan, stamp: OuterStamp, placed: Placed | Misplaced) -> Prepared | Refused:
        if isinstance(placed, Misplaced):
            return Refused(error_code=placed.error_code, message=placed.message)
        restamped = restamp(plan, stamp, placed.first)
        return Prepared(restamped, StampedDeliveries(self._sequences, stamp, restamped, placed))

    def _plan_of(self, frame: Buffer, start: int, end: int, header: BatchHeader) -> Plan:
        """A batch without envelopes."""
        codec = self._plain_codec
        buffers = compress_plain(frame, start, end, codec) if codec is not None else None
        source = f"a batch at {header.max_timestamp} ms without envelopes"
        whole = tuple(buffers or (memoryview(frame)[start:end],))
        batch = OutgoingBatch(whole, header.record_count, codec if buffers and codec else header.codec, source)
        item = Item(identity=0, key=None, batches=BatchSlice.of((batch,)))
        return Plan(items=(item,), outer_records=header.record_count, stamp=outer_stamp(header))

    @property
    def slots(self) -> int:
        return self._sequences.slots

    def statistics(self) -> SequenceStatistics:
        return self._sequences.statistics()


def _may_be_stamped(frame: Buffer, start: int, end: int) -> bool:
    """The first batch is of magic 2 and has a producer id. Whatever else there is, is the broker's to judge."""
    return end - start >= HEADER_SIZE and frame[start + 16] == 2 and frame[start + 43] < 0x80
