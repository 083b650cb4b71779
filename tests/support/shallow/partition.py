"""One partition of a target broker with its producer state, as `UnifiedLog` and `ProducerAppendInfo` keep it.

All checks of a broker are made, with separate code; a set is appended completely or not at all.
"""

from __future__ import annotations

import struct
from collections import deque
from copy import deepcopy
from dataclasses import dataclass, field
from typing import NamedTuple

import crc32c

from shoal.protocol.records.batch import NewRecord
from shoal.protocol.records.recordset import split
from tests.support.batches import consumed
from tests.support.shallow.world import plain

OK, CORRUPT, TOO_LARGE, LIST_TOO_LARGE, TOO_LATE, OUT_OF_ORDER, OLD_EPOCH, INVALID = 0, 2, 10, 18, 32, 45, 47, 87
REMEMBERED = 5  # batches per producer
LAST_SEQUENCE = (1 << 31) - 1


class Stamped(NamedTuple):
    producer_id: int
    epoch: int
    first: int
    last: int


class Kept(NamedTuple):
    first: int
    last: int
    offset: int


@dataclass
class Producer:
    epoch: int
    kept: deque[Kept] = field(default_factory=lambda: deque(maxlen=REMEMBERED))


@dataclass
class Partition:
    """`takes_sets`: several batches in one record set. Sizes are counted like a broker does. No record may be after
    `latest` or before `earliest`."""

    latest: int = 1 << 62
    earliest: int = -(1 << 62)
    max_message_bytes: int = 1 << 20
    segment_bytes: int = 1 << 30
    takes_sets: bool = False
    log: list[NewRecord] = field(default_factory=list)
    producers: dict[int, Producer] = field(default_factory=dict)
    sets: int = 0
    copies: list[tuple[int, dict[int, Producer]]] = field(default_factory=list)  # end and producers after each batch

    def fail_over(self, lost: int, acknowledged: int) -> None:
        """A new leader lacks up to `lost` of the last batches, also parts of sets, but nothing before the offset
        `acknowledged`."""
        ends = [(0, {}), *self.copies]
        while lost and len(ends) > 1 and ends[-2][0] >= acknowledged:
            ends.pop()
            lost -= 1
        end, producers = ends[-1]
        del self.log[end:]
        self.producers, self.copies = deepcopy(producers), ends[1:]

    def restart(self) -> None:
        """After an orderly stop: the snapshot of the producers has the last batch of each (ProducerStateManager)."""
        for producer in self.producers.values():
            producer.kept = deque([producer.kept[-1]], maxlen=REMEMBERED)

    def produce(self, record_set: bytes) -> tuple[int, int]:
        """Error code, and base offset of the first record of the first batch."""
        spans, tail = split(record_set, 0, len(record_set))
        assert tail == len(record_set)
        batches = [record_set[span.start : span.end] for span in spans]
        if len(batches) != 1 and not self.takes_sets:
            return INVALID, -1
        for batch in batches:
            if error := self._check(batch):
                return error, -1
        if len(record_set) > self.segment_bytes:
            return LIST_TOO_LARGE, -1
        return self._append(batches)

    def _check(self, batch: bytes) -> int:
        base, length, _, magic, crc, attributes, last_delta = struct.unpack_from(">qiibIhi", batch)
        producer_id, epoch, sequence, records = struct.unpack_from(">qhii", batch, 43)
        if base or magic != 2 or length + 12 != len(batch):
            return INVALID
        if len(batch) > self.max_message_bytes:
            return TOO_LARGE
        if crc32c.crc32c(batch[21:]) != crc:
            return CORRUPT
        if struct.unpack_from(">q", batch, 35)[0] > self.latest:  # maxTimestamp
            return TOO_LATE
        if struct.unpack_from(">q", batch, 27)[0] < self.earliest:  # baseTimestamp; LogValidator looks at each record's
            return TOO_LATE
        unstamped = (producer_id, epoch, sequence) == (-1, -1, -1)
        if attributes & ~7 or not (unstamped or min(producer_id, epoch, sequence) >= 0):
            return INVALID
        return OK if 0 < records == last_delta + 1 else INVALID

    def _append(self, batches: list[bytes]) -> tuple[int, int]:
        base, news = len(self.log), list[tuple[Stamped | None, list[NewRecord]]]()
        next_of = dict[int, int]()  # sequences that follow on each other in the set
        for batch in batches:
            stamped = stamp_of(batch)
            if stamped is not None:
                known = self._repeated(stamped)
                if known is not None:
                    return self._known_again(batches, known)
                follows = next_of.get(stamped.producer_id)
                if (follows is None and self._out_of_order(stamped)) or follows not in (None, stamped.first):
                    return self._out_of_order(stamped) or OUT_OF_ORDER, -1
                next_of[stamped.producer_id] = 0 if stamped.last == LAST_SEQUENCE else stamped.last + 1
            records = consumed(batch)
            assert [record.offset_delta for record in records] == list(range(len(records)))
            news.append((stamped, plain(records)))
        self.sets += len(batches) > 1
        for stamped, records in news:
            if stamped is not None:
                self._remember(stamped, len(self.log))
            self.log += records
            self.copies.append((len(self.log), deepcopy(self.producers)))
        return OK, base

    def _known_again(self, batches: list[bytes], known: Kept) -> tuple[int, int]:
        """Like a stock broker that would only accept sets: a known batch makes the whole set a duplicate, and its new
        batches are silently lost."""
        return OK, known.offset

    def _repeated(self, stamped: Stamped) -> Kept | None:
        producer = self.producers.get(stamped.producer_id)
        if producer is None or producer.epoch != stamped.epoch:
            return None
        return next((kept for kept in producer.kept if kept[:2] == stamped[2:]), None)

    def _out_of_order(self, stamped: Stamped) -> int:
        producer = self.producers.get(stamped.producer_id)
        if producer is None:  # a broker accepts any sequence of an unknown id
            return OK
        if stamped.epoch < producer.epoch:
            return OLD_EPOCH
        if stamped.epoch > producer.epoch:
            return OUT_OF_ORDER if stamped.first else OK
        last = producer.kept[-1].last
        return OK if stamped.first == (0 if last == LAST_SEQUENCE else last + 1) else OUT_OF_ORDER

    def _remember(self, stamped: Stamped, offset: int) -> None:
        producer = self.producers.get(stamped.producer_id)
        if producer is None or producer.epoch != stamped.epoch:
            producer = self.producers[stamped.producer_id] = Producer(stamped.epoch)
        producer.kept.append(Kept(stamped.first, stamped.last, offset))


def stamp_of(batch: bytes) -> Stamped | None:
    producer_id, epoch, sequence, records = struct.unpack_from(">qhii", batch, 43)
    if producer_id < 0:
        return None
    return Stamped(producer_id, epoch, sequence, (sequence + records - 1) & LAST_SEQUENCE)
