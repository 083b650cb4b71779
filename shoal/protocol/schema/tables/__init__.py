"""Tables of the messages that Shoal reads or edits, up to their versions in Kafka 4.3."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from shoal.protocol.schema.language import Message
from shoal.protocol.schema.tables import cluster, fetch, groups, produce, quorum, session, share, tokens, topics

__all__ = ["MESSAGES"]

_TABLES = (
    session.REQUEST_HEADER,
    session.RESPONSE_HEADER,
    session.API_VERSIONS_REQUEST,
    session.API_VERSIONS_RESPONSE,
    session.SASL_HANDSHAKE_REQUEST,
    session.SASL_HANDSHAKE_RESPONSE,
    session.SASL_AUTHENTICATE_REQUEST,
    session.SASL_AUTHENTICATE_RESPONSE,
    cluster.METADATA_REQUEST,
    cluster.METADATA_RESPONSE,
    cluster.FIND_COORDINATOR_REQUEST,
    cluster.FIND_COORDINATOR_RESPONSE,
    cluster.DESCRIBE_CLUSTER_REQUEST,
    cluster.DESCRIBE_CLUSTER_RESPONSE,
    fetch.FETCH_REQUEST,
    fetch.FETCH_RESPONSE,
    produce.PRODUCE_REQUEST,
    produce.PRODUCE_RESPONSE,
    produce.INIT_PRODUCER_ID_REQUEST,
    produce.INIT_PRODUCER_ID_RESPONSE,
    share.SHARE_FETCH_REQUEST,
    share.SHARE_FETCH_RESPONSE,
    share.SHARE_ACKNOWLEDGE_REQUEST,
    share.SHARE_ACKNOWLEDGE_RESPONSE,
    quorum.DESCRIBE_QUORUM_REQUEST,
    quorum.DESCRIBE_QUORUM_RESPONSE,
    tokens.CREATE_DELEGATION_TOKEN_RESPONSE,
    tokens.DESCRIBE_DELEGATION_TOKEN_RESPONSE,
    topics.CREATE_TOPICS_REQUEST,
    topics.CREATE_TOPICS_RESPONSE,
    topics.DELETE_TOPICS_REQUEST,
    topics.DELETE_TOPICS_RESPONSE,
    topics.LIST_OFFSETS_REQUEST,
    topics.LIST_OFFSETS_RESPONSE,
    topics.DESCRIBE_CONFIGS_REQUEST,
    topics.DESCRIBE_CONFIGS_RESPONSE,
    topics.INCREMENTAL_ALTER_CONFIGS_REQUEST,
    topics.INCREMENTAL_ALTER_CONFIGS_RESPONSE,
    topics.DELETE_RECORDS_REQUEST,
    topics.DELETE_RECORDS_RESPONSE,
    groups.LIST_GROUPS_REQUEST,
    groups.LIST_GROUPS_RESPONSE,
    groups.OFFSET_COMMIT_REQUEST,
    groups.OFFSET_COMMIT_RESPONSE,
    groups.OFFSET_FETCH_REQUEST,
    groups.OFFSET_FETCH_RESPONSE,
)

MESSAGES: Final[Mapping[str, Message]] = MappingProxyType({table.name: table for table in _TABLES})
"""Tables by Kafka's message name (`FetchResponse`)."""
