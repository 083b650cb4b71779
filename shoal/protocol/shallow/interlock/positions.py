"""Which records each flow may have been given raw: its position in every partition.

A position counts as given: records below a flow's first fetch offset, or below one that it jumps to, may have been read
earlier or elsewhere. What it was handed in envelopes does not count, since it cannot come back as plain records.
"""

from collections import deque

from shoal.protocol.shallow.interlock.flow import Fetched, Flow, FlowPartition
from shoal.protocol.wire.types import TopicPartition

__all__ = ["GONE_SECONDS", "Positions"]

# A mirror whose consumer has gone may still produce what it was given. producer.close() takes 30 s at most in Connect.
GONE_SECONDS = 60.0


class Positions:
    def __init__(self, most: int) -> None:
        self._most = most
        self._partitions: dict[TopicPartition, list[FlowPartition]] = {}
        self._gone: deque[tuple[float, Flow]] = deque()
        self.count = 0

    def enter(self, flow: Flow, topic_partition: TopicPartition) -> FlowPartition | None:
        """The flow in that partition; None: there are `most` already."""
        partition = flow.partitions.get(topic_partition)
        if partition is None and self.count < self._most:
            partition = flow.partitions[topic_partition] = FlowPartition(flow)
            self._partitions.setdefault(topic_partition, []).append(partition)
            self.count += 1
        return partition

    def others(self, flow: Flow, topic_partition: TopicPartition) -> int:
        """Records below this offset may have been given to another flow."""
        return max(
            (other.raw for other in self._partitions.get(topic_partition, ()) if other.flow is not flow), default=0
        )

    def is_behind(self, flow: Flow, read: Fetched) -> bool:
        """Has a flow that is still there read on?"""
        return any(
            partition.raw > read.fetch_offset and partition.flow is not flow and partition.flow.connections
            for partition in self._partitions.get(read.topic_partition, ())
        )

    def leave(self, flow: Flow, now: float) -> None:
        """The flow's last connection has closed. Its partitions count on for GONE_SECONDS."""
        self._gone.append((now, flow))

    def forget_gone(self, now: float) -> None:
        while self._gone and now >= self._gone[0][0] + GONE_SECONDS:
            flow = self._gone.popleft()[1]
            for key, partition in flow.partitions.items():
                self._partitions[key].remove(partition)
                if not self._partitions[key]:
                    del self._partitions[key]
            self.count -= len(flow.partitions)
            flow.partitions.clear()
