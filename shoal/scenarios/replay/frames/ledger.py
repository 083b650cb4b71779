"""Compares batches that were sent again with those in the log: equal bytes, except header fields that brokers write.

A batch is identified by its codec, count, timestamps and payload checksum; equal ones by their order. On a topic whose
broker recompresses, or sets LogAppendTime, every batch counts as foreign and missing.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, NamedTuple

from shoal.protocol.multibatch.messages import CLIENT_ID, fetch, fetched
from shoal.protocol.records.batch import HEADER_SIZE, read_batch_header
from shoal.protocol.records.recordset import split
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.frames import request_frame
from shoal.protocol.wire.crc import crc32c
from shoal.scenarios.kafka.errors import TrafficFailed
from shoal.scenarios.replay.ledger import Findings
from shoal.scenarios.replay.sending.wire import open_wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.protocol.wire.types import TopicPartition
    from shoal.scenarios.kafka.content.topics import OffsetRange
    from shoal.scenarios.replay.frames.requests import RawBatch
    from shoal.scenarios.replay.sending.wire import Address, Wire

__all__ = ["RawLedger"]

_VERSION = 4  # of Fetch


class _Mark(NamedTuple):
    codec: int
    records: int
    base_timestamp: int
    max_timestamp: int
    payload: int


def _mark(data: bytes | memoryview) -> _Mark:
    header = read_batch_header(data, 0, len(data))
    payload = crc32c(memoryview(data)[HEADER_SIZE:])
    return _Mark(header.codec, header.record_count, header.base_timestamp, header.max_timestamp, payload)


class RawLedger:
    def __init__(self) -> None:
        self._sent: dict[TopicPartition, dict[_Mark, deque[tuple[int, int]]]] = defaultdict(lambda: defaultdict(deque))
        self._number = 0

    def sent(self, batch: RawBatch, connection: int) -> None:
        self._number += 1
        self._sent[batch.partition][_mark(batch.data)].append((self._number, connection))

    async def audit(
        self,
        leaders: Mapping[TopicPartition, Address],
        before: Mapping[str, Mapping[int, OffsetRange]],
        after: Mapping[str, Mapping[int, OffsetRange]],
    ) -> Findings:
        """Read from the ends `before` to the ends `after` the replay. Raises TrafficFailed, OSError."""
        found = Findings()
        for partition, marks in self._sent.items():
            topic, number = partition
            begin, end = before[topic][number].end, after[topic][number].end
            async with open_wire(leaders[partition]) as wire:
                _judge(await _read(wire, topic, number, begin, end), marks, found)
        return found


async def _read(wire: Wire, topic: str, partition: int, offset: int, end: int) -> list[_Mark]:
    marks = []
    while offset < end:
        question = request_frame(ApiKey.FETCH, _VERSION, 1, CLIENT_ID, fetch(topic, partition, offset))
        frame = await wire.exchange(question)
        error, start, stop = fetched(frame, _VERSION, topic, partition)
        spans = split(frame, start, stop).spans
        if error or not spans:
            raise TrafficFailed(f"{topic}-{partition} cannot be read at {offset}: error {error}")
        for span in spans:
            header = read_batch_header(frame, span.start, span.end)
            if header.base_offset >= offset and not header.is_control:
                marks.append(_mark(memoryview(frame)[span.start : span.end]))
            offset = max(offset, header.last_offset + 1)
    return marks


def _judge(marks: list[_Mark], sent: dict[_Mark, deque[tuple[int, int]]], found: Findings) -> None:
    last: dict[int, int] = {}
    for mark in marks:
        if mark not in sent:
            found.foreign += 1
        elif not sent[mark]:
            found.doubled += 1
        else:
            number, connection = sent[mark].popleft()
            found.complete += 1
            found.out_of_order += number < last.get(connection, 0)
            last[connection] = number
    found.missing += sum(map(len, sent.values()))
