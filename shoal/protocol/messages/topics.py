"""Metadata v10: the ids of topics, and the leaders of their partitions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from shoal.protocol.messages.metadata import Broker, encode_metadata_request
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import response_body
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Rows, Walkers
from shoal.protocol.wire.types import Buffer, TopicPartition

__all__ = ["TOPICS_VERSION", "ListedTopic", "Topics", "encode_topics_request", "read_topics"]

TOPICS_VERSION: Final = 10  # with topic ids, known to all brokers since 2.8


class ListedTopic(NamedTuple):
    error_code: int
    name: str
    topic_id: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """`leaders`: -1 if a partition has none now."""

    brokers: tuple[Broker, ...]
    topics: Mapping[str, ListedTopic]
    leaders: Mapping[TopicPartition, int]


_RESPONSE = Walkers(
    MESSAGES["MetadataResponse"],
    (),
    Rows("Brokers", ("NodeId", "Host", "Port"), Broker),
    Rows("Topics", ("ErrorCode", "Name", "TopicId"), ListedTopic),
    Rows("Topics.Partitions", ("Name", "PartitionIndex", "LeaderId")),
)


def encode_topics_request(client_id: str, topics: Sequence[str]) -> bytes:
    return encode_metadata_request(TOPICS_VERSION, 0, client_id, topics)


def read_topics(frame: Buffer) -> Topics:
    """A whole answer frame. Raises RemoteProtocolError."""
    brokers, topics, partitions = _RESPONSE[TOPICS_VERSION](
        frame, response_body(frame, ApiKey.METADATA, TOPICS_VERSION), len(frame)
    )
    return Topics(
        brokers=tuple(brokers),
        topics={topic.name: topic for topic in topics},
        leaders={TopicPartition(name, index): leader for name, index, leader in partitions},
    )
