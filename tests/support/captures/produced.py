"""Produce requests and their answers as bytes, in all versions with batches and with all variations."""

from __future__ import annotations

from struct import Struct
from typing import Any

from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.wire.compression import Codec
from tests.support import frames
from tests.support.captures.readable import IDS

__all__ = ["Sets", "a_batch", "answer", "answer_of", "request", "request_of"]

[BY_ID] = IDS
SIZE = Struct(">i")


def string(value: str | None, compact: bool) -> bytes:
    data = (value or "").encode()
    if compact:
        return b"\0" if value is None else frames.uvarint(len(data) + 1) + data
    return b"\xff\xff" if value is None else len(data).to_bytes(2, "big") + data


def array(items: list[bytes], compact: bool) -> bytes:
    return (frames.uvarint(len(items) + 1) if compact else SIZE.pack(len(items))) + b"".join(items)


def topic_of(name: str, version: int, *partitions: bytes) -> bytes:
    compact = version >= 9
    key = BY_ID if version >= 13 else string(name, compact)
    return key + array(list(partitions), compact) + b"\0" * compact


def topics_of(version: int, topics: dict[str, list[bytes]]) -> bytes:
    return array([topic_of(name, version, *partitions) for name, partitions in topics.items()], version >= 9)


def sized(body: bytes) -> bytes:
    return SIZE.pack(len(body)) + body


Sets = dict[str, dict[int, bytes]]
"""By topic and partition."""


def request(version: int, correlation_id: int, records: bytes, **given_: Any) -> bytes:
    sets = {given_.get("topic", "orders"): {given_.get("index", 0): records}}
    return request_of(version, correlation_id, sets, **given_)


def request_of(version: int, correlation_id: int, sets: Sets, **given_: Any) -> bytes:
    compact, tags = version >= 9, b"\0" * (version >= 9)

    def partition(index: int, records: bytes) -> bytes:
        length = frames.uvarint(len(records) + 1) if compact else SIZE.pack(len(records))
        return SIZE.pack(index) + length + records + tags

    topics = {name: [partition(*one) for one in each.items()] for name, each in sets.items()}
    head = Struct(">hhi").pack(0, version, correlation_id) + string(given_.get("client", "maker"), False) + tags
    return sized(
        head
        + string(given_.get("transaction"), compact)
        + Struct(">hi").pack(given_.get("acks", -1), 30_000)
        + topics_of(version, topics)
        + tags
    )


def answer(version: int, correlation_id: int, **given_: Any) -> bytes:
    sets = {given_.get("topic", "orders"): {given_.get("index", 0): b""}}
    return answer_of(version, correlation_id, sets, **given_)


def answer_of(version: int, correlation_id: int, sets: Sets, **given_: Any) -> bytes:
    """To a request with these."""
    compact, tags = version >= 9, b"\0" * (version >= 9)
    said = Struct(">hqq").pack(given_.get("error", 0), given_.get("offset", 70), -1)
    said += Struct(">q").pack(0) * (version >= 5)
    if version >= 8:
        said += array([], compact) + string(given_.get("text"), compact)
    topics = {name: [SIZE.pack(index) + said + tags for index in each] for name, each in sets.items()}
    throttle = SIZE.pack(given_.get("throttle", 0))
    return sized(SIZE.pack(correlation_id) + tags + topics_of(version, topics) + throttle + tags)


def a_batch(codec: Codec = Codec.NONE, records: int = 3, size: int = 40) -> bytes:
    made = [NewRecord(1_700_000_000_000 + at, None, bytes([at % 251]) * size) for at in range(records)]
    return encode_batch(made, base_offset=0, codec=codec, producer_id=9, producer_epoch=1, base_sequence=5)
