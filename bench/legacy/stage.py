"""Topics of large batches: 1 MB compressed, 7 MB of records, as producers with a large `batch.size` make them.

Every record follows from its offset, so that a reader can check each by itself: a numbered text that compresses well,
and incompressible noise, which makes all codecs shrink it alike. The broker assigns the intended offsets: each
partition is written once, by one connection, in order.
"""

from __future__ import annotations

import random
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import cramjam
import crc32c
import lz4.frame

from bench.load import Wire
from shoal.scenarios.kafka.content.topics import Topics
from tests.support import frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from bench.load import Address

__all__ = ["RECORD_BYTES", "Kind", "key_of", "kinds", "stage", "timestamp_of", "value_of"]

STAMP_MS = 1_700_000_000_000
_NOISE = random.Random(283).randbytes(1 << 20)
_NOISE_BYTES = 48
_TEXT = (
    b'"type":"order.shipped","version":3,"currency":"EUR","channel":"web","country":"DE","segment":"consumer",'
    b'"warehouse":"central","carrier":"parcel","source":"checkout","items":[{"sku":"A-1","quantity":1,'
    b'"price":1999,"taxed":true},{"sku":"B-7","quantity":2,"price":499,"taxed":true},{"sku":"C-3","quantity":1,'
    b'"price":89900,"taxed":false}],"address":{"city":"Berlin","street":"Example Street 1","postcode":"10115"},'
    b'"signature":"'
)
_VALUE = b'{"id":%012d,' + _TEXT.replace(b"%", b"%%") + b'%b"}'
_RECORDS = {"gzip": 14_500, "snappy": 11_500, "lz4": 14_500}  # of a batch
_KEYS = tuple(b"%08d" % number for number in range(4_000))


def value_of(offset: int) -> bytes:
    start = offset * _NOISE_BYTES % (len(_NOISE) - _NOISE_BYTES)
    return _VALUE % (offset, _NOISE[start : start + _NOISE_BYTES])


def key_of(offset: int) -> bytes:
    return _KEYS[offset % len(_KEYS)]


def timestamp_of(offset: int) -> int:
    return STAMP_MS + offset


RECORD_BYTES = len(value_of(0)) + len(key_of(0))


class _Codec(NamedTuple):
    number: int
    compress: Callable[[bytes], bytes]


def _gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(data) + packer.flush()


def _lz4(data: bytes) -> bytes:
    """As in Java: no linked blocks."""
    packed: bytes = lz4.frame.compress(data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False)
    return packed


def _snappy(data: bytes) -> bytes:
    """As in librdkafka: one block, which cannot be decompressed in parts."""
    return bytes(cramjam.snappy.compress_raw(data))


_CODECS: Mapping[str, _Codec] = {
    "none": _Codec(0, bytes),
    "gzip": _Codec(1, _gzip),
    "snappy": _Codec(2, _snappy),
    "lz4": _Codec(3, _lz4),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One topic with one partition. `batches` of `records` each."""

    codec: str
    batches: int
    records: int

    @property
    def topic(self) -> str:
        return f"large-{self.codec}"

    @property
    def end(self) -> int:
        return self.batches * self.records

    @property
    def plain_bytes(self) -> int:
        return self.end * RECORD_BYTES

    def build(self) -> Iterator[bytes]:
        return (_batch(self.codec, at * self.records, self.records) for at in range(self.batches))


def kinds(batches: int) -> dict[str, Kind]:
    """By codec. A batch of each takes about 1 MB and fits into the default `message.max.bytes`."""
    compressed = {codec: Kind(codec=codec, batches=batches, records=count) for codec, count in _RECORDS.items()}
    return {"none": Kind(codec="none", batches=4 * batches, records=1_800), **compressed}


async def stage(bootstrap: str, address: Address, sets: Mapping[Kind, list[bytes]]) -> None:
    """Create and fill the topics. Raises RuntimeError if the broker does not hold what was sent."""
    topics = Topics(bootstrap)
    for kind, batches in sets.items():
        await topics.create(kind.topic)
        with Wire(address) as wire:
            for batch in batches:
                wire.send(frames.produce("bench", frames.Topic(kind.topic, b""), {0: batch}, version=11))
                wire.drain()
        if (found := (await topics.spans(kind.topic))[0].end) != kind.end:
            raise RuntimeError(f"{kind.topic} ends at {found:,} instead of {kind.end:,}")


def _batch(codec: str, first: int, count: int) -> bytes:
    number, compress = _CODECS[codec]
    body = compress(b"".join(_record(first + delta, delta) for delta in range(count)))
    stamps = timestamp_of(first), timestamp_of(first + count - 1)
    covered = struct.pack(">hiqqqhii", number, count - 1, *stamps, -1, -1, -1, count) + body
    return struct.pack(">qiibI", 0, 9 + len(covered), -1, 2, crc32c.crc32c(covered)) + covered


def _record(offset: int, delta: int) -> bytes:
    """Its timestamp delta equals its offset delta."""
    key, value, place = key_of(offset), value_of(offset), frames.zigzag(delta)
    body = b"".join((b"\0", place, place, frames.zigzag(len(key)), key, frames.zigzag(len(value)), value, b"\0"))
    return frames.zigzag(len(body)) + body
