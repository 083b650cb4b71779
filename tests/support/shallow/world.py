"""A source log, a mirror and a target broker, as simple as possible and as strict as the real ones.

The broker makes the checks of `LogValidator` and `UnifiedLog` for a produced batch, with separate code.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

import crc32c

from shoal.protocol.records.batch import NewRecord, encode_batch, open_batch
from shoal.protocol.records.recordset import split
from shoal.protocol.shallow.envelope import EnvelopeKey
from shoal.protocol.shallow.unwrap.plan import OutgoingBatch
from shoal.protocol.shallow.wrap.wrap import WrapContext
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.crc import Buffer
from tests.support.batches import consumed

CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD = 2, 10, 87


class Seen(NamedTuple):
    """A record as an application gets it."""

    offset: int
    record: NewRecord


def plain(records: Sequence[NewRecord]) -> list[NewRecord]:
    """Without offsets, as bytes: what must be equal on both sides."""
    return [NewRecord(*record[:3], tuple(record.headers)) for record in records]


def poll(record_set: bytes, fetch_offset: int = 0) -> list[Seen]:
    """What a consumer at `fetch_offset` hands to the application (control batches aside)."""
    seen = []
    for span in split(record_set, 0, len(record_set)).spans:
        header, _ = open_batch(record_set, span.start, span.end, limit=1 << 30)
        for record in consumed(record_set[span.start : span.end]):
            offset = header.base_offset + (record.offset_delta or 0)
            if offset >= fetch_offset and not header.is_control:
                seen.append(Seen(offset, record._replace(offset_delta=None)))
    return seen


def flat(parts: Sequence[Buffer]) -> bytes:
    return b"".join(parts)


def context(**changes: object) -> WrapContext:
    numbers = count(1_000)
    fields: dict[str, object] = {
        "cluster": "source-cluster",
        "topic": "orders",
        "partition": 3,
        "fetch_offset": 0,
        "flow": 0xF10F,
        "serials": lambda: next(numbers),
        "min_batch_bytes": 0,
    }
    return WrapContext(**(fields | changes))  # type: ignore[arg-type]


def some_key(**fields: Any) -> EnvelopeKey:
    """For ten records in one batch of 100 bytes, unless `fields` say otherwise."""
    usual = {"first_offset": 0, "last_offset": 9, "batches": 1, "records": 10, "payload": 100, "payload_crc": 0}
    named = {"cluster": "source", "topic": "orders", "partition": 0, "flow": 1, "serial": 1}
    return EnvelopeKey(**{**named, **usual, **fields})


def some_batch(base_offset: int, records: int = 3, codec: Codec = Codec.ZSTD, **stamps: int) -> bytes:
    return encode_batch(
        [NewRecord(1000 + base_offset + i, b"k%d" % i, b"value-%d" % (base_offset + i) * 5) for i in range(records)],
        base_offset=base_offset,
        codec=codec,
        **stamps,
    )


@dataclass
class Broker:
    """One partition of a target. `max_message_bytes` counts per batch."""

    max_message_bytes: int = 1 << 20
    log: list[NewRecord] = field(default_factory=list)

    def produce(self, sub: OutgoingBatch) -> tuple[int, int]:
        """Error code and base offset of the one batch."""
        batch = flat(sub.buffers)
        error = self._check(batch)
        if error:
            return error, -1
        base, records = len(self.log), consumed(batch)
        assert len(records) == sub.records
        assert [record.offset_delta for record in records] == list(range(len(records)))
        self.log += plain(records)
        return 0, base

    def _check(self, batch: bytes) -> int:
        base, length, _, magic, crc, attributes, last_delta = struct.unpack_from(">qiibIhi", batch)
        producer_id, epoch, sequence, records = struct.unpack_from(">qhii", batch, 43)
        if base or magic != 2 or length + 12 != len(batch):
            return INVALID_RECORD
        if len(batch) > self.max_message_bytes:
            return MESSAGE_TOO_LARGE
        if crc32c.crc32c(batch[21:]) != crc:
            return CORRUPT_MESSAGE
        if attributes & ~7 or (producer_id, epoch, sequence) != (-1, -1, -1):
            return INVALID_RECORD
        return 0 if 0 < records == last_delta + 1 else INVALID_RECORD


def produced(seen: Sequence[Seen], codec: Codec = Codec.NONE) -> bytes:
    """The outer batch that a mirror's producer makes from its records."""
    return encode_batch([item.record for item in seen], codec=codec)
