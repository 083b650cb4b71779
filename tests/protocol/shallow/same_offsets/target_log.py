"""A model of a mirror topic's log as the Java agent keeps it (MirrorTopics.java): flags, fences, repeated batches."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from shoal.protocol.records.batch import BatchHeader, open_batch, read_batch_header
from shoal.protocol.wire.error_codes import ErrorCode

_START = -(2**31)


@dataclass
class TargetLog:
    start: int = 0
    end: int = 0
    batches: dict[int, bytes] = field(default_factory=dict)  # by base offset, without the leader epoch
    largest: int = 1 << 30  # max.message.bytes
    text: str | None = None  # of the latest refusal

    def produce(self, sent: bytes) -> int:
        """-> error code; all of the set is appended, or nothing."""
        made = list(_split(sent))
        for number, (header, _) in enumerate(made):
            assert header.partition_leader_epoch <= -2, "no mirror's batch"
            assert header.producer_id == -1
            assert not header.is_transactional
            if number:
                assert _expected_end(header) == made[number - 1][0].last_offset + 1
        if any(header.size > self.largest for header, _ in made):
            return ErrorCode.MESSAGE_TOO_LARGE
        while made and made[0][0].last_offset < self.end:
            header, data = made.pop(0)
            if header.base_offset < self.start:
                where = f"the batch at offset {header.base_offset}"
                self.text = f"{where} can't be compared: the log starts at {self.start}"
                return ErrorCode.INVALID_RECORD
            if not self._holds(header, data):
                self.text = f"the batch at offset {header.base_offset} is another than the log has there"
                return ErrorCode.INVALID_RECORD
        if not made:
            return 0
        first = made[0][0]
        if first.base_offset < self.end:
            return ErrorCode.INVALID_RECORD
        if first.partition_leader_epoch == _START:
            if self.batches or self.end > first.base_offset:
                return self._wrong_end("an empty log")
            self.start = first.base_offset
        elif _expected_end(first) != self.end and not self._is_filled(_expected_end(first)):
            return self._wrong_end(f"end {_expected_end(first)}")
        for header, data in made:
            self.batches[header.base_offset] = data
            self.end = header.last_offset + 1
        return 0

    def lose_tail(self, batches: int) -> None:
        """As in an unclean election. The first batch stays."""
        for base in list(self.batches)[1:][-batches:]:
            self.end = base
            del self.batches[base]

    def _wrong_end(self, expected: str) -> int:
        self.text = f"expected {expected}, the log ends at {self.end}"
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def _holds(self, header: BatchHeader, data: bytes) -> bool:
        if self.batches.get(header.base_offset) == data:
            return True
        if header.record_count:
            return False
        return not any(  # a filler: the log has no record there
            read_batch_header(batch, 0, len(batch)).record_count
            for base, batch in self.batches.items()
            if header.base_offset <= base <= header.last_offset
        )

    def _is_filled(self, first: int) -> bool:
        filler = self.batches.get(first)
        header = read_batch_header(filler, 0, len(filler)) if filler is not None else None
        return header is not None and header.record_count == 0 and header.last_offset == self.end - 1

    def records(self) -> dict[int, tuple[int, bytes, bytes]]:
        found = {}
        for data in self.batches.values():
            header, records = open_batch(data, 0, len(data), limit=1 << 20)
            for record in records:
                offset = header.base_offset + record.offset_delta
                found[offset] = header.timestamp(record), bytes(record.key or b""), bytes(record.value or b"")
        return found


def _expected_end(header: BatchHeader) -> int:
    return header.base_offset - (-2 - header.partition_leader_epoch)


def _split(sent: bytes) -> list[tuple[BatchHeader, bytes]]:
    made, at = [], 0
    while at < len(sent):
        size = 12 + struct.unpack_from(">i", sent, at + 8)[0]
        header = read_batch_header(sent, at, at + size)
        made.append((header, sent[at : at + 12] + b"\0\0\0\0" + sent[at + 16 : at + size]))
        at += size
    return made
