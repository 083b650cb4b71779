"""Prebuilt requests and answers: the load client costs almost no CPU and sends the same to every proxy.

Written with `struct` and without Shoal's protocol code, to be independent of it. Fetch and Produce have the versions of
Java clients with topic ids, the others have versions that brokers 3.9 to 4.3 support; the layouts
are in the message schemas of apache/kafka (clients/src/main/resources/common/message).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import crc32c
import zstandard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "FETCH_VERSION",
    "JAVA_CONSUMER",
    "FetchLimits",
    "Topic",
    "api_versions",
    "batch",
    "fetch",
    "fetch_answer",
    "heartbeat",
    "list_offsets",
    "metadata",
    "produce",
    "produce_answer",
    "zigzag",
]

_NO_TAGS = b"\0"
_PRODUCE, _FETCH, _LIST_OFFSETS, _METADATA, _HEARTBEAT, _API_VERSIONS = 0, 1, 2, 3, 12, 18
FETCH_VERSION, _LIST_OFFSETS_V, _METADATA_V, _HEARTBEAT_V, _API_VERSIONS_V = 17, 7, 12, 4, 3
_PRODUCE_BY_ID = 13
_LATEST = -1  # ListOffsets: the end of the log
_ZSTD = 4
_BEFORE_COVERED = 9  # of a batch: leader epoch, magic and CRC are counted by its length, but not covered by its CRC


class Topic(NamedTuple):
    name: str
    topic_id: bytes  # 16 bytes


class FetchLimits(NamedTuple):
    """Bytes of a whole answer and of one partition in it."""

    response: int
    partition: int


JAVA_CONSUMER = FetchLimits(response=50 * 1024 * 1024, partition=1024 * 1024)  # its defaults


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _compact(data: bytes) -> bytes:
    return uvarint(len(data) + 1) + data


def _array(items: Sequence[bytes]) -> bytes:
    return uvarint(len(items) + 1) + b"".join(items)


def _frame(key: int, version: int, client: str, body: bytes) -> bytes:
    """Request header v2: the client id is the one string that never became compact."""
    name = client.encode()
    head = struct.pack(">hhih", key, version, 0, len(name)) + name + _NO_TAGS
    return struct.pack(">i", len(head) + len(body)) + head + body


def api_versions(client: str) -> bytes:
    return _frame(_API_VERSIONS, _API_VERSIONS_V, client, _compact(b"bench") + _compact(b"1") + _NO_TAGS)


def metadata(client: str) -> bytes:
    """All topics: a listener learns topic ids from the answer."""
    every_topic, no_creation, no_operations = b"\0", b"\0", b"\0"
    return _frame(_METADATA, _METADATA_V, client, every_topic + no_creation + no_operations + _NO_TAGS)


def list_offsets(client: str, topic: Topic, partition: int = 0) -> bytes:
    """A small request that no listener edits."""
    place = struct.pack(">iiq", partition, -1, _LATEST) + _NO_TAGS
    topics = _array([_compact(topic.name.encode()) + _array([place]) + _NO_TAGS])
    return _frame(_LIST_OFFSETS, _LIST_OFFSETS_V, client, struct.pack(">ib", -1, 0) + topics + _NO_TAGS)


def heartbeat(client: str) -> bytes:
    """The smallest request of an ordinary client. The group does not exist, so the answer is an error."""
    group, generation, member, no_instance = _compact(b"bench"), struct.pack(">i", 1), _compact(b"bench"), b"\0"
    return _frame(_HEARTBEAT, _HEARTBEAT_V, client, group + generation + member + no_instance + _NO_TAGS)


def fetch(client: str, topic: Topic, offsets: Mapping[int, int], limits: FetchLimits = JAVA_CONSUMER) -> bytes:
    """Outside of any fetch session: session id 0, epoch -1."""
    places = [
        struct.pack(">iiqiqi", partition, -1, offset, -1, -1, limits.partition) + _NO_TAGS
        for partition, offset in offsets.items()
    ]
    wait_ms, min_bytes, read_uncommitted = 500, 1, 0
    head = struct.pack(">iiibii", wait_ms, min_bytes, limits.response, read_uncommitted, 0, -1)
    topics = _array([topic.topic_id + _array(places) + _NO_TAGS])
    nothing_forgotten, no_rack = _array([]), _compact(b"")
    return _frame(_FETCH, FETCH_VERSION, client, head + topics + nothing_forgotten + no_rack + _NO_TAGS)


def produce(client: str, topic: Topic, batches: Mapping[int, bytes], *, version: int = 13) -> bytes:
    """acks=all, no transaction. Kafka 4.0 and later know v13, which names the topic by its id."""
    places = [struct.pack(">i", partition) + _compact(records) + _NO_TAGS for partition, records in batches.items()]
    not_transactional, acks_all, timeout_ms = b"\0", -1, 30_000
    named = topic.topic_id if version >= _PRODUCE_BY_ID else _compact(topic.name.encode())
    topics = _array([named + _array(places) + _NO_TAGS])
    head = not_transactional + struct.pack(">hi", acks_all, timeout_ms)
    return _frame(_PRODUCE, version, client, head + topics + _NO_TAGS)


def fetch_answer(topic: Topic, record_set: bytes) -> bytes:
    """An answer of `FETCH_VERSION` to correlation id 0: partition 0 has this record set."""
    part = struct.pack(">ihqqq", 0, 0, 1 << 40, 1 << 40, 0) + _array([]) + struct.pack(">i", -1)
    topics = _array([topic.topic_id + _array([part + _compact(record_set) + _NO_TAGS]) + _NO_TAGS])
    return _answer(_NO_TAGS + struct.pack(">ihi", 0, 0, 0) + topics + _NO_TAGS)


def produce_answer(topic: Topic, partitions: int = 1) -> bytes:
    """An answer of v9 to v12 to correlation id 0: no errors."""
    rest = struct.pack(">hqqq", 0, 7, -1, 0) + _array([]) + uvarint(0) + _NO_TAGS
    parts = _array([struct.pack(">i", index) + rest for index in range(partitions)])
    topics = _array([_compact(topic.name.encode()) + parts + _NO_TAGS])
    return _answer(_NO_TAGS + topics + struct.pack(">i", 0) + _NO_TAGS)


def _answer(body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, 0) + body


def batch(values: Sequence[bytes], timestamp_ms: int, *, zstd: bool = False) -> bytes:
    """A v2 batch of records without keys and headers, as a producer without an id sends it."""
    records = b"".join(_record(at, value) for at, value in enumerate(values))
    if zstd:
        records = zstandard.compress(records)
    attributes = _ZSTD if zstd else 0
    times, no_producer, count = (timestamp_ms, timestamp_ms), (-1, -1, -1), len(values)
    covered = struct.pack(">hiqqqhii", attributes, count - 1, *times, *no_producer, count) + records
    head = struct.pack(">qiibI", 0, _BEFORE_COVERED + len(covered), -1, 2, crc32c.crc32c(covered))
    return head + covered


def _record(offset_delta: int, value: bytes) -> bytes:
    body = b"".join((b"\0", b"\0", zigzag(offset_delta), zigzag(-1), zigzag(len(value)), value, b"\0"))
    return zigzag(len(body)) + body


def zigzag(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63))
