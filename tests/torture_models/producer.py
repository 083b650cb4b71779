"""A mirror's producer, like the Java client: what it sends and when, and how it handles an answer.

    Sender.sendProducerData, completeBatch, failBatch; RecordAccumulator.shouldStopDrainBatchesForPartition;
    TransactionManager.canRetry, bumpIdempotentProducerEpoch

Without idempotence (Connect's default) a failed batch is resent unchanged, and with one request in flight nothing of
its partition is sent before it. With idempotence up to five are in flight; a retry waits until it is the first of them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shoal.protocol.records.batch import NewRecord, encode_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["RETRIABLE", "TOO_LARGE", "Lane", "Outer", "Producer"]

OUT_OF_ORDER = 45
DUPLICATE = 46
TOO_LARGE = 10
# org.apache.kafka.common.protocol.Errors whose exception is a RetriableException
RETRIABLE = frozenset({2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 56, 100, 103})
SEQUENCES = 1 << 31


@dataclass(eq=False)
class Outer:
    """A batch of the producer. `offsets`: of the source records that it contains."""

    records: list[NewRecord]
    offsets: range
    wrapped: bool
    sequence: int = -1
    sent: int = 0  # number of attempts
    in_flight: bool = False
    rewritten: bool = False  # sequenceHasBeenReset
    frame: bytes = b""

    @property
    def last_sequence(self) -> int:
        return (self.sequence + len(self.records) - 1) % SEQUENCES


@dataclass
class Lane:
    """A partition: unacknowledged batches, in order."""

    queue: deque[Outer] = field(default_factory=deque)
    next_sequence: int = 0
    last_acked: int = -1


@dataclass
class Producer:
    idempotent: bool
    in_flight: int
    producer_id: int
    repeats_large: bool = False  # a batch that is too large is sent again as it is (KAFKA-8350)
    epoch: int = 0
    lanes: dict[int, Lane] = field(default_factory=dict)
    failed: int = 0  # the error code with which the task failed
    bumps: int = 0

    def lane(self, partition: int) -> Lane:
        return self.lanes.setdefault(partition, Lane())

    def add(self, partition: int, records: Sequence[NewRecord], offsets: range, *, wrapped: bool, join: bool) -> None:
        """`join`: to the previous batch, if not yet sent."""
        queue = self.lane(partition).queue
        if join and queue and not queue[-1].sent and queue[-1].sequence < 0:
            last = queue[-1]
            last.records += records
            last.offsets = range(last.offsets.start, offsets.stop)
            last.wrapped |= wrapped
        else:
            queue.append(Outer(list(records), offsets, wrapped))

    def next_batch(self, partition: int) -> Outer | None:
        """What may be sent to this partition now."""
        lane = self.lane(partition)
        under_way = [one for one in lane.queue if one.in_flight]
        if len(under_way) >= self.in_flight:
            return None
        waiting = next((one for one in lane.queue if not one.in_flight), None)
        if waiting is None or not self.idempotent:
            return waiting
        first = next(one for one in lane.queue if one.sent or one is waiting)
        return None if waiting.sequence >= 0 and under_way and waiting is not first else waiting

    def send(self, partition: int, outer: Outer) -> bytes:
        lane = self.lane(partition)
        if self.idempotent and outer.sequence < 0:
            outer.sequence, lane.next_sequence = (
                lane.next_sequence,
                (lane.next_sequence + len(outer.records)) % SEQUENCES,
            )
            outer.frame = b""
        if not outer.frame:
            stamps = (self.producer_id, self.epoch, outer.sequence) if self.idempotent else (-1, -1, -1)
            outer.frame = encode_batch(
                outer.records, producer_id=stamps[0], producer_epoch=stamps[1], base_sequence=stamps[2]
            )
        outer.in_flight, outer.sent = True, outer.sent + 1
        return outer.frame

    def answered(self, partition: int, outer: Outer, error: int) -> None:
        lane = self.lane(partition)
        if outer not in lane.queue:
            return
        outer.in_flight = False
        if not error or (error == DUPLICATE and self.idempotent):
            lane.queue.remove(outer)
            lane.last_acked = max(lane.last_acked, outer.last_sequence)
        elif error == OUT_OF_ORDER and self.idempotent:
            if not outer.rewritten and outer.sequence == lane.last_acked + 1:
                self._next_epoch(lane)
        elif error not in RETRIABLE and not (error == TOO_LARGE and self.repeats_large and len(outer.records) > 1):
            self.failed = error

    def lost(self, outers: Iterator[tuple[int, Outer]]) -> None:
        """Their connection has ended."""
        for _, outer in outers:
            outer.in_flight = False

    def _next_epoch(self, lane: Lane) -> None:
        self.epoch += 1
        self.bumps += 1
        lane.next_sequence, lane.last_acked = 0, -1
        for outer in lane.queue:
            if outer.sequence >= 0:
                outer.sequence, lane.next_sequence = lane.next_sequence, lane.next_sequence + len(outer.records)
                outer.rewritten, outer.frame = True, b""

    @property
    def unacknowledged(self) -> bool:
        return any(lane.queue for lane in self.lanes.values())
