"""Record batches of a given record count, size and codec, each distinguishable from all others.

A batch is identified by its timestamp, which all of its records carry: batch number n has the timestamp `epoch + n` ms.
The timestamp is in the header, outside the compressed records, so batches of one shape share their payload and cost a
copy and a patched checksum each.

The compressed size is found by trial: values are random bytes, which no codec shortens, followed by zeros, which
compress to nearly nothing. A trial takes up to a millisecond, and batches of real traffic all have different sizes. So
sizes are rounded in steps below a percent (small ones are exact), and each trial starts from the result of the previous
one. Over many batches the errors cancel out.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from functools import cache
from itertools import accumulate, pairwise
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from shoal.protocol.records.batch import HEADER_SIZE, seal_batch
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.crc import patch
from shoal.protocol.wire.types import write_varint

if TYPE_CHECKING:
    from shoal.scenarios.replay.arrivals import ArrivedBatch

__all__ = ["Maker"]

_TIMES = Struct(">qq")  # baseTimestamp, maxTimestamp
_TIMES_AT, _TIMES_TO = 27, 43
_CRC_AT, _CRC_TO = 17, 21
_CACHE_BYTES = 64 * 1024 * 1024
_TRIES = 8
_SIZE_STEPS, _RAW_STEPS = 7, 4  # bits: steps of 1/128 of a size, 1/16 of a raw size, at most
_UNKNOWN_RATIO = 3  # uncompressed to compressed size, where a codec does not state it: JSON in lz4
_OVERHEAD = 8  # bytes of a small record's own fields
_BEFORE, _NO_KEY, _NO_HEADERS = b"\0\0", b"\1", b"\0"  # attributes and timestamp delta; length -1; count 0


class _Shape(NamedTuple):
    records: int
    size: int
    raw_size: int
    codec: Codec


def _shape(part: ArrivedBatch) -> _Shape:
    """Rounded. An uncompressed batch ignores the raw size; an unknown one is estimated."""
    size = _rounded(part.size, _SIZE_STEPS)
    guessed = (part.size - HEADER_SIZE) * _UNKNOWN_RATIO if part.raw_size is None else part.raw_size
    raw_size = 0 if part.codec is Codec.NONE else _rounded(guessed, _RAW_STEPS)
    return _Shape(part.records, size, raw_size, part.codec)


def _rounded(value: int, bits: int) -> int:
    step = 1 << max(0, value.bit_length() - bits - 1)
    return (value + step // 2) // step * step


class Maker:
    """`epoch`: ms, the timestamp of batch 0."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._templates: OrderedDict[_Shape, bytes] = OrderedDict()
        self._bytes = 0
        self._taught: dict[tuple[Codec, int], int] = {}  # by codec and record count: error of the first guess

    def batch(self, part: ArrivedBatch, number: int) -> bytes:
        """A producible batch without a producer id."""
        return _stamped(self._template(_shape(part)), self._epoch + number)

    def _template(self, shape: _Shape) -> bytes:
        found = self._templates.get(shape)
        if found is not None:
            self._templates.move_to_end(shape)
            return found
        template = self._templates[shape] = self._fitted(shape)
        self._bytes += len(template)
        while self._bytes > _CACHE_BYTES and len(self._templates) > 1:
            self._bytes -= len(self._templates.popitem(last=False)[1])
        return template

    def _fitted(self, shape: _Shape) -> bytes:
        """The best of some trials."""
        like = shape.codec, shape.records
        guess = shape.size - HEADER_SIZE - _OVERHEAD * shape.records
        noise = max(0, guess + self._taught.get(like, 0))
        best = last = _made(shape, noise)
        for _ in range(_TRIES):
            missing = shape.size - len(last)
            if abs(missing) <= shape.size >> _SIZE_STEPS + 1:
                break
            noise = max(0, noise + missing)
            last = _made(shape, noise)
            best = min(best, last, key=lambda batch: abs(shape.size - len(batch)))
        self._taught[like] = noise - guess
        return best


def _stamped(template: bytes, timestamp: int) -> bytes:
    new = bytearray(template)
    _TIMES.pack_into(new, _TIMES_AT, timestamp, timestamp)
    times = slice(_TIMES_AT, _TIMES_TO)
    crc = patch(int.from_bytes(template[_CRC_AT:_CRC_TO], "big"), template[times], new[times], len(new) - _TIMES_TO)
    new[_CRC_AT:_CRC_TO] = crc.to_bytes(4, "big")
    return bytes(new)


def _made(shape: _Shape, noise: int) -> bytes:
    """`noise`: random bytes in all records together."""
    zeros = 0 if shape.codec is Codec.NONE else max(0, shape.raw_size - _OVERHEAD * shape.records - noise)
    payload = bytearray()
    for offset, (drawn, empty) in enumerate(
        zip(_noise(noise, shape.records), _shares(zeros, shape.records), strict=True)
    ):
        head = _BEFORE + _varint(offset) + _NO_KEY + _varint(len(drawn) + empty)
        payload += _varint(len(head) + len(drawn) + empty + len(_NO_HEADERS))
        payload += head + drawn + bytes(empty) + _NO_HEADERS
    return seal_batch(payload, codec=shape.codec, record_count=shape.records, base_timestamp=0, max_timestamp=0)


_varint = cache(write_varint)


@cache
def _pool() -> bytes:
    return random.Random(0).randbytes(1 << 20)


def _noise(total: int, count: int) -> list[bytes]:
    data = _pool() if total <= len(_pool()) else random.Random(total).randbytes(total)
    ends = accumulate(_shares(total, count), initial=0)
    return [data[start:end] for start, end in pairwise(ends)]


def _shares(total: int, count: int) -> list[int]:
    each, more = divmod(total, count)
    return [each + 1] * more + [each] * (count - more)
