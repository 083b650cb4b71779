"""Checks that every acknowledged record is in the topic once, and each producer's records in its order."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from shoal.scenarios.kafka.content.reading import partition_of, read_from

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import Message

    from shoal.scenarios.kafka.content.topics import OffsetRange

__all__ = ["Verified", "verify"]


class Verified:
    """Contents of a topic: `out_of_order` counts records after a later one of the same producer and partition."""

    def __init__(self) -> None:
        self.records = self.duplicates = self.out_of_order = 0
        self._seen: dict[int, set[int]] = defaultdict(set)
        self._last: dict[tuple[int, int], int] = defaultdict(lambda: -1)

    def take(self, messages: list[Message]) -> None:
        for message in messages:
            producer, number = map(int, (message.value() or b"").split(b":")[:2])
            at = producer, partition_of(message)[1]
            self.records += 1
            self.duplicates += number in self._seen[producer]
            self.out_of_order += number < self._last[at]
            self._seen[producer].add(number)
            self._last[at] = max(number, self._last[at])

    def missing(self) -> int:
        """Missing numbers from 0 to the largest one of each producer."""
        return sum(max(numbers) + 1 - len(numbers) for numbers in self._seen.values())


async def verify(bootstrap: str, topic: str, spans: Mapping[int, OffsetRange]) -> Verified:
    """Read the records after the ends in `spans` (`Topics.spans`)."""
    found = Verified()
    starts = [TopicPartition(topic, partition, span.end) for partition, span in spans.items()]
    await read_from(bootstrap, starts, found.take)
    return found
