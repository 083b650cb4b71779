"""Shoal's own questions to a cluster of a pair: who leads a partition, where its log begins and ends, its records.

With Shoal's credentials, or those that Shoal uses for the mirror, over one connection to each broker. A cluster to
which clients log in by themselves answers no questions of Shoal's.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import trio

from shoal.protocol.messages.fetch import OWN_VERSION, encode_fetch_request, read_fetch_response
from shoal.protocol.messages.list_offsets import EARLIEST, LATEST, encode_list_offsets, read_list_offsets
from shoal.protocol.messages.metadata import read_metadata_response
from shoal.protocol.messages.topics import TOPICS_VERSION, encode_topics_request, read_topics
from shoal.protocol.wire.error_codes import ErrorCode, error_name
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.config.settings import Address
from shoal.proxy.net.broker_client import BrokerClient
from shoal.proxy.net.transport import PeerLost
from shoal.proxy.net.upstream import UpstreamUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shoal.protocol.messages.fetch import FetchedPartition
    from shoal.proxy.cluster.cluster import Cluster

__all__ = ["CLIENT_ID", "Ends", "Leaders", "NoAnswer"]

CLIENT_ID = "shoal"
_ANSWER_SECONDS = 30.0  # so that a broker that hangs is asked anew
_METADATA_SECONDS = 5.0
_MISSING = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})
_ENDS_AT_ONCE = 5000  # partitions of one request
_QUOTA_SECONDS = 60.0  # without a record: Kafka gives a client at its quota some every 30 s
_QUOTA_PAUSE = 0.5


class NoAnswer(Exception):
    """The cluster, or one of its brokers, did not answer; the message says why."""


class Ends(NamedTuple):
    """`start` -1: unknown."""

    start: int
    end: int


class Leaders:
    """`hidden`: topics of which the cluster does not say whether they exist: Shoal must not describe them, and such."""

    hidden: frozenset[str] = frozenset()

    def __init__(self, cluster: Cluster, *, client_id: str = CLIENT_ID) -> None:
        self._cluster = cluster
        self._client_id = client_id
        self._credentials: str | None = None
        self._clients: dict[int | None, BrokerClient] = {}  # None: a bootstrap broker
        self._addresses: dict[int, Address] = {}
        self._leaders: Mapping[TopicPartition, int] = {}
        self._asked_at = float("-inf")

    @property
    def must_log_in(self) -> bool:
        """Only the mirror itself can ask: the cluster demands a login, and Shoal has none."""
        return self._cluster.demands_login and not self._cluster.has_principal and self._credentials is None

    def use(self, credentials: str | None) -> None:
        """Those of the mirror's latest connection, by name."""
        if credentials != self._credentials:
            self._credentials = credentials
            self.close()

    def ask_again(self) -> None:
        """What was learnt may be old."""
        self._asked_at = float("-inf")

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    # -- leaders -----------------------------------------------------------------------------------------------------

    async def learn(self, topics: Iterable[str]) -> frozenset[str] | None:
        """Topic ids and leaders, at most every 5 s -> the topics that do not exist; None: not asked.

        Raises NoAnswer.
        """
        wanted = sorted(set(topics))
        if trio.current_time() - self._asked_at < _METADATA_SECONDS:
            return None
        frame = await self.exchange(None, encode_topics_request(self._client_id, wanted))
        try:
            metadata, found = read_metadata_response(frame, TOPICS_VERSION), read_topics(frame)
        except RemoteProtocolError as error:
            raise NoAnswer(str(error)) from error
        self._asked_at = trio.current_time()
        self._cluster.learn(metadata)
        self._addresses = {node_id: Address(host, port) for node_id, host, port in metadata.brokers}
        self._leaders = found.leaders
        for node_id in [node_id for node_id in self._clients if node_id not in (None, *self._addresses)]:
            if self._is_idle(node_id):
                self._drop(node_id)
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
        return node_id if node_id in self._addresses else None

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
                self._client_id, partitions, timestamp=timestamp, isolation_level=isolation_level
            )
            try:
                listed = read_list_offsets(await self.exchange(node_id, request))
            except RemoteProtocolError as error:
                raise NoAnswer(str(error)) from error
            if any(one.error_code for one in listed):
                self.ask_again()  # the leader has moved, most likely
            ends.append({TopicPartition(one.topic, one.partition): one.offset for one in listed if not one.error_code})
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
            self._client_id, *partition, offset, max_bytes=max_bytes, read_committed=read_committed
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
                quotas = f"the quotas of client id {self._client_id} (consumer_byte_rate, request_percentage)"
                raise NoAnswer(f"it gives nothing: raise {quotas}")
        if fetched.error_code:
            raise NoAnswer(error_name(fetched.error_code))
        answered = [one for one in fetched.partitions if (one.topic, one.partition) == partition]
        if len(answered) != 1:
            raise NoAnswer(f"an answer about {len(fetched.partitions)} partitions, not about {partition.topic}")
        return frame, answered[0]

    # -- connections -------------------------------------------------------------------------------------------------

    async def exchange(self, node_id: int | None, request: bytes) -> bytes:
        """With this broker; None: a bootstrap broker. Raises NoAnswer, at the latest after 30 s."""
        client = self._clients.get(node_id)
        if client is not None and client.is_lost:
            client.close()
        if client is None:
            if node_id is not None and node_id not in self._addresses:
                raise NoAnswer(f"the address of broker {node_id} is not known")
            addresses = self._cluster.bootstrap if node_id is None else (self._addresses[node_id],)
            upstream = self._cluster.upstream_with(self._credentials)
            client = self._clients[node_id] = BrokerClient(lambda: upstream.connect(addresses), self._cluster.limits)
        try:
            with trio.fail_after(_ANSWER_SECONDS):
                return await self._answer(client, node_id, request)
        except trio.TooSlowError as error:
            raise NoAnswer(f"no answer within {_ANSWER_SECONDS:g} s") from error

    async def _answer(self, client: BrokerClient, node_id: int | None, request: bytes) -> bytes:
        try:
            return await client.exchange(request)
        except (UpstreamUnreachable, PeerLost, RemoteProtocolError) as error:
            self._drop(node_id)
            self._asked_at = float("-inf")
            raise NoAnswer(str(error)) from error
        except trio.Cancelled:
            self._cluster.did_not_answer(client.address)
            self._drop(node_id)
            raise

    def _is_idle(self, node_id: int | None) -> bool:
        """There is no request in flight to it."""
        return True

    def _drop(self, node_id: int | None) -> None:
        client = self._clients.pop(node_id, None)
        if client is not None:
            client.close()
