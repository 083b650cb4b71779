"""Compares the batches that were sent with what the topics hold afterwards.

Every batch has a number, which its timestamp carries (index/synthetic_batches.py). Each topic is read from its previous
end; each number must occur once, with all its records in sequence, and the numbers of one connection must ascend in
each partition.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from shoal.scenarios.kafka.content.reading import partition_of, read_from

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import Message

    from shoal.protocol.wire import types
    from shoal.scenarios.kafka.content.topics import OffsetRange
    from shoal.scenarios.replay.arrivals import ArrivedBatch

__all__ = ["Findings", "ReplayLedger"]


@dataclass(slots=True, kw_only=True)
class Findings:
    """Counts of batches; `foreign` counts records that the replay did not send."""

    complete: int = 0
    missing: int = 0
    doubled: int = 0
    torn: int = 0  # with too few records, too many, or others between them
    out_of_order: int = 0
    misplaced: int = 0
    foreign: int = 0

    @property
    def clean(self) -> bool:
        return not any(getattr(self, field.name) for field in fields(self) if field.name not in ("complete", "foreign"))

    def __str__(self) -> str:
        wrong = [f"{getattr(self, field.name):,} {field.name}" for field in fields(self) if getattr(self, field.name)]
        return ", ".join(wrong).replace("_", " ") or "nothing"


class ReplayLedger:
    """`epoch`: ms, the timestamp of batch 0, as in `Maker`."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._records = array("I")
        self._indexes = array("I")  # of each batch's partition
        self._connections = array("Q")
        self._index_of: dict[types.TopicPartition, int] = {}

    def sent(self, part: ArrivedBatch, connection: int) -> int:
        """-> the batch's number."""
        self._records.append(part.records)
        self._indexes.append(self._index_of.setdefault(part.topic_partition, len(self._index_of)))
        self._connections.append(connection)
        return len(self._records) - 1

    @property
    def partitions(self) -> Mapping[types.TopicPartition, int]:
        """Partition -> records sent."""
        totals: Counter[int] = Counter()
        for at, count in zip(self._indexes, self._records, strict=True):
            totals[at] += count
        return {partition: totals[at] for partition, at in self._index_of.items()}

    async def audit(self, bootstrap: str, before: Mapping[str, Mapping[int, OffsetRange]]) -> Findings:
        """`before`: the spans of each topic before the replay. Raises TrafficFailed."""
        starts = [
            TopicPartition(topic, partition, before[topic][partition].end)
            for topic, partition in sorted(self._index_of)
        ]
        reader = _Reader(self._records, self._indexes, self._connections, self._index_of, self._epoch)
        await read_from(bootstrap, starts, reader.take)
        return reader.findings()


class _Reader:
    def __init__(
        self,
        records: array[int],
        indexes: array[int],
        connections: array[int],
        index_of: Mapping[types.TopicPartition, int],
        epoch: int,
    ) -> None:
        self._records, self._indexes, self._connections = records, indexes, connections
        self._index_of = index_of
        self._epoch = epoch
        self._seen = bytearray(len(records))
        self._found = Findings()
        # partition -> batch that is being read, and how many of its records
        self._open: dict[int, tuple[int, int]] = {}
        self._last: dict[tuple[int, int], int] = {}  # (partition, connection) -> the last batch

    def take(self, messages: list[Message]) -> None:
        for message in messages:
            self._record(self._index_of[partition_of(message)], message.timestamp()[1] - self._epoch)

    def _record(self, at: int, number: int) -> None:
        if not 0 <= number < len(self._records):
            self._found.foreign += 1
            return
        batch, count = self._open.get(at, (-1, 0))
        if batch != number or count == self._records[batch]:
            self._close(at)
            self._begin(at, number)
            count = 0
        self._open[at] = number, count + 1

    def _begin(self, at: int, number: int) -> None:
        found, by = self._found, (at, self._connections[number])
        found.doubled += self._seen[number]
        found.misplaced += self._indexes[number] != at
        found.out_of_order += number < self._last.get(by, -1)
        self._last[by] = max(number, self._last.get(by, -1))
        self._seen[number] = 1

    def _close(self, at: int) -> None:
        batch, count = self._open.pop(at, (-1, 0))
        if batch >= 0:
            complete = count == self._records[batch]
            self._found.complete += complete
            self._found.torn += not complete

    def findings(self) -> Findings:
        for at in list(self._open):
            self._close(at)
        self._found.missing = self._seen.count(0)
        return self._found
