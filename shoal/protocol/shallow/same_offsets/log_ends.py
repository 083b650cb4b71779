"""Where the copies end that an unwrapping listener writes to: asked from each leader, then followed.

Each connection asks for itself: it may lead to another broker, or to the same one after a restart, and a broker without
the agent would append a batch with the offset 0 again, as an ordinary one.
"""

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
        self._asked: dict[TopicPartition, int] = {}  # the number of the connection

    def must_ask(self, partition: TopicPartition, connection: int) -> bool:
        return partition not in self._known or self._asked.get(partition) != connection

    def asked(self, partition: TopicPartition, known: LogEnd, connection: int) -> None:
        """The leader has answered on this connection."""
        self.learn(partition, known)
        self._asked[partition] = connection

    def of(self, partition: TopicPartition) -> LogEnd | None:
        return self._known.get(partition)

    def learn(self, partition: TopicPartition, known: LogEnd) -> None:
        if len(self._known) >= self._most:
            self._known.clear()
            self._asked.clear()
        self._known[partition] = known

    def forget(self, partition: TopicPartition) -> None:
        self._known.pop(partition, None)
        self._asked.pop(partition, None)

    def forget_topic(self, topic: str) -> None:
        for partition in [partition for partition in self._known if partition.topic == topic]:
            self.forget(partition)
