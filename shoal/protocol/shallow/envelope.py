"""The envelope: ONE ordinary record for the mirror, which carries a run of whole record batches.

The record's value is the batches as the source broker stored them, one after the other. Its key describes them, and
the target side recognises an envelope by the key alone:

    magic: 16 fixed bytes       makes false positives of a search over a record set practically impossible
    version: int8
    ...                         version 1: `_FIXED`, cluster: string, topic: string, nonce: uint32
                                version 2: `_FIXED`, cluster, topic, `_COVER`, nonce
                                version 3: as version 1
    crc: uint32                 CRC-32C of everything before it, in every version

Version 2 is for mirror topics, which keep the offsets of the source (same_offsets). It says which offsets of the source
it covers: those without a batch in the envelope have no record for the target. So its batches may have holes, and it
may have no batch at all.

Version 3 is a claim check (claim_check.py): the batches stay with Shoal.

Another magic, or this magic with a wrong checksum, is user data. A right checksum with an unknown version is from a
newer Shoal, and must be refused, never passed through.

The record's headers repeat facts for operators (facts.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from struct import Struct
from typing import NamedTuple, TypeAlias

from shoal.protocol.wire.crc import Buffer, crc32c
from shoal.protocol.wire.errors import LocalProtocolError, RemoteProtocolError
from shoal.protocol.wire.types import TopicPartition, read_string, write_string

__all__ = [
    "MAGIC",
    "MAX_TAGS",
    "Cover",
    "EnvelopeKey",
    "decode_key",
    "encode_key",
    "tag_headers",
    "with_partition_nonce",
]

MAGIC = bytes.fromhex("5498f004375035e7eea85b24c834cd06")
VERSION = 1
VERSION_WITH_COVER = 2
VERSION_OF_CLAIM_CHECK = 3

MAX_TAGS = 16  # all are copied into every envelope
MAX_TAG_BYTES = 256  # name and value together
_TRIES_PER_PARTITION = 64  # a try succeeds with probability 1/partitions: all fail once in e^64 times

Header: TypeAlias = tuple[bytes, bytes]

_FIXED = Struct(
    ">"
    "q"  # firstOffset: first record of the first batch, at the source
    "q"  # lastOffset: last record of the last batch
    "i"  # partition, at the source
    "i"  # batches
    "q"  # records
    "i"  # payload: bytes of the value
    "I"  # payloadCrc: CRC-32C of the value
    "Q"  # flow
    "Q"  # serial
)
_COVER = Struct(
    ">"
    "q"  # start
    "q"  # end
    "?"  # fill
)
_UINT32 = Struct(">I")
_MIN_BATCH = 61  # bytes
_OFFSETS = (1 << 63) - 1  # so that the next one is an int64, too


class Cover(NamedTuple):
    """The offsets `start` to `end` (exclusive) of the source. `fill`: they reach its end, so the target's log shall
    end there, too.
    """

    start: int
    end: int
    fill: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeKey:
    """Origin and size of the batches. `cluster` is the source cluster's id, offsets are inclusive.

    `flow` identifies the mirror consumer for which it was made, `serial` this copy: a producer's retry has the same
    serial, a repeated fetch gets another one. `nonce` only changes the key's hash. `is_claim_check`: the record's value
    is not the batches, which `payload` and `payload_crc` still describe.
    """

    cluster: str
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    batches: int
    records: int
    payload: int
    payload_crc: int
    flow: int
    serial: int
    nonce: int = 0
    cover: Cover | None = None
    is_claim_check: bool = False

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def carried(self) -> int:
        """Bytes of batches that pass through the mirror."""
        return 0 if self.is_claim_check else self.payload

    def __hash__(self) -> int:
        """Salted, as hashes of strings and bytes are: a client must not be able to choose keys of equal hash."""
        return hash((self.cluster, self.topic, self.nonce, _fixed(self), self.cover and _COVER.pack(*self.cover)))

    def __str__(self) -> str:
        return f"{self.cluster}/{self.topic}-{self.partition} offsets {self.first_offset}..{self.last_offset}"


def encode_key(key: EnvelopeKey) -> bytes:
    """The bytes of the record key."""
    stem = _encode_stem(key) + _UINT32.pack(key.nonce)
    return stem + _UINT32.pack(crc32c(stem))


def decode_key(data: Buffer) -> EnvelopeKey | None:
    """The envelope's key; None if `data` is the key of an ordinary record.

    RemoteProtocolError: made by a newer Shoal, or inconsistent. Neither may be passed on as a record.
    """
    end = len(data) - _UINT32.size
    if end <= len(MAGIC) or data[: len(MAGIC)] != MAGIC:
        return None
    if _UINT32.unpack_from(data, end)[0] != crc32c(memoryview(data)[:end]):
        return None
    version = data[len(MAGIC)]
    if version not in (VERSION, VERSION_WITH_COVER, VERSION_OF_CLAIM_CHECK):
        raise RemoteProtocolError(f"an envelope of version {version}, made by a newer Shoal")
    key = _decode_body(data, len(MAGIC) + 1, end, version)
    if not (0 <= key.first_offset <= key.last_offset < _OFFSETS and _least_batches(key) <= key.batches <= key.records):
        raise RemoteProtocolError(f"an envelope with impossible counts: {key}")
    if key.partition < 0 or key.payload < key.batches * _MIN_BATCH:
        raise RemoteProtocolError(f"an envelope of {key.payload} bytes in {key.batches} batches: {key}")
    cover = key.cover
    if cover is not None and not 0 <= cover.start <= key.first_offset <= key.last_offset < cover.end:
        raise RemoteProtocolError(f"an envelope that covers {cover.start} to {cover.end}: {key}")
    return key


def _least_batches(key: EnvelopeKey) -> int:
    return 1 if key.cover is None else 0


def _encode_stem(key: EnvelopeKey) -> bytes:
    """Everything before the nonce."""
    version, cover = VERSION, b""
    if key.cover is not None:
        version, cover = VERSION_WITH_COVER, _COVER.pack(*key.cover)
    elif key.is_claim_check:
        version = VERSION_OF_CLAIM_CHECK
    return MAGIC + bytes((version,)) + _fixed(key) + write_string(key.cluster) + write_string(key.topic) + cover


def _fixed(key: EnvelopeKey) -> bytes:
    span = (key.first_offset, key.last_offset, key.partition, key.batches, key.records)
    return _FIXED.pack(*span, key.payload, key.payload_crc, key.flow, key.serial)


def _decode_body(data: Buffer, pos: int, end: int, version: int) -> EnvelopeKey:
    if end - pos < _FIXED.size:
        raise RemoteProtocolError(f"an envelope key of {end} bytes")
    first, last, partition, batches, records, payload, payload_crc, flow, serial = _FIXED.unpack_from(data, pos)
    cluster, pos = read_string(data, pos + _FIXED.size, end)
    topic, pos = read_string(data, pos, end)
    cover, has_cover = None, version == VERSION_WITH_COVER
    if has_cover and end - pos >= _COVER.size:
        cover = Cover._make(_COVER.unpack_from(data, pos))
        pos += _COVER.size
    if has_cover and cover is None:
        raise RemoteProtocolError("an envelope key without the offsets that it covers")
    if cluster is None or topic is None or end - pos != _UINT32.size:
        raise RemoteProtocolError("an envelope key whose length does not match its fields")
    return EnvelopeKey(
        cluster=cluster,
        topic=topic,
        partition=partition,
        first_offset=first,
        last_offset=last,
        batches=batches,
        records=records,
        payload=payload,
        payload_crc=payload_crc,
        flow=flow,
        serial=serial,
        nonce=_UINT32.unpack_from(data, pos)[0],
        cover=cover,
        is_claim_check=version == VERSION_OF_CLAIM_CHECK,
    )


def tag_headers(tags: Mapping[str, str]) -> tuple[Header, ...]:
    """Configured application tags as record headers `shoal.tag.<name>`.

    LocalProtocolError beyond MAX_TAGS, MAX_TAG_BYTES.
    """
    headers = tuple((b"shoal.tag." + name.encode(), value.encode()) for name, value in tags.items())
    if len(headers) > MAX_TAGS:
        raise LocalProtocolError(f"{len(headers)} tags, at most {MAX_TAGS} are carried in each envelope")
    for name, value in headers:
        if len(name) + len(value) > MAX_TAG_BYTES:
            raise LocalProtocolError(f"tag {name.decode()} is longer than {MAX_TAG_BYTES} bytes")
    return headers


def with_partition_nonce(key: EnvelopeKey, partitions: int) -> EnvelopeKey:
    """`key` with a nonce for which Kafka's default partitioner chooses `key.partition` out of `partitions`.

    For mirrors that choose the partition by key hash (MirrorMaker 1, Brooklin). It takes `partitions` tries on average;
    each hashes only the last bytes of the key.
    """
    stem = _encode_stem(key)
    cut = len(stem) & ~3
    state = _murmur2_blocks(_murmur2_seed(len(stem) + 2 * _UINT32.size), stem[:cut])
    rest, stem_crc = stem[cut:], crc32c(stem)
    for nonce in range(_TRIES_PER_PARTITION * partitions):
        packed = _UINT32.pack(nonce)
        tail = rest + packed + _UINT32.pack(crc32c(packed, stem_crc))
        if (_murmur2_end(state, tail) & 0x7FFFFFFF) % partitions == key.partition:
            return replace(key, nonce=nonce)
    raise LocalProtocolError(f"no nonce puts {key} into partition {key.partition} of {partitions}")


_M = 0x5BD1E995
_U32 = 0xFFFFFFFF
_BLOCK = Struct("<I")


def murmur2(data: bytes) -> int:
    """Kafka's `Utils.murmur2`, unsigned: the key hash of its default partitioner."""
    cut = len(data) & ~3
    return _murmur2_end(_murmur2_blocks(_murmur2_seed(len(data)), data[:cut]), data[cut:])


def _murmur2_seed(length: int) -> int:
    return 0x9747B28C ^ length


def _murmur2_blocks(state: int, blocks: bytes) -> int:
    for (block,) in _BLOCK.iter_unpack(blocks):
        block = block * _M & _U32
        block = (block ^ block >> 24) * _M & _U32
        state = state * _M & _U32 ^ block
    return state


def _murmur2_end(state: int, tail: bytes) -> int:
    cut = len(tail) & ~3
    state = _murmur2_blocks(state, tail[:cut])
    if cut < len(tail):
        state = (state ^ int.from_bytes(tail[cut:], "little")) * _M & _U32
    state = (state ^ state >> 13) * _M & _U32
    return state ^ state >> 15
