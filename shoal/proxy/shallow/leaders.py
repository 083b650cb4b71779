"""Shoal's own questions to a cluster of a pair: which broker leads a partition, and one connection to each broker.

With Shoal's credentials, or those that Shoal uses for the mirror. A cluster to which clients log in by themselves
answers no questions of Shoal's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from shoal.protocol.messages.metadata import read_metadata_response
from shoal.protocol.messages.topics import TOPICS_VERSION, encode_topics_request, read_topics
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.config.settings import Address
from shoal.proxy.net.broker_client import BrokerClient
from shoal.proxy.net.transport import PeerLost
from shoal.proxy.net.upstream import UpstreamUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shoal.protocol.wire.types import TopicPartition
    from shoal.proxy.cluster.cluster import Cluster

__all__ = ["CLIENT_ID", "Leaders", "NoAnswer"]

CLIENT_ID = "shoal"
_METADATA_SECONDS = 5.0
_MISSING = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})


class NoAnswer(Exception):
    """The cluster, or one of its brokers, did not answer; the message says why."""


class Leaders:
    """`hidden`: topics of which the cluster does not say whether they exist: Shoal must not describe them, and such."""

    hidden: frozenset[str] = frozenset()

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._credentials: str | None = None
        self._clients: dict[int | None, BrokerClient] = {}  # None: a bootstrap broker
        self._addresses: dict[int, Address] = {}
        self._leaders: Mapping[TopicPartition, int] = {}
        self._asked_at = float("-inf")

    @property
    def has_credentials(self) -> bool:
        return self._credentials is not None

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

    async def learn(self, topics: Iterable[str]) -> frozenset[str] | None:
        """Topic ids and leaders, at most every 5 s -> the topics that do not exist; None: not asked.

        Raises NoAnswer.
        """
        wanted = sorted(set(topics))
        if trio.current_time() - self._asked_at < _METADATA_SECONDS:
            return None
        frame = await self.exchange(None, encode_topics_request(CLIENT_ID, wanted))
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

    async def exchange(self, node_id: int | None, request: bytes) -> bytes:
        """With this broker; None: a bootstrap broker. Raises NoAnswer."""
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
