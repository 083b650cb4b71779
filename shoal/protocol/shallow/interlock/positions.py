"""Which records each flow may have got raw: its position in every partition.

A flow may have read everything below its position: records below its first fetch offset, or below one to which it
jumps, may have been read earlier or elsewhere. Records in envelopes do not count, because they cannot come back as
plain records.
"""

from collections import deque

from shoal.protocol.shallow.interlock.flow import Fetched, Flow, FlowPartition
from shoal.protocol.wire.types import TopicPartition

__all__ = ["GONE_SECONDS", "Positions"]

# A mirror whose consumer has closed may still produce what it read. In Connect, producer.close() takes at most 30 s.
GONE_SECONDS = 60.0


class Positions:
    def __init__(self, most: int) -> None:
        self._most = most
        self._partitions: dict[TopicPartition, list[FlowPartition]] = {}
        self._gone: deque[tuple[float, Flow]] = deque()
        self.count = 0

    def enter(self, flow: Flow, topic_partition: TopicPartition) -> FlowPartition | None:
        """The flow in that partition; None: there are already `most`."""
        partition = flow.partitions.get(topic_partition)
        if partition is None and self.count < self._most:
            partition = flow.partitions[topic_partition] = FlowPartition(flow)
            self._partitions.setdefault(topic_partition, []).append(partition)
            self.count += 1
        return partition

    def others(self, flow: Flow, topic_partition: TopicPartition) -> int:
        """Another flow may have got records below this offset."""
        return max(
            (other.raw for other in self._partitions.get(topic_partition, ()) if other.flow is not flow), default=0
        )

    def is_behind(self, flow: Flow, read: Fetched) -> bool:
        """True if another connected flow is ahead."""
        return any(
            partition.raw > read.fetch_offset and partition.flow is not flow and partition.flow.connections
            for partition in self._partitions.get(read.topic_partition, ())
        )

    def leave(self, flow: Flow, now: float) -> None:
        """The flow's last connection has closed. Its partitions count for another GONE_SECONDS."""
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
