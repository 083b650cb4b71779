"""Names of the topics in a request. Shoal identifies a topic by name; newer clients send its id (Fetch, Produce v13).

During a rolling upgrade a producer sends the id to one broker and the name to the next. If Shoal used whichever the
request has, a partition would have two ledgers, two sequences and two locks, and would not recognise a retry.

A client that learnt ids before a restart of Shoal need not request metadata, so Shoal requests it over its connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.protocol.messages.metadata import encode_metadata_request, read_metadata_response
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.connection.pending import blaming_the_broker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.protocol.wire.types import Topic
    from shoal.proxy.connection.connection import Connection

__all__ = ["Naming", "learn_names", "topic_name", "topic_partition", "unknown_ids"]

_METADATA_VERSION = 12  # the oldest with requests by topic id; a broker with Fetch v13 or Produce v13 has it


def topic_name(connection: Connection, topic: Topic) -> str | None:
    return connection.cluster.topic_name(topic) if isinstance(topic, bytes) else topic


def topic_partition(connection: Connection, topic: Topic, partition: int) -> TopicPartition | None:
    """None: the name is unknown."""
    name = topic_name(connection, topic)
    return None if name is None else TopicPartition(name, partition)


def unknown_ids(connection: Connection, topics: Iterable[Topic]) -> list[Topic]:
    return list({topic for topic in topics if topic_name(connection, topic) is None})


async def learn_names(connection: Connection, client_id: str | None, unknown: list[Topic]) -> None:
    """Ask the broker for the names; some may remain unknown. Raises UpstreamLost and UpstreamFault."""
    answer = await connection.broker.ask([encode_metadata_request(_METADATA_VERSION, 0, client_id, unknown)])
    with blaming_the_broker():
        connection.cluster.learn(read_metadata_response(answer, _METADATA_VERSION))


class Naming:
    """The topics of one Produce request: names inside Shoal; to broker and client, whatever the client sent.

    An id that the cluster does not know gets a name that no topic can have (`unknown`): nothing may be stored or sent
    under it. The same applies to a second id of one name: one of the two belongs to a deleted topic.
    """

    def __init__(self, connection: Connection, topics: Iterable[Topic]) -> None:
        self._names: dict[bytes, str] = {}
        self._topics: dict[str, bytes] = {}
        self.unknown = set[str]()
        for topic in topics:
            if not isinstance(topic, bytes) or topic in self._names:
                continue
            name = topic_name(connection, topic)
            if name is None or name in self._topics:
                name = f"<id {topic.hex()}>"
                self.unknown.add(name)
            self._names[topic], self._topics[name] = name, topic

    @classmethod
    async def learn(cls, connection: Connection, client_id: str | None, topics: list[Topic]) -> Naming:
        unknown = unknown_ids(connection, topics)
        if unknown:
            await learn_names(connection, client_id, unknown)
        return cls(connection, topics)

    def target(self, topic: Topic, partition: int) -> TopicPartition:
        """Raises RemoteProtocolError for an id that the request does not have."""
        name = self._names.get(topic) if isinstance(topic, bytes) else topic
        if name is None:
            raise RemoteProtocolError(f"a topic that the request does not have: id {topic!r}")
        return TopicPartition(name, partition)

    def said(self, target: TopicPartition) -> Topic:
        return self._topics.get(target.topic, target.topic)
