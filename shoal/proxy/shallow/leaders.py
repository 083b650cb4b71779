"""Who leads the partitions of a cluster of a pair, where their logs begin and end, and their records."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import trio

from shoal.protocol.messages.fetch import OWN_VERSION, encode_fetch_request, read_fetch_response
from shoal.protocol.messages.list_offsets import EARLIEST, LATEST, encode_list_offsets, read_list_offsets
from shoal.protocol.wire.error_codes import ErrorCode, error_name
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.cluster.brokers import ANSWER_SECONDS, Brokers, NoAnswer
from shoal.proxy.cluster.cluster import CLIENT_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shoal.protocol.messages.fetch import FetchedPartition
    from shoal.proxy.cluster.cluster import Cluster

__all__ = ["Ends", "Leaders"]

_METADATA_SECONDS = 5.0
_MISSING = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})
_ENDS_AT_ONCE = 5000  # partitions of one request
_QUOTA_SECONDS = 60.0  # without a record: Kafka gives a client at its quota some every 30 s
_QUOTA_PAUSE = 0.5


class Ends(NamedTuple):
    """`start` -1: unknown."""

    start: int
    end: int


class Leaders(Brokers):
    """`hidden`: topics of which the cluster does not say whether they exist: Shoal must not describe them, and such."""

    hidden: frozenset[str] = frozenset()

    def __init__(self, cluster: Cluster, *, client_id: str = CLIENT_ID, patience: float = ANSWER_SECONDS) -> None:
        super().__init__(cluster, client_id=client_id, patience=patience)
        self._leaders: Mapping[TopicPartition, int] = {}
        self._asked_at = float("-inf")

    def ask_again(self) -> None:
        """What was learnt may be old."""
        self._asked_at = float("-inf")

    async def exchange(self, node_id: int | None, request: bytes) -> bytes:
        try:
            return await super().exchange(node_id, request)
        except NoAnswer:
            self.ask_again()
            raise

    # -- leaders -----------------------------------------------------------------------------------------------------

    async def learn(self, topics: Iterable[str]) -> frozenset[str] | None:
        """Topic ids and leaders, at most every 5 s -> the topics that do not exist; None: not asked.

        Raises NoAnswer.
        """
        wanted = sorted(set(topics))
        if trio.current_time() - self._asked_at < _METADATA_SECONDS:
            return None
        found = await self.topics(wanted)
        self._asked_at = trio.current_time()
        self._leaders = found.leaders
        self.hidden = frozenset(topic.name for topic in found.topics.values() if topic.error_code not in _MISSING)
        return frozenset(wanted) - {topic for topic, _ in self._leaders}

    def partitions(self, topic: str) -> list[TopicPartition]:
        """As far as they are known."""
        return [partition for partition in self._leaders if partition.topic == topic]

    def has(self, partition: TopicPartition) -> bool:
        """It exists, perhaps without a leader."""
        return partition in self._leaders

    def leader(self, partition: TopicPartition) -> int | None:
        """None: it is unknown, or there is none now."""
        node_id = self._leaders.get(partition, -1)
        return node_id if node_id in self.addresses else None

    def by_leader(self, partitions: Iterable[TopicPartition]) -> Mapping[int, list[TopicPartition]]:
        """Without those that have none."""
        found: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for partition in partitions:
            if (node_id := self.leader(partition)) is not None:
                found[node_id].append(partition)
        return found

    # -- the ends of logs --------------------------------------------------------------------------------------------

    async def ends(self, partitions: Iterable[TopicPartition], *, read_committed: bool) -> dict[TopicPartition, Ends]:
        """Where the logs of those that have a leader begin and end. Raises NoAnswer if no leader answers."""
        wanted = list(partitions)
        if any(self.leader(partition) is None for partition in wanted):
            self.ask_again()
        found: dict[TopicPartition, Ends] = {}
        failures = []
        for node_id, led in self.by_leader(wanted).items():
            for at in range(0, len(led), _ENDS_AT_ONCE):
                try:
                    found |= await self._ends(node_id, led[at : at + _ENDS_AT_ONCE], int(read_committed))
                except NoAnswer as error:
                    failures.append(error)
                    break
        if failures and not found:
            raise failures[0]
        return found

    async def _ends(
        self, node_id: int, partitions: list[TopicPartition], isolation_level: int
    ) -> dict[TopicPartition, Ends]:
        """ListOffsets, twice. Raises NoAnswer."""
        ends: list[dict[TopicPartition, int]] = []
        for timestamp in (LATEST, EARLIEST):
            request = encode_list_offsets(
                self.client_id, partitions, timestamp=timestamp, isolation_level=isolation_level
            )
            try:
                listed = read_list_offsets(await self.exchange(node_id, request))
            except RemoteProtocolError as error:
                raise NoAnswer(str(error)) from error
            if any(answered.error_code for answered in listed):
                self.ask_again()  # the leader has moved, most likely
            ends.append(
                {
                    TopicPartition(answered.topic, answered.partition): answered.offset
                    for answered in listed
                    if not answered.error_code
                }
            )
        latest, earliest = ends
        return {partition: Ends(earliest.get(partition, -1), end) for partition, end in latest.items() if end >= 0}

    # -- records -----------------------------------------------------------------------------------------------------

    async def fetch(
        self, leader: int, partition: TopicPartition, offset: int, max_bytes: int, *, read_committed: bool = False
    ) -> tuple[bytes, FetchedPartition]:
        """Records from this offset on -> the frame, and the answer for the partition, which may have an error.

        As long as the client is over its quota, the broker is asked again. Raises NoAnswer.
        """
        request = encode_fetch_request(
            self.client_id, *partition, offset, max_bytes=max_bytes, read_committed=read_committed
        )
        until = trio.current_time() + _QUOTA_SECONDS
        while True:
            frame = await self.exchange(leader, request)
            try:
                fetched = read_fetch_response(frame, OWN_VERSION)
            except RemoteProtocolError as error:
                raise NoAnswer(str(error)) from error
            if not fetched.is_over_quota:
                break
            pause = max(fetched.throttle_ms / 1000, _QUOTA_PAUSE)  # the broker reads nothing before
            left = until - trio.current_time()
            await trio.sleep(min(pause, max(left, 0)))
            if pause >= left:
                self._drop(leader)  # over a new connection it answers at once
                quotas = f"the quotas of client id {self.client_id} (consumer_byte_rate, request_percentage)"
                raise NoAnswer(f"it gives nothing: raise {quotas}")
        if fetched.error_code:
            raise NoAnswer(error_name(fetched.error_code))
        answered = [row for row in fetched.partitions if (row.topic, row.partition) == partition]
        if len(answered) != 1:
            raise NoAnswer(f"an answer about {len(fetched.partitions)} partitions, not about {partition.topic}")
        return frame, answered[0]
