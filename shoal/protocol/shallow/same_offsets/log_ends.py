"""Where the copies end that an unwrapping listener writes to: asked from each leader, then followed."""

from typing import NamedTuple

from shoal.protocol.wire.types import TopicPartition

__all__ = ["LogEnd", "LogEnds"]

MAX_PARTITIONS = 100_000
"""200 bytes each; above it all are forgotten, and asked for again."""


class LogEnd(NamedTuple):
    """The log has the offsets `start` to `end` (exclusive). `covered`: there is nothing more of the source below."""

    start: int
    end: int
    covered: int


class LogEnds:
    def __init__(self, *, most: int = MAX_PARTITIONS) -> None:
        self._most = most
        self._known: dict[TopicPartition, LogEnd] = {}

    def of(self, partition: TopicPartition) -> LogEnd | None:
        return self._known.get(partition)

    def learn(self, partition: TopicPartition, known: LogEnd) -> None:
        if len(self._known) >= self._most:
            self._known.clear()
        self._known[partition] = known

    def forget(self, partition: TopicPartition) -> None:
        self._known.pop(partition, None)

    def forget_topic(self, topic: str) -> None:
        for partition in [partition for partition in self._known if partition.topic == topic]:
            del self._known[partition]
