"""Fetch v2 as bytes, the version of the clients 0.10.0: the request, and an answer read as it arrives.

FetchRequest v2:  replica_id i32, max_wait i32, min_bytes i32, [topic string, [partition i32, offset i64, max_bytes
i32]] FetchResponse v2: throttle i32, [topic string, [partition i32, error i16, high watermark i64, record set bytes]]
(clients/src/main/resources/common/message/Fetch*.json of apache/kafka 3.9)
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from bench.legacy.message_sets import Damaged, SetReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.legacy.message_sets import Bytes, Message

__all__ = ["MAX_BYTES", "AnswerReader", "fetch", "record_set"]

_FETCH, _VERSION = 1, 2
_CLIENT = b"old-consumer"
_WAIT_MS, _MIN_BYTES = 500, 1
MAX_BYTES = 1 << 20  # of a partition: `max.partition.fetch.bytes` of the clients 0.9 and 0.10


def fetch(topic: str, offset: int) -> bytes:
    """A whole frame, for partition 0."""
    name = topic.encode()
    head = struct.pack(f">hhih{len(_CLIENT)}s", _FETCH, _VERSION, 0, len(_CLIENT), _CLIENT)
    body = struct.pack(f">iiiih{len(name)}s", -1, _WAIT_MS, _MIN_BYTES, 1, len(name), name)
    body += struct.pack(">iiqi", 1, 0, offset, MAX_BYTES)
    return struct.pack(">i", len(head) + len(body)) + head + body


def _layout(topic: str) -> struct.Struct:
    """The fields from the frame's size to the record set's."""
    return struct.Struct(f">iiiih{len(topic)}siihqi")


def record_set(answer: bytes, topic: str) -> memoryview:
    """The record set of a whole answer, without checks."""
    return memoryview(answer)[_layout(topic).size :]


class AnswerReader:
    """Reads one answer to `fetch(topic, next_offset)`. `records` is set once the answer has arrived that far."""

    def __init__(self, topic: str, next_offset: int, check: Callable[[Message], None]) -> None:
        name = topic.encode()
        self._layout = _layout(topic)
        self._fields = (
            0,
            1,
            len(name),
            name,
            1,
            0,
            0,
        )  # correlation id, a topic and its name, a partition, its number and error
        self._head = bytearray()
        self._start = next_offset
        self._check = check
        self._left = self._layout.size
        self.records: SetReader | None = None

    @property
    def wanted(self) -> int:
        """Bytes that are still missing, as far as known. 0: the answer is whole."""
        return self._left

    @property
    def next_offset(self) -> int:
        return self.records.next_offset if self.records else self._start

    def feed(self, data: Bytes) -> None:
        """At most `wanted` bytes. Raises Damaged."""
        self._left -= len(data)
        if self.records is None:
            self._head += data
            if not self._left:
                self._begin()
        else:
            self.records.feed(data)
        if not self._left and self.records:
            self.records.end()

    def _begin(self) -> None:
        size, correlation_id, _throttle, *rest, _high_watermark, length = self._layout.unpack(self._head)
        if (found := (correlation_id, *rest)) != self._fields:
            raise Damaged(f"an answer that says {found} instead of {self._fields}")
        if size != self._layout.size - 4 + length:
            raise Damaged(f"a frame of {size} bytes with a record set of {length}")
        self.records = SetReader(length, self._start, self._check)
        self._left = length
