"""Stamp the headers of many small batches at once, in place: `stamped_header`, in a fraction of its time.

Each batch of a set has its own stamp: hundreds of them, each for about 1 kB that is never read. As in producible.py the
loops run in C: fields are taken by column and packed by `map`, and a checksum is patched, never computed from scratch.
It is linear in the change (wire/crc.py), which differs within a run of batches only in the sequence:

    patched = crc ^ L(change || n zeros)     n bytes follow the stamp; L is the checksum without its inversions
    change  = transactional bit, 20 zeros, producer id, epoch || sequence, each xor its old value:
              0, and -1 in the others

A checksum is computed in a register: inverted, fed with bytes, inverted again. Continuing from an inverted value
therefore puts that value itself in the register, and the change of everything before the sequence is one number for the
run. Four bytes need no call of their own: the register xor a word, read from its low byte on, continues as if that word
had been fed and zeros followed. The last inversion is undone by the last bytes fed: four bytes, instead of zeros, that
invert every bit.
"""

from collections import deque
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, repeat
from operator import sub, xor
from struct import Struct, pack, unpack

from shoal.protocol.records.batch import HEADER_SIZE, TRANSACTIONAL, stamped_header
from shoal.protocol.wire.crc import crc32c

__all__ = ["LAST_SEQUENCE", "sequences_of", "stamp_all"]

LAST_SEQUENCE = 0x7FFFFFFF  # 0 follows it (DefaultRecordBatch.incrementSequence)

_SHORT = 4096  # bytes per batch
_CRC_AT, _ATTRIBUTES_AT, _SEQUENCE_AT = 17, 22, 53  # the low byte of the attributes
_STORED = Struct(">I22s")  # crc, attributes to maxTimestamp
_STAMPED = Struct(">I22s10si")  # the same, producerId and producerEpoch, baseSequence
_PRODUCER = Struct(">qh")
_CHANGE = Struct(">H20xqh")
_INVERTED = 0xFFFFFFFF
_INVERTS = bytes.fromhex("54641f64")  # fed to a register of 0, they set all its bits


def sequences_of(records: Sequence[int], first: int) -> list[int]:
    """The base sequence of each batch, given its number of records."""
    bases = list(accumulate(records[:-1], initial=first))
    return bases if bases[-1] <= LAST_SEQUENCE else [base & LAST_SEQUENCE for base in bases]


def stamp_all(
    buf: bytearray,
    bounds: Sequence[int],
    sequences: Sequence[int],
    producer_id: int,
    epoch: int,
    *,
    transactional: bool,
) -> None:
    """Stamp each batch of `buf` in place: producible ones, at least one, between consecutive `bounds`."""
    starts, sizes = bounds[:-1], list(map(sub, bounds[1:], bounds))
    if max(sizes) >= _SHORT:
        for at, size, sequence in zip(starts, sizes, sequences, strict=True):
            header = memoryview(buf)[at : at + HEADER_SIZE]
            stamp = producer_id, epoch, sequence
            new = stamped_header(header, size - HEADER_SIZE, *stamp, transactional=transactional)
            buf[at : at + HEADER_SIZE] = new
        return
    if transactional:
        for at in starts:
            buf[at + _ATTRIBUTES_AT] |= TRANSACTIONAL
    ats = [at + _CRC_AT for at in starts]
    crcs, middles = zip(*map(_STORED.unpack_from, repeat(buf), ats), strict=True)
    changed = _CHANGE.pack(TRANSACTIONAL if transactional else 0, ~producer_id, ~epoch)
    register = crc32c(changed, _INVERTED) ^ _INVERTED
    words = unpack(f"<{len(sequences)}I", pack(f">{len(sequences)}i", *sequences))
    # The old bytes are all ones, and so is the inversion of a continued checksum: they cancel out.
    changes = map(crc32c, map(_zeros().__getitem__, sizes), [register ^ word for word in words])
    fields = (map(xor, crcs, changes), middles, repeat(_PRODUCER.pack(producer_id, epoch)), sequences)
    deque(map(_STAMPED.pack_into, repeat(buf), ats, *fields), maxlen=0)


@cache
def _zeros() -> list[memoryview]:
    """Zeros, by the size of a batch: as many bytes as follow from its sequence on."""
    zeros = memoryview(bytes(_SHORT) + _INVERTS)
    return [zeros[len(zeros) - max(size - _SEQUENCE_AT, 0) :] for size in range(_SHORT)]
