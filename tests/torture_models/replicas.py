"""One partition of a target cluster: a leader's log, followers that have a prefix of it, and the leader's producer
state.

    UnifiedLog.analyzeAndValidateProducerState, ProducerAppendInfo.checkSequence, ProducerStateEntry (5 batches; 1 after
    an orderly stop, because the snapshot has no more). `test_replicas.py` compares it with a real broker.

Followers fetch batches, not sets, so a prefix ends between any two batches. What is acknowledged (acks=all) is on every
in-sync replica, so any elected leader has it; of later batches it may have a part.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import crc32c

__all__ = ["Entry", "Known", "Partition", "Sets", "Stamp", "batches_of", "stamp_of"]

OK, CORRUPT, NOT_LEADER, TOO_LARGE, INVALID_TIMESTAMP = 0, 2, 6, 10, 32
OUT_OF_ORDER, OLD_EPOCH, INVALID = 45, 47, 87
SEQUENCES = 1 << 31
REMEMBERED = 5
TRANSACTIONAL = 0x10


class Sets(Enum):
    """A broker's behaviour for several batches in one record set."""

    REFUSED = "refused"  # every stock broker
    AGENT = "agent"  # docs/agent.md: a repeated set is acknowledged if all of it is there, else refused
    STOCK_CHECK = "stock check"  # accepts them, and treats a set as a duplicate if any of its batches is one


class Stamp(NamedTuple):
    producer_id: int
    epoch: int
    first: int
    last: int


class Entry(NamedTuple):
    """A batch in the log."""

    base: int
    records: int
    batch: bytes
    stamp: Stamp | None


class Kept(NamedTuple):
    first: int
    last: int
    base: int


@dataclass
class Known:
    """The state of a producer."""

    epoch: int
    kept: deque[Kept] = field(default_factory=lambda: deque(maxlen=REMEMBERED))


def batches_of(record_set: bytes) -> list[bytes]:
    found = []
    while record_set:
        size = 12 + int.from_bytes(record_set[8:12], "big")
        found.append(record_set[:size])
        record_set = record_set[size:]
    return found


def stamp_of(batch: bytes) -> Stamp | None:
    producer_id, epoch, sequence, count = struct.unpack_from(">qhii", batch, 43)
    return Stamp(producer_id, epoch, sequence, (sequence + count - 1) % SEQUENCES) if producer_id >= 0 else None


def _side_by_side(known: list[Kept | None]) -> bool:
    """All batches are remembered, consecutively."""
    found = [kept for kept in known if kept is not None]
    ends = [kept.base + (kept.last - kept.first) % SEQUENCES + 1 for kept in found]
    return len(found) == len(known) and ends[:-1] == [kept.base for kept in found[1:]]


def _has_no_gap(batches: list[bytes]) -> bool:
    """Within a set the batches of each producer id are consecutive, as the agent requires."""
    last: dict[int, Stamp] = {}
    for stamp in filter(None, map(stamp_of, batches)):
        before = last.get(stamp.producer_id)
        if before is not None and not (before.epoch == stamp.epoch and _follows(before.last, stamp.first)):
            return False
        last[stamp.producer_id] = stamp
    return True


def _follows(last: int, first: int) -> bool:
    return first == (last + 1) % SEQUENCES


@dataclass
class Partition:
    """`lengths`: number of batches on each replica; `leader` has all. Every method acts on the leader."""

    replicas: int = 3
    max_message_bytes: int = 1 << 20
    refused_from: int = 1 << 62  # timestamps: INVALID_TIMESTAMP
    leader: int = 0
    epoch: int = 0  # of the leader
    log: list[Entry] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    producers: dict[int, Known] = field(default_factory=dict)
    begins_at_zero: bool = False  # an unknown producer: as in KIP-890 for transactions
    forgotten: int = 0  # producers of this many of the first batches have expired

    def __post_init__(self) -> None:
        self.lengths = [0] * self.replicas

    @property
    def committed(self) -> int:
        """Batches that all replicas have."""
        return min(self.lengths)

    # -- producing -----------------------------------------------------------------------------------------------------

    def produce(self, record_set: bytes, sets: Sets = Sets.REFUSED) -> tuple[int, int, int]:
        """Error code, base offset, and the number of batches that all replicas must have before the answer."""
        batches = batches_of(record_set)
        if len(batches) > 1 and sets is Sets.REFUSED:
            return INVALID, -1, 0
        is_agents = len(batches) > 1 and sets is Sets.AGENT
        if is_agents and not _has_no_gap(batches):
            return INVALID, -1, 0
        if error := next(filter(None, map(self._check_bytes, batches)), OK):
            return error, -1, 0
        if error := next(filter(None, map(self._check_records, batches)), OK):
            return error, -1, 0
        if is_agents and (answer := self._agent_check(batches)) is not None:
            error, base = answer
            return error, base, 0 if error else self._index(base) + len(batches)
        stamps = []
        for batch in batches:
            stamp = stamp_of(batch)
            stamps.append(stamp)
            if stamp is None:
                continue
            repeated = self._repeated(stamp)
            if repeated is not None:
                return OK, repeated.base, self._index(repeated.base) + 1
            if error := self._out_of_order(
                stamp, [one for one in stamps[:-1] if one and one.producer_id == stamp.producer_id]
            ):
                return error, -1, 0
        return OK, self._append(batches, stamps), len(self.log)

    def _check_bytes(self, batch: bytes) -> int:
        """UnifiedLog.analyzeAndValidateRecords, first for every batch."""
        base, length, _, magic, crc = struct.unpack_from(">qiibI", batch)
        if base or magic != 2 or length + 12 != len(batch):
            return INVALID
        if len(batch) > self.max_message_bytes:
            return TOO_LARGE
        return OK if crc32c.crc32c(batch[21:]) == crc else CORRUPT

    def _check_records(self, batch: bytes) -> int:
        """LogValidator."""
        attributes, last_delta = struct.unpack_from(">hi", batch, 21)
        (largest,) = struct.unpack_from(">q", batch, 35)
        producer_id, epoch, sequence, count = struct.unpack_from(">qhii", batch, 43)
        if not 0 < count == last_delta + 1 or attributes & ~(7 | TRANSACTIONAL):
            return INVALID
        if producer_id >= 0 and min(epoch, sequence) < 0:
            return INVALID
        return INVALID_TIMESTAMP if largest >= self.refused_from else OK

    def _repeated(self, stamp: Stamp) -> Kept | None:
        known = self.producers.get(stamp.producer_id)
        if known is None or known.epoch != stamp.epoch:
            return None
        return next((kept for kept in known.kept if kept[:2] == stamp[2:]), None)

    def _out_of_order(self, stamp: Stamp, before: list[Stamp]) -> int:
        """`before`: in the same set."""
        known = self.producers.get(stamp.producer_id)
        if before:
            return OK if known is None or _follows(before[-1].last, stamp.first) else OUT_OF_ORDER
        if known is None:
            return OUT_OF_ORDER if self.begins_at_zero and stamp.first else OK
        if stamp.epoch < known.epoch:
            return OLD_EPOCH
        if stamp.epoch > known.epoch:
            return OUT_OF_ORDER if stamp.first else OK
        return OK if _follows(known.kept[-1].last, stamp.first) else OUT_OF_ORDER

    def _agent_check(self, batches: list[bytes]) -> tuple[int, int] | None:
        """None: nothing in the set is a repetition."""
        stamps = [stamp_of(batch) for batch in batches]
        known = [self._repeated(stamp) if stamp is not None else None for stamp in stamps]
        if not any(known):
            return None
        first = known[0]
        if first is not None and (_side_by_side(known) or self._is_in_log(first.base, batches)):
            return OK, first.base
        return INVALID, -1

    def _is_in_log(self, base: int, batches: list[bytes]) -> bool:
        at = self._index(base)
        return [entry.batch for entry in self.log[at : at + len(batches)]] == batches

    def _index(self, base: int) -> int:
        return next(at for at, entry in enumerate(self.log) if entry.base == base)

    def _append(self, batches: list[bytes], stamps: list[Stamp | None]) -> int:
        base = end = self.end
        for batch, stamp in zip(batches, stamps, strict=True):
            entry = Entry(end, int.from_bytes(batch[57:61], "big"), batch, stamp)
            self.log.append(entry)
            self._remember(entry)
            end += entry.records
        self.lengths[self.leader] = len(self.log)
        return base

    @property
    def end(self) -> int:
        return self.log[-1].base + self.log[-1].records if self.log else 0

    def _remember(self, entry: Entry) -> None:
        stamp = entry.stamp
        if stamp is None:
            return
        known = self.producers.get(stamp.producer_id)
        if known is None or known.epoch != stamp.epoch:
            known = self.producers[stamp.producer_id] = Known(stamp.epoch)
        known.kept.append(Kept(stamp.first, stamp.last, entry.base))

    # -- replicas ------------------------------------------------------------------------------------------------------

    def copy(self, replica: int, batches: int) -> None:
        """A follower fetches this many batches."""
        self.lengths[replica] = min(self.lengths[replica] + batches, len(self.log))

    def copy_all(self) -> None:
        self.lengths = [len(self.log)] * self.replicas

    def elect(self, replica: int) -> None:
        """It becomes the leader with its log; the others truncate theirs."""
        length = self.lengths[replica]
        self.leader, self.epoch = replica, self.epoch + 1
        del self.log[length:]
        self.lengths = [min(one, length) for one in self.lengths]
        self.producers = {}
        for entry in self.log[self.forgotten :]:
            self._remember(entry)

    def restart(self) -> None:
        """After an orderly stop."""
        for known in self.producers.values():
            known.kept = deque([known.kept[-1]], maxlen=REMEMBERED)

    def expire(self) -> None:
        """All producers, on every replica."""
        self.producers, self.forgotten = {}, len(self.log)
