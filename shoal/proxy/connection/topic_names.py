"""What the topics of a request are called. Inside Shoal a topic is its name; newer clients say its id (Fetch v13, Produce v13).

While brokers are upgraded one by one, a producer says the id to one broker and the name to the next: a partition that was known by
what its request says would have two ledgers, two sequences and two locks, and a retry would find nothing.

A client that knows ids from before a restart of Shoal need not ask for metadata; so Shoal asks, over that client's connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.protocol.messages.metadata import encode_metadata_request, read_metadata_response
from shoal.protocol.shallow.unwrap.delivery import Target
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.connection.in_flight import blaming_the_broker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.protocol.wire.types import Topic
    from shoal.proxy.connection.connection import Connection

__all__ = ["Naming", "learn_names", "topic_name", "unknown_ids"]

_METADATA_VERSION = 12  # the oldest that can be asked for topic ids; a broker with Fetch v13 or Produce v13 has it


def topic_name(connection: Connection, topic: Topic) -> str | None:
    return connection.cluster.topic_name(topic) if isinstance(topic, bytes) else topic


def unknown_ids(connection: Connection, topics: Iterable[Topic]) -> list[Topic]:
    return list({topic for topic in topics if topic_name(connection, topic) is None})


async def learn_names(connection: Connection, client_id: str | None, unknown: list[Topic]) -> None:
    """Ask the broker for topics by their ids. What it does not know stays unknown. Raises UpstreamLost and UpstreamFault."""
    answer = await connection.ask([encode_metadata_request(_METADATA_VERSION, 0, client_id, unknown)])
    with blaming_the_broker():
        connection.cluster.learn(read_metadata_response(answer, _METADATA_VERSION))


class Naming:
    """The topics of one produce request: names inside, and in requests to the broker and the answer what the client said.

    An id that the cluster does not know gets a name that no topic can have (`unknown`): nothing may be kept or sent under it.
    Nor under a second id of one name: one of them is of a topic that is gone.
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

    def target(self, topic: Topic, partition: int) -> Target:
        """Raises RemoteProtocolError for an id that the request does not have."""
        name = self._names.get(topic) if isinstance(topic, bytes) else topic
        if name is None:
            raise RemoteProtocolError(f"a topic that the request does not have: id {topic!r}")
        return Target(name, partition)

    def said(self, target: Target) -> Topic:
        return self._topics.get(target.topic, target.topic)
