"""The headers of many small batches stamped at once, in place: `stamped_header`, in a fraction of its time.

Each batch of a set has the stamp of a producer of its own, so there is one to write for each of hundreds, beside 1 kB that nobody
reads. As in producible.py the loops are C's: fields are taken by column and packed by `map`, and a checksum is patched, never computed
anew. It is linear in what changes (crc.py), and that differs between the batches of a row in the sequence only:

    patched = crc ^ L(change || n zeros)               n bytes follow the stamp; L is the checksum without its constants
            = crc ^ crc(change || n zeros) ^ crc(as many zeros)
    change  = transactional bit, 20 zeros, producer id, epoch || sequence, each xor what stood there: 0, and -1 in the others

The checksum of all before the sequence is one number for the row, and that of the zeros comes from a table. And four bytes need no call
of their own: crc(word || rest, c) = crc(0000 || rest, c ^ word), the word read from its low byte on.
"""

from array import array
from collections import deque
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, chain, repeat
from operator import or_, sub
from struct import Struct, pack, unpack

from shoal.protocol.crc import crc32c
from shoal.protocol.records.batch import HEADER_SIZE, TRANSACTIONAL, stamped_header

__all__ = ["LAST_SEQUENCE", "sequences_of", "stamp_all"]

LAST_SEQUENCE = 0x7FFFFFFF  # 0 comes after it (DefaultRecordBatch.incrementSequence)

_SHORT = 4096  # bytes of a batch
_CRC_AT, _CRC_FROM = 17, 21
_STORED = Struct(">IH20s")  # crc, attributes, lastOffsetDelta to maxTimestamp
_STAMPED = Struct(">IH20sqhi")  # the same, producerId, producerEpoch, baseSequence
_CHANGE = Struct(">H20xqh")
_SEQUENCE_AT = 53
_NO_SEQUENCE = 0xFFFFFFFF  # -1


def sequences_of(records: Sequence[int], first: int) -> list[int]:
    """The base sequence of each batch, of so many records each."""
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
    """Stamp each batch of `buf`, in place: producible ones, one at least, that begin at `bounds` and end there."""
    starts, sizes = bounds[:-1], list(map(sub, bounds[1:], bounds))
    if max(sizes) >= _SHORT:
        for at, size, sequence in zip(starts, sizes, sequences, strict=True):
            header = memoryview(buf)[at : at + HEADER_SIZE]
            stamp = producer_id, epoch, sequence
            new = stamped_header(header, size - HEADER_SIZE, *stamp, transactional=transactional)
            buf[at : at + HEADER_SIZE] = new
        return
    ats = [at + _CRC_AT for at in starts]
    crcs, attributes, middles = zip(*map(_STORED.unpack_from, repeat(buf), ats), strict=True)
    bit = TRANSACTIONAL if transactional else 0
    of_row = crc32c(_CHANGE.pack(bit, ~producer_id, ~epoch)) ^ _NO_SEQUENCE
    words = unpack(f"<{len(sequences)}I", pack(f">{len(sequences)}i", *sequences))
    zeros, rest = _zeros(), _rest()
    patched = [
        crc ^ crc32c(zeros[size], of_row ^ word) ^ rest[size]
        for crc, size, word in zip(crcs, sizes, words, strict=True)
    ]
    bits = map(or_, attributes, repeat(bit)) if bit else attributes
    fields = (patched, bits, middles, repeat(producer_id), repeat(epoch), sequences)
    deque(map(_STAMPED.pack_into, repeat(buf), ats, *fields), maxlen=0)


@cache
def _zeros() -> list[memoryview]:
    """The sequence of a batch of that size and what follows it, as zeros."""
    zeros = memoryview(bytes(_SHORT))
    return [zeros[: max(size - _SEQUENCE_AT, 0)] for size in range(_SHORT)]


@cache
def _rest() -> "array[int]":
    """The checksum of all that is under the checksum of a batch of that size, as zeros."""
    zeros = accumulate(repeat(b"\0", _SHORT - 1 - _CRC_FROM), lambda crc, zero: crc32c(zero, crc), initial=0)
    return array("I", chain(repeat(0, _CRC_FROM), zeros))
