"""Error codes for clients of Kafka 0.8-0.10: a client receives only codes that it knows.

A client treats an unknown code like -1 (UNKNOWN), which is often wrong: a moved partition should make it refresh
metadata, and an unreadable batch should stop it. So a newer code becomes an older one with the same effect on the
client; if there is none, -1.

Sources: `common/protocol/Errors.java` of each release's tag; for 0.8.2 also `kafka/common/ErrorMapping.scala`, which
has the codes 4, 8, 9, 11 and 14-16 that its Java producer lacks (it reads none of them: its Metadata reader ignores
partition errors). The table of the first release that supports an API version (`Protocol.java` of each tag) applies,
because each newer table contains the older ones; a connection that has shown a newer `Release` may get more codes.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from shoal.protocol.schema.api import ApiKey
from shoal.protocol.wire.error_codes import ErrorCode

__all__ = ["CLIENT_VERSIONS", "Release", "downgrade_error", "newest_spoken", "spoken_since"]


class Release(IntEnum):
    """Releases with new versions of the APIs that old clients use; the value is the newest error code of each."""

    V0_8_2 = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    V0_9 = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    V0_10_0 = ErrorCode.UNSUPPORTED_VERSION
    V0_10_1 = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    V0_10_2 = ErrorCode.POLICY_VIOLATION
    V0_11 = ErrorCode.OPERATION_NOT_ATTEMPTED

    def __str__(self) -> str:
        return self.name[1:].replace("_", ".")


_8, _9, _100, _101, _102, _11 = Release

CLIENT_VERSIONS: Final[Mapping[int, tuple[Release, ...]]] = MappingProxyType(
    {
        ApiKey.PRODUCE: (_8, _9, _100),
        ApiKey.FETCH: (_8, _9, _100, _101),
        ApiKey.LIST_OFFSETS: (_8, _101),
        ApiKey.METADATA: (_8, _100, _101),
        ApiKey.OFFSET_COMMIT: (_8, _8, _9),
        ApiKey.OFFSET_FETCH: (_8, _8, _102),
        ApiKey.FIND_COORDINATOR: (_8,),
        ApiKey.JOIN_GROUP: (_9, _101),
        ApiKey.HEARTBEAT: (_9,),
        ApiKey.LEAVE_GROUP: (_9,),
        ApiKey.SYNC_GROUP: (_9,),
        ApiKey.DESCRIBE_GROUPS: (_9,),
        ApiKey.LIST_GROUPS: (_9,),
        ApiKey.SASL_HANDSHAKE: (_100,),
        ApiKey.API_VERSIONS: (_100,),
        ApiKey.CREATE_TOPICS: (_101, _102),
        ApiKey.DELETE_TOPICS: (_101,),
        ApiKey.DESCRIBE_CONFIGS: (_11,),
    }
)
"""API -> the first release that supports version 0, 1, ..., up to 0.10.2 (for DescribeConfigs, 0.11)."""

_SAID_AS: Final[Mapping[int, ErrorCode]] = MappingProxyType(
    {
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE: ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.POLICY_VIOLATION: ErrorCode.INVALID_REQUEST,  # to CreateTopics v0
        # Find the leader again: brokers do the same for Fetch v0-v5 and Produce v0-v3.
        ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.UNKNOWN_MEMBER_ID,  # join again
        ErrorCode.MEMBER_ID_REQUIRED: ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID: ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.LISTENER_NOT_FOUND: ErrorCode.LEADER_NOT_AVAILABLE,  # as brokers do below Metadata v6
        ErrorCode.TOPIC_DELETION_DISABLED: ErrorCode.INVALID_REQUEST,  # as brokers do below DeleteTopics v3
        ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,  # the partition is moving
        ErrorCode.UNKNOWN_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        # Brokers send 76, which Java 0.10 reads as -1: it logs the error and retries forever; on 2 it throws (0.9
        # throws only on 29: proxy/legacy/session.py).
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: ErrorCode.CORRUPT_MESSAGE,
        # The code of 0.10 brokers, for example for a record without a key in a compacted topic.
        ErrorCode.INVALID_RECORD: ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,  # retry
        ErrorCode.THROTTLING_QUOTA_EXCEEDED: ErrorCode.REQUEST_TIMED_OUT,  # retry
        ErrorCode.UNKNOWN_TOPIC_ID: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # the topic was deleted, or recreated
        ErrorCode.INCONSISTENT_TOPIC_ID: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION,  # as brokers do below OffsetCommit v9
        ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION,
    }
)


def spoken_since(api_key: int, version: int) -> Release | None:
    """The oldest client release that sends this version; None: newer than all listed."""
    releases = CLIENT_VERSIONS.get(api_key, ())
    return releases[version] if 0 <= version < len(releases) else None


def newest_spoken(api_key: int) -> int:
    """The newest version of an API that legacy clients use; -1: none."""
    return len(CLIENT_VERSIONS.get(api_key, ())) - 1


def downgrade_error(api_key: int, version: int, code: int, at_least: Release = Release.V0_8_2) -> int:
    """The replacement for `code`, for a client that uses this version and is at least of release `at_least`.

    `code` itself if the client knows it, or if the version is newer than legacy clients.
    """
    since = spoken_since(api_key, version)
    if since is None:
        return code
    newest = max(since, at_least)
    if ErrorCode.UNKNOWN_SERVER_ERROR <= code <= newest:
        return code
    other = _SAID_AS.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)
    return other if other <= newest else ErrorCode.UNKNOWN_SERVER_ERROR
