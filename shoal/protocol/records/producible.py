"""The headers of many small batches made producible at once, in place: `produced_again`, in a fraction of its time.

Of a batch of three records there are 1 kB, and its 61 bytes take longer to write anew in Python than all the rest to move. So the loops
are not Python's where that can be: the fields are taken by column, and the headers are packed by `map`. What is left to compute for a
batch is its checksum, patched and never computed anew (wire/crc.py):

    patched = crc ^ shift(crc(producer) ^ c, n)          n bytes follow the producer's fields; c is the same for all batches
            = crc ^ crc(producer || n zeros) ^ k(n)      k(n) = shift(c, n) ^ crc(n zeros)

The zeros run through the checksum itself, and k is a table of the short lengths, made when it is first needed (3 ms, 1 MB). For longer
batches, and those that differ in the bits to be cleared, `produced_again` is asked: there its time does not count.
"""

from array import array
from collections import deque
from collections.abc import Sequence
from functools import cache
from itertools import repeat
from operator import add, sub

from shoal.protocol.records.batch import (
    CHANGE_BY_BITS,
    CLEARED,
    CRC_OF_NO_PRODUCER,
    HEADER_SIZE,
    PRODUCIBLE,
    STAMPS_TO,
    Stored,
    produced_again,
)
from shoal.protocol.records.recordset import LOG_OVERHEAD
from shoal.protocol.wire.crc import crc32c, shift

__all__ = ["produce_all_again"]

_SHORT = 4096  # bytes of a batch


def produce_all_again(buf: bytearray, starts: Sequence[int], stored: Sequence[Stored]) -> None:
    """Write `produced_again` over the header of each batch, one at least, in place: they start there, and have these fields."""
    _, lengths, _, crcs, attributes, deltas, timestamps, producers, counts = zip(*stored, strict=True)
    marks = {bits & CLEARED for bits in set(attributes)}
    if len(marks) > 1 or max(lengths) >= _SHORT:
        for at, batch in zip(starts, stored, strict=True):
            buf[at : at + HEADER_SIZE] = produced_again(batch)
        return
    (mark,) = marks
    patched = _patched(crcs, lengths, producers, mark)
    bits, none = map(sub, attributes, repeat(mark)), repeat(-1)
    fields = (repeat(0), lengths, none, repeat(2), patched, bits, deltas, timestamps, none, none, none, counts)
    deque(map(PRODUCIBLE.pack_into, repeat(buf), starts, *fields), maxlen=0)


def _patched(crcs: Sequence[int], lengths: Sequence[int], producers: Sequence[bytes], mark: int) -> list[int]:
    """The checksums of short batches of which these bits are cleared, and the producer."""
    zeros, rest = _zeros(), _rest(mark)
    tails = map(add, lengths, repeat(LOG_OVERHEAD - STAMPS_TO))
    return [
        crc ^ crc32c(zeros[tail], crc32c(producer)) ^ rest[tail]
        for crc, tail, producer in zip(crcs, tails, producers, strict=True)
    ]


@cache
def _zeros() -> list[memoryview]:
    """By their number."""
    zeros = memoryview(bytes(_SHORT))
    return [zeros[:length] for length in range(_SHORT)]


@cache
def _rest(mark: int) -> "array[int]":
    """k, by n. There are four marks."""
    change = CHANGE_BY_BITS[mark] ^ CRC_OF_NO_PRODUCER
    return array("I", [shift(change, length) ^ crc32c(zeros) for length, zeros in enumerate(_zeros())])
