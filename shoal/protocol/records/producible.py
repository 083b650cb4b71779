"""Makes many small batches producible at once, with a producer's stamps or without any: `produced_again` and
`stamped_header`, in a fraction of their time.

For a batch of three records (1 kB), rewriting the 61 header bytes in Python takes longer than moving all other bytes.
So each header is written once, when its stamp is known, and loops run in C where possible: fields are taken by column,
and `map` packs the headers. A checksum is patched, never computed from scratch. It is linear in the change
(wire/crc.py), which differs between batches of one former producer only in the sequence:

    patched = crc ^ L(change || n zeros)     n bytes follow the stamp; L is the checksum without its inversions
    change  = changed bits, 20 zeros, producer id, epoch || sequence, each xor its old value

A checksum is computed in a register: inverted, fed with bytes, inverted again. Continuing from an inverted value
therefore puts that value itself in the register, and the change of everything before the sequence is one number per
former producer. Four bytes need no call of their own: the register xor a word, read from its low byte on, continues as
if that word had been fed and zeros followed. The last inversion is undone by the last bytes fed: four bytes, instead of
zeros, that invert every bit.

Longer batches, and those with different bits to clear, are written one by one: there the time does not matter.
"""

from collections import deque
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, repeat
from operator import xor
from struct import Struct, pack, unpack
from typing import NamedTuple

from shoal.protocol.records.batch import (
    CLEARED,
    HEADER_SIZE,
    STAMPS_TO,
    TRANSACTIONAL,
    Stored,
    produced_again,
    stamped_header,
)
from shoal.protocol.records.recordset import LOG_OVERHEAD
from shoal.protocol.wire.crc import crc32c

__all__ = ["LAST_SEQUENCE", "Columns", "SmallBatches", "sequences_of"]

LAST_SEQUENCE = 0x7FFFFFFF  # 0 follows it (DefaultRecordBatch.incrementSequence)

_SHORT = 4096  # bytes per batch
_PRODUCED = Struct(">qiibIhi16s10sii")  # as in batch.py, with producerId and producerEpoch in one piece
_PRODUCER = Struct(">qh")
_NO_PRODUCER = _PRODUCER.pack(-1, -1)
_INVERTED = 0xFFFFFFFF
_INVERTS = bytes.fromhex("54641f64")  # fed to a register of 0, they set all its bits


def sequences_of(records: Sequence[int], first: int) -> list[int]:
    """The base sequence of each batch, given its number of records."""
    bases = list(accumulate(records[:-1], initial=first))
    return bases if bases[-1] <= LAST_SEQUENCE else [base & LAST_SEQUENCE for base in bases]


class Columns(NamedTuple):
    """The fields of `Stored`, each of all batches."""

    base_offsets: Sequence[int]
    lengths: Sequence[int]
    magics: Sequence[int]
    crcs: Sequence[int]
    attributes: Sequence[int]
    last_deltas: Sequence[int]
    timestamps: Sequence[bytes]
    producers: Sequence[bytes]
    sequences: Sequence[int]
    counts: Sequence[int]

    @classmethod
    def of(cls, stored: Sequence[Stored]) -> "Columns":
        """There must be at least one."""
        return cls._make(zip(*stored, strict=True))

    def window(self, start: int, stop: int) -> "Columns":
        return Columns._make(column[start:stop] for column in self)


class _Stamps(NamedTuple):
    """What the batches get: a sequence each, and the same producer (id and epoch, packed)."""

    sequences: Sequence[int]
    producer: bytes
    transactional: bool


class SmallBatches:
    """The batches of `value` as they are stored: between consecutive `bounds`, with producible headers `columns`."""

    __slots__ = ("_bounds", "_columns", "_plain", "_value")

    def __init__(self, value: memoryview, bounds: Sequence[int], columns: Columns) -> None:
        self._value = value
        self._bounds = bounds
        self._columns = columns
        self._plain: memoryview | None = None

    def plain(self) -> memoryview:
        """All of them without stamps; their places are those in `value`."""
        if self._plain is None:
            copy = bytearray(self._value)
            none = _Stamps([-1] * len(self._columns.counts), _NO_PRODUCER, transactional=False)
            _write(copy, self._bounds[:-1], self._columns, none)
            self._plain = memoryview(copy)
        return self._plain

    def stamped(
        self, start: int, stop: int, sequences: Sequence[int], producer_id: int, epoch: int, *, transactional: bool
    ) -> memoryview:
        """Those from `start` to `stop`, at least one."""
        first, starts = self._bounds[start], self._bounds[start:stop]
        copy = bytearray(self._value[first : self._bounds[stop]])
        if first:
            starts = [at - first for at in starts]
        stamps = _Stamps(sequences, _PRODUCER.pack(producer_id, epoch), transactional)
        _write(copy, starts, self._columns.window(start, stop), stamps)
        return memoryview(copy)


def _write(buf: bytearray, starts: Sequence[int], columns: Columns, stamps: _Stamps) -> None:
    """Write the headers of the batches at `starts`."""
    marks = {bits & CLEARED for bits in set(columns.attributes)}
    if len(marks) > 1 or max(columns.lengths) >= _SHORT:
        return _write_one_by_one(buf, starts, columns, stamps)
    (mark,) = marks
    flipped = mark ^ (TRANSACTIONAL if stamps.transactional else 0)
    crcs = map(xor, columns.crcs, _changes(columns, stamps, flipped))
    attributes = map(xor, columns.attributes, repeat(flipped))
    head = repeat(0), columns.lengths, repeat(-1), repeat(2), crcs, attributes
    tail = columns.last_deltas, columns.timestamps, repeat(stamps.producer), stamps.sequences, columns.counts
    deque(map(_PRODUCED.pack_into, repeat(buf), starts, *head, *tail), maxlen=0)
    return None


def _changes(columns: Columns, stamps: _Stamps, flipped: int) -> "map[int]":
    """How the checksum of each batch changes."""
    inverted = {former: _register(flipped, former, stamps.producer) ^ _INVERTED for former in set(columns.producers)}
    changed, count = map(xor, stamps.sequences, columns.sequences), len(stamps.sequences)
    words = unpack(f"<{count}I", pack(f">{count}i", *changed))
    fed = [inverted[former] ^ word for former, word in zip(columns.producers, words, strict=True)]
    return map(crc32c, map(_zeros().__getitem__, columns.lengths), fed)


def _register(flipped: int, former: bytes, producer: bytes) -> int:
    """The register after the change of everything before the sequence."""
    change = int.from_bytes(former, "big") ^ int.from_bytes(producer, "big")
    return crc32c(flipped.to_bytes(2, "big") + bytes(20) + change.to_bytes(len(producer), "big"), _INVERTED) ^ _INVERTED


@cache
def _zeros() -> list[memoryview]:
    """Zeros, by batchLength: as many bytes as follow from the sequence on."""
    zeros = memoryview(bytes(_SHORT) + _INVERTS)
    return [zeros[max(STAMPS_TO - LOG_OVERHEAD - length + _SHORT, 0) :] for length in range(_SHORT)]


def _write_one_by_one(buf: bytearray, starts: Sequence[int], columns: Columns, stamps: _Stamps) -> None:
    producer_id, epoch = _PRODUCER.unpack(stamps.producer)
    for at, stored, sequence in zip(starts, zip(*columns, strict=True), stamps.sequences, strict=True):
        header, payload = produced_again(stored), stored[1] + LOG_OVERHEAD - HEADER_SIZE
        stamped = stamped_header(header, payload, producer_id, epoch, sequence, transactional=stamps.transactional)
        buf[at : at + HEADER_SIZE] = stamped
