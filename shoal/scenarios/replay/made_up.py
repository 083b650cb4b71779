"""Record batches of a wanted record count, size and codec, of which every one can be told from every other.

A batch is told by its timestamp, which all of its records carry: batch number n has the timestamp `epoch + n` ms. It lies in the
header, outside of the compressed records, so batches of one shape share their payload and cost a copy and a patched checksum each.

The size of what is compressed is found by trying: values are random bytes, which no codec shortens, followed by zeros, of which
nearly nothing is left. What batches of a shape come to is within some bytes of what was asked, unless the records' own overhead is more.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from shoal.protocol.compression import Codec
from shoal.protocol.crc import patch
from shoal.protocol.records.batch import HEADER_SIZE, NewRecord, encode_batch

if TYPE_CHECKING:
    from shoal.scenarios.replay.arrivals import Part

__all__ = ["Maker"]

_TIMES = Struct(">qq")  # baseTimestamp, maxTimestamp
_TIMES_AT, _TIMES_TO = 27, 43
_CRC_AT, _CRC_TO = 17, 21
_CACHE_BYTES = 64 * 1024 * 1024
_TRIES = 8
_CLOSE = 2  # bytes
_UNKNOWN_RATIO = 3  # of plain to compressed bytes, where a codec does not state it: JSON in lz4


class _Shape(NamedTuple):
    records: int
    size: int
    raw_size: int | None
    codec: Codec


class Maker:
    """`epoch`: ms, the timestamp of batch 0."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._templates: OrderedDict[_Shape, bytes] = OrderedDict()
        self._bytes = 0

    def batch(self, part: Part, number: int) -> bytes:
        """A producible batch without a producer id."""
        template = self._template(_Shape(part.records, part.size, part.raw_size, part.codec))
        return _stamped(template, self._epoch + number)

    def _template(self, shape: _Shape) -> bytes:
        found = self._templates.get(shape)
        if found is not None:
            self._templates.move_to_end(shape)
            return found
        template = self._templates[shape] = _fitted(shape)
        self._bytes += len(template)
        while self._bytes > _CACHE_BYTES and len(self._templates) > 1:
            self._bytes -= len(self._templates.popitem(last=False)[1])
        return template


def _stamped(template: bytes, timestamp: int) -> bytes:
    new = bytearray(template)
    _TIMES.pack_into(new, _TIMES_AT, timestamp, timestamp)
    times = slice(_TIMES_AT, _TIMES_TO)
    crc = patch(int.from_bytes(template[_CRC_AT:_CRC_TO], "big"), template[times], new[times], len(new) - _TIMES_TO)
    new[_CRC_AT:_CRC_TO] = crc.to_bytes(4, "big")
    return bytes(new)


def _fitted(shape: _Shape) -> bytes:
    """The best of some tries."""
    noise = max(0, shape.size - HEADER_SIZE - 8 * shape.records)  # random bytes; a small record's own fields take 8
    best = last = _made(shape, noise)
    for _ in range(_TRIES):
        missing = shape.size - len(last)
        if abs(missing) <= _CLOSE:
            break
        noise = max(0, noise + missing)
        last = _made(shape, noise)
        best = min(best, last, key=lambda batch: abs(shape.size - len(batch)))
    return best


def _made(shape: _Shape, noise: int) -> bytes:
    values = [
        drawn + bytes(zeros) for drawn, zeros in zip(_noise(noise, shape.records), _zeros(shape, noise), strict=True)
    ]
    return encode_batch([NewRecord(0, None, value) for value in values], codec=shape.codec)


def _noise(total: int, count: int) -> list[bytes]:
    data = random.Random(total).randbytes(total)
    each, more = divmod(total, count)
    ends = [index * each + min(index, more) for index in range(count + 1)]
    return [data[start:end] for start, end in pairwise(ends)]


def _zeros(shape: _Shape, noise: int) -> list[int]:
    """The number of zeros behind each record's random bytes."""
    if shape.codec is Codec.NONE:
        return [0] * shape.records
    plain = (shape.size - HEADER_SIZE) * _UNKNOWN_RATIO if shape.raw_size is None else shape.raw_size
    total = max(0, plain - 8 * shape.records - noise)
    each, more = divmod(total, shape.records)
    return [each + (index < more) for index in range(shape.records)]
