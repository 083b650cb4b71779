"""A target broker with Kafka's producer state, and a mirror whose producer behaves like the Java client's.

Broker: ProducerStateEntry, ProducerAppendInfo.checkSequence, UnifiedLog.analyzeAndValidateProducerState. Mirror:
TransactionManager.canRetry, Sender.completeBatch; a transaction per chunk of outer batches, as Connect makes them.
"""

from __future__ import annotations

import struct
from collections import deque
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import crc32c

from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.records.recordset import split
from shoal.protocol.shallow.unwrap.findings import Outcome
from shoal.protocol.shallow.unwrap.mirror_producers import MirrorProducers, Prepared
from shoal.protocol.shallow.unwrap.plan import Missing, Plan, Refused, Stripped
from shoal.protocol.shallow.unwrap.plan_record_set import plan_record_set
from shoal.protocol.shallow.unwrap.progress import PartitionProgress
from shoal.protocol.shallow.unwrap.sequences.slots import SLOT_SIZE
from shoal.protocol.wire.types import TopicPartition
from tests.support.batches import consumed
from tests.support.shallow.world import CORRUPT_MESSAGE, INVALID_RECORD, flat, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NOT_LEADER, OUT_OF_ORDER, STALE_EPOCH = 6, 45, 47
TRANSACTIONAL = 0x10
SEQUENCES = 1 << 31
TARGET = TopicPartition("A.orders", 3)
LEADER_DIES = {
    "leader dies": 0,
    "leader dies with a batch": 1,
    "leader dies with some": 3,
    "leader dies with many": 100,
}


class Logged(NamedTuple):
    record: NewRecord | None  # None: a marker
    producer_id: int
    epoch: int


@dataclass
class State:
    """ProducerStateEntry: the last batches as (first sequence, last sequence, offset)."""

    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))


@dataclass
class StampedBroker:
    """One partition. `new_transactions`: KIP-890's, where a producer that is not known must begin at 0.

    `takes_sets`: as with the agent. `safe`: the end of the log that every replica has.
    """

    transactional: bool = True
    new_transactions: bool = True
    log: list[Logged] = field(default_factory=list)
    committed: set[tuple[int, int, int]] = field(default_factory=set)  # (producer id, epoch, end offset)
    states: dict[int, State] = field(default_factory=dict)
    takes_sets: bool = False
    sets: int = 0
    safe: int = 0
    copies: list[tuple[int, dict[int, State]]] = field(default_factory=list)

    def produce(self, record_set: bytes) -> tuple[int, int]:
        """A set is appended completely or not at all; a partly known one is refused."""
        spans = split(record_set, 0, len(record_set)).spans
        batches = [record_set[span.start : span.end] for span in spans]
        if len(batches) == 1:
            return self._produce(record_set)
        if not self.takes_sets:
            return INVALID_RECORD, -1
        before = deepcopy((self.log, self.states, self.copies))
        answers = list[tuple[int, int]]()
        for batch in batches:
            end = len(self.log)
            answers.append(self._produce(batch))
            if answers[-1][0] or len(self.log) == end:
                self.log, self.states, self.copies = before
                return answers[-1][0] or INVALID_RECORD, -1
        self.sets += 1
        return answers[0]

    def fail_over(self, lost: int) -> None:
        """A new leader lacks up to this many of the last batches, but no acknowledged one."""
        while lost and self.copies and self.copies[-1][0] > self.safe:
            self.copies.pop()
            lost -= 1
        end, states = self.copies[-1] if self.copies else (0, {})
        if end >= self.safe:  # else the last thing there is a marker
            del self.log[end:]
            self.states = deepcopy(states)

    def _produce(self, batch: bytes) -> tuple[int, int]:
        base, length, _, magic, crc, attributes, last_delta = struct.unpack_from(">qiibIhi", batch)
        producer_id, epoch, sequence, count = struct.unpack_from(">qhii", batch, 43)
        if base or magic != 2 or length + 12 != len(batch) or not 0 < count == last_delta + 1:
            return INVALID_RECORD, -1
        if crc32c.crc32c(batch[21:]) != crc:
            return CORRUPT_MESSAGE, -1
        if producer_id < 0 or sequence < 0 or attributes & ~7 != (TRANSACTIONAL if self.transactional else 0):
            return INVALID_RECORD, -1
        return self._append(producer_id, epoch, sequence, plain(consumed(batch)))

    def _append(self, producer_id: int, epoch: int, sequence: int, records: list[NewRecord]) -> tuple[int, int]:
        state, last = self.states.get(producer_id), (sequence + len(records) - 1) % SEQUENCES
        if state is not None and state.epoch == epoch:
            for first, end, offset in state.batches:
                if (first, end) == (sequence, last):
                    return 0, offset
        if state is None or state.epoch != epoch:
            if state is not None and epoch < state.epoch:
                return STALE_EPOCH, -1
            if sequence and (state is not None or self.new_transactions):
                return OUT_OF_ORDER, -1
            state = self.states[producer_id] = State(epoch)
        elif state.batches and sequence != (state.batches[-1][1] + 1) % SEQUENCES:
            return OUT_OF_ORDER, -1
        offset = len(self.log)
        state.batches.append((sequence, last, offset))
        self.log += [Logged(record, producer_id, epoch) for record in records]
        self.copies.append((len(self.log), deepcopy(self.states)))
        return 0, offset

    def crash(self) -> None:
        """A snapshot of the producer state holds the last batch only."""
        for state in self.states.values():
            state.batches = deque(list(state.batches)[-1:], maxlen=5)

    def end(self, producer_id: int, *, commit: bool) -> None:
        """A marker: commits or aborts everything that the producer wrote since its last one."""
        if self.transactional:
            if commit:
                self.committed.add((producer_id, self._start(producer_id), len(self.log)))
            self.log.append(Logged(None, producer_id, -1))
        self.safe = len(self.log)

    def _start(self, producer_id: int) -> int:
        markers = [at for at, one in enumerate(self.log) if one.record is None and one.producer_id == producer_id]
        return markers[-1] + 1 if markers else 0

    def visible(self) -> list[NewRecord]:
        """The records that a read_committed consumer gets."""
        return [
            one.record
            for at, one in enumerate(self.log)
            if one.record is not None
            and (
                not self.transactional
                or any(pid == one.producer_id and start <= at < end for pid, start, end in self.committed)
            )
        ]


class Lost(Exception):
    """The mirror's connection ends without an answer."""


class Unheard(Lost):
    """... and Shoal continues with the requests received by then."""


@dataclass
class Shoal:
    """The produce side for one partition, in front of a broker; what happens to each request to it is drawn."""

    broker: StampedBroker
    draws: list[str]
    memory: bytearray = field(default_factory=lambda: bytearray(8 * SLOT_SIZE))
    sent: int = 0
    map_was_lost: bool = False
    lost_in_flight: bool = False

    def __post_init__(self) -> None:
        self.old_memory = bytes(self.memory)
        self.start()

    def start(self) -> None:
        self.producers = MirrorProducers(self.memory)

    def handle(self, outer: bytes) -> Outcome:
        """Raises Lost."""
        plan = plan_record_set(outer, 0, len(outer))
        assert not isinstance(plan, Refused | Stripped | Missing)
        prepared = self.producers.prepare(TARGET, outer, 0, len(outer), plan)
        if isinstance(prepared, Refused):
            return Outcome(error_code=prepared.error_code)
        assert isinstance(prepared, Prepared)
        again, sets = prepared.deliveries.placed.again, self.broker.takes_sets
        progress = PartitionProgress(TARGET, prepared.plan, prepared.deliveries, sets=sets, again=again)
        while record_sets := list(iter(progress.next_record_set, None)):
            for record_set in record_sets:
                progress.answered(*self.send(flat(record_set.buffers())))
        assert progress.outcome
        return self.told(progress.outcome)

    def told(self, outcome: Outcome) -> Outcome:
        fault = self.draws.pop() if self.draws else "ok"
        if fault in ("lost answer", "shoal dies after"):
            self.start()
            raise Lost
        if fault == "unheard":
            raise Unheard
        return outcome

    def send(self, batch: bytes) -> tuple[int, int]:
        self.sent += 1
        fault = self.draws.pop() if self.draws else "ok"
        if fault == "error":
            return NOT_LEADER, -1
        if fault == "broker dies":
            self.broker.crash()
        if fault in ("lost request", "broker dies", "shoal dies before"):
            self.end(fault)
        answer = self.broker.produce(batch)
        if fault in LEADER_DIES:
            self.broker.fail_over(LEADER_DIES[fault])
        if fault not in ("ok", "unheard"):
            self.end(fault)
        self.broker.safe = len(self.broker.log)
        return answer

    def end(self, fault: str) -> None:
        self.lost_in_flight = True
        if fault.startswith("shoal dies"):
            self.start()
        elif fault == "map is lost":
            self.memory, self.map_was_lost = bytearray(8 * SLOT_SIZE), True
            self.start()
        elif fault == "map is old":
            self.memory, self.map_was_lost = bytearray(self.old_memory), True
            self.start()
        elif fault == "map is saved":
            self.old_memory = bytes(self.memory)
        raise Lost


@dataclass
class Mirror:
    """`chunks`: of outer batches, as lists of records; one transaction each. `in_flight` requests at a time."""

    shoal: Shoal
    chunks: Sequence[Sequence[Sequence[NewRecord]]]
    in_flight: int = 1
    producer_id: int = 7
    epoch: int = 0
    sequence: int = 0
    acked: int = -1
    aborts: int = 0

    def run(self) -> None:
        chunks = deque(self.chunks)
        while chunks:
            assert self.aborts < 100
            if self._transaction(chunks[0]):
                chunks.popleft()
            else:
                self.aborts += 1

    def _transaction(self, chunk: Sequence[Sequence[NewRecord]]) -> bool:
        broker = self.shoal.broker
        pending = deque(self._batches(chunk))
        while pending:
            if not self._round(pending):
                broker.end(self.producer_id, commit=False)
                self._next_epoch()
                return False
        broker.end(self.producer_id, commit=True)
        if broker.transactional and broker.new_transactions:
            self._next_epoch()
        return True

    def _next_epoch(self) -> None:
        self.epoch, self.sequence, self.acked = self.epoch + 1, 0, -1

    def _batches(self, chunk: Sequence[Sequence[NewRecord]]) -> Iterator[tuple[int, int, bytes]]:
        for records in chunk:
            outer = encode_batch(
                records,
                attributes=TRANSACTIONAL if self.shoal.broker.transactional else 0,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=self.sequence,
            )
            yield self.sequence, len(records), outer
            self.sequence = (self.sequence + len(records)) % SEQUENCES

    def _check_answer(self, outer: bytes, base_offset: int) -> None:
        """The largest that skips nothing (protocol/shallow/unwrap/progress.py): the first envelope's last record, or
        the first plain record. It may not be known where the answer to a set was lost.
        """
        if base_offset < 0:
            assert self.shoal.broker.sets or self.shoal.lost_in_flight
            return
        first = consumed(outer)[0]
        plan = plan_record_set(outer, 0, len(outer))
        assert not isinstance(plan, Refused | Stripped)
        key = plan.items[0].key if isinstance(plan, Plan) else None
        there = self.shoal.broker.log[base_offset].record
        assert there
        assert there.value == (first.value if key is None else b"value-%d" % key.last_offset * 5)

    def _round(self, pending: deque[tuple[int, int, bytes]]) -> bool:
        """Resolve what may be in flight, once; False: the producer can continue only in a new epoch."""
        hears = True
        for one in list(pending)[: self.in_flight]:
            sequence, count, outer = one
            try:
                outcome = self.shoal.handle(outer)
            except Unheard:
                hears = False
            except Lost:
                return True
            if not hears:
                continue
            if not outcome.error_code:
                self._check_answer(outer, outcome.base_offset)
                pending.remove(one)
                self.acked = (sequence + count - 1) % SEQUENCES
            elif outcome.error_code == STALE_EPOCH or (
                outcome.error_code == OUT_OF_ORDER and sequence == (self.acked + 1) % SEQUENCES
            ):
                return False
            else:
                assert outcome.error_code in (OUT_OF_ORDER, NOT_LEADER)
        return True


__all__ = ["Logged", "Mirror", "Shoal", "StampedBroker"]
