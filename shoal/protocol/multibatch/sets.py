"""The record sets that a probe produces, and the comparison of records read back with records sent.

Every record has a key (a broker may default to compaction, which refuses records without one). The key names the probe,
so other clients' records in a shared topic are never mistaken for ours. Timestamps are the caller's `now` (ms): brokers
refuse those far from their own clock. They are not compared if the topic uses LogAppendTime.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from shoal.protocol.records.batch import NewRecord, encode_batch, open_batch
from shoal.protocol.records.recordset import split
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.types import Buffer

__all__ = [
    "ReadRecord",
    "TestSet",
    "damaged_set",
    "difference",
    "proving_sets",
    "read_back",
    "single_batch",
    "stamped_sets",
]

_MOST_READ = 1 << 20  # bytes of one decompressed batch: ours have a few hundred
_CRC_AT = 17  # of a batch: its last byte is 20
_COUNT = slice(57, 61)
_MANY = 64
_VALUE = b"Shoal asks whether this broker takes several batches per partition in one request. "


@dataclass(frozen=True, slots=True, kw_only=True)
class TestSet:
    """`batches` are sent in one Produce request; `records` are all their records in order."""

    __test__ = False  # not a pytest test

    name: str
    batches: tuple[bytes, ...]
    records: tuple[NewRecord, ...]
    damaged: bool = False

    @property
    def is_set(self) -> bool:
        return len(self.batches) > 1

    @property
    def data(self) -> bytes:
        return b"".join(self.batches)

    def part(self, start: int, stop: int, name: str) -> "TestSet":
        """A part of this set: batches `start` to `stop` (exclusive)."""
        counts = [int.from_bytes(batch[_COUNT], "big") for batch in self.batches]
        records = self.records[sum(counts[:start]) : sum(counts[:stop])]
        return TestSet(name=name, batches=self.batches[start:stop], records=records)

    def __str__(self) -> str:
        return f"{len(self.batches)} batches ({self.name})" if self.is_set else "a single batch"


class _Plan(NamedTuple):
    name: str
    batches: tuple[tuple[Codec, int], ...]  # codec and number of records of each


# The counts differ, so that a lost or duplicated batch changes every later offset.
_PLANS = (
    _Plan("uncompressed", ((Codec.NONE, 2), (Codec.NONE, 3))),
    _Plan("all codecs", tuple(zip(Codec, (3, 1, 4, 2, 5), strict=True))),
    _Plan("lz4", tuple((Codec.LZ4, 1 + number % 3) for number in range(_MANY))),
)


def single_batch(token: bytes, now: int) -> TestSet:
    """Every broker accepts this: a later refusal is then due to the set."""
    return _test_set(token, 0, _Plan("single", ((Codec.NONE, 2),)), now)


def proving_sets(token: bytes, now: int) -> tuple[TestSet, ...]:
    """`token` distinguishes this probe's records from all others; `now` in ms since the epoch."""
    return tuple(_test_set(token, number, plan, now) for number, plan in enumerate(_PLANS, 1))


def damaged_set(token: bytes, now: int) -> TestSet:
    """A good batch, and one with a wrong CRC: neither may be stored."""
    good = _test_set(token, 9, _Plan("the second one damaged", ((Codec.NONE, 2), (Codec.NONE, 2))), now)
    bad = bytearray(good.batches[1])
    bad[_CRC_AT] ^= 0xFF
    return TestSet(name=good.name, batches=(good.batches[0], bytes(bad)), records=good.records, damaged=True)


def stamped_sets(token: bytes, now: int, producer_id: int, epoch: int) -> tuple[TestSet, TestSet]:
    """A set of more batches than a broker remembers per producer, each with its own sequence, and a set that continues
    it."""
    first = _stamped(token, 7, (2, 1, 3, 1, 2, 4, 1), now, (producer_id, epoch, 0))
    return first, _stamped(token, 8, (2, 3), now, (producer_id, epoch, len(first.records)))


def _stamped(token: bytes, number: int, counts: Sequence[int], now: int, stamp: tuple[int, int, int]) -> TestSet:
    plain = _test_set(token, number, _Plan("with sequences", tuple((Codec.NONE, count) for count in counts)), now)
    starts = accumulate(counts, initial=0)
    batches = (
        encode_batch(
            plain.records[at : at + count], producer_id=stamp[0], producer_epoch=stamp[1], base_sequence=stamp[2] + at
        )
        for at, count in zip(starts, counts, strict=False)
    )
    return TestSet(name=plain.name, batches=tuple(batches), records=plain.records)


def _test_set(token: bytes, number: int, plan: _Plan, now: int) -> TestSet:
    groups = [
        [_record(token, f"{number}/{place}/{index}".encode(), now + index) for index in range(count)]
        for place, (_, count) in enumerate(plan.batches)
    ]
    batches = (encode_batch(group, codec=codec) for group, (codec, _) in zip(groups, plan.batches, strict=True))
    return TestSet(
        name=plan.name, batches=tuple(batches), records=tuple(record for group in groups for record in group)
    )


def _record(token: bytes, name: bytes, timestamp: int) -> NewRecord:
    return NewRecord(timestamp, token + b"/" + name, _VALUE + name, ((b"shoal.probe", name),))


class ReadRecord(NamedTuple):
    """`timestamp` is None if the broker set it."""

    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


def read_back(frame: Buffer, start: int, end: int) -> Iterator[ReadRecord]:
    """The records of a fetched record set, which may begin before the requested offset. Raises RemoteProtocolError."""
    for span in split(frame, start, end).spans:
        header, records = open_batch(frame, span.start, span.end, limit=_MOST_READ)
        for record in records:
            yield ReadRecord(
                header.base_offset + record.offset_delta,
                None if header.is_log_append_time else header.timestamp(record),
                _bytes(record.key),
                _bytes(record.value),
                tuple((bytes(key), _bytes(value)) for key, value in record.headers),
            )


def _bytes(value: Buffer | None) -> bytes | None:
    return None if value is None else bytes(value)


def difference(sent: Sequence[NewRecord], base_offset: int, read: Sequence[ReadRecord]) -> str | None:
    """The difference between the records sent, from `base_offset` on, and the records read; None = equal."""
    by_offset = {record.offset: record for record in read}
    if len(by_offset) != len(read):
        return "offsets are duplicated"
    wanted = range(base_offset, base_offset + len(sent))
    missing = [offset for offset in wanted if offset not in by_offset]
    if missing:
        return f"{len(missing)} of {len(sent)} records are missing, the first at offset {missing[0]}"
    wrong = [offset for offset, record in zip(wanted, sent, strict=True) if not _same(record, by_offset[offset])]
    return (
        f"{len(wrong)} of {len(sent)} records are not what was sent, the first at offset {wrong[0]}" if wrong else None
    )


def _same(sent: NewRecord, read: ReadRecord) -> bool:
    return (sent.key, sent.value, tuple(sent.headers)) == read[2:] and read.timestamp in (None, sent.timestamp)
