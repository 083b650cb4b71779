"""Error codes for clients of Kafka 0.8-0.10: no code reaches a client that did not know it.

A client does with an unknown code what it does with -1 (UNKNOWN), and often that is the wrong thing: a moved partition should make it
ask for metadata, and a batch that it cannot be given should stop it. So a newer code becomes an older one that makes the client do
what the newer one means; where there is none, -1.

Who knew what: `common/protocol/Errors.java` of each release's tag; of 0.8.2 also `kafka/common/ErrorMapping.scala`, which has the codes 4, 8, 9, 11
and 14-16 that its Java producer lacks (it looks at none of them: its Metadata reader ignores errors of partitions).
The first release that speaks a version of an API (`Protocol.java` of each tag) is the one whose table counts, because an older table is a
part of each newer one; a connection that has shown more (`Release`) may be told more.

    56 KAFKA_STORAGE_ERROR            6  look for the leader again: what brokers did themselves for Fetch v0-v5 and Produce v0-v3
    72 LISTENER_NOT_FOUND             5  as brokers do below Metadata v6
    73 TOPIC_DELETION_DISABLED       42  as brokers do below DeleteTopics v3
    74, 75, 78 (leader epochs)        6  the partition is moving
    76 UNSUPPORTED_COMPRESSION_TYPE   2  brokers send 76, which Java 0.10 takes for -1: logged, and fetched again for ever; 2 is thrown
                                      (0.9 throws nothing but 29: legacy_reader.py)
    87 INVALID_RECORD                 2  what 0.10 brokers said, for example of a record without a key in a compacted topic
    88 UNSTABLE_OFFSET_COMMIT        14  ask again
    89 THROTTLING_QUOTA_EXCEEDED      7  ask again
    100, 103 (topic ids)              3  the topic was deleted, or made anew
    69, 79, 82 (members of groups)   25  join again
    110, 113 (epochs of members)     22  as brokers do below OffsetCommit v9
    44 POLICY_VIOLATION              42  to CreateTopics v0
    28 INVALID_COMMIT_OFFSET_SIZE    12
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from shoal.protocol.api import ApiKey

__all__ = ["SPOKEN", "UNKNOWN", "UNSUPPORTED_COMPRESSION_TYPE", "Release", "known", "newest_spoken", "spoken_since"]

UNKNOWN: Final = -1
CORRUPT_MESSAGE: Final = 2
UNSUPPORTED_COMPRESSION_TYPE: Final = 76


class Release(IntEnum):
    """Releases that brought new versions of what old clients speak; the value is the newest error code of each."""

    V0_8_2 = 20  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
    V0_9 = 31  # CLUSTER_AUTHORIZATION_FAILED
    V0_10_0 = 35  # UNSUPPORTED_VERSION
    V0_10_1 = 43  # UNSUPPORTED_FOR_MESSAGE_FORMAT
    V0_10_2 = 44  # POLICY_VIOLATION
    V0_11 = 55  # OPERATION_NOT_ATTEMPTED

    def __str__(self) -> str:
        return self.name[1:].replace("_", ".")


_8, _9, _100, _101, _102, _11 = Release

SPOKEN: Final[Mapping[int, tuple[Release, ...]]] = MappingProxyType(
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
"""API -> the first release that speaks version 0, 1, ..., as far as 0.10.2 (and, of DescribeConfigs, 0.11) went."""

_SAID_AS: Final[Mapping[int, int]] = MappingProxyType(
    {
        28: 12,
        44: 42,
        56: 6,
        69: 25,
        72: 5,
        73: 42,
        74: 6,
        75: 6,
        UNSUPPORTED_COMPRESSION_TYPE: CORRUPT_MESSAGE,
        78: 6,
        79: 25,
        82: 25,
        87: CORRUPT_MESSAGE,
        88: 14,
        89: 7,
        100: 3,
        103: 3,
        110: 22,
        113: 22,
    }
)


def spoken_since(api_key: int, version: int) -> Release | None:
    """The oldest client that sends this version; None: newer than all that are listed."""
    releases = SPOKEN.get(api_key, ())
    return releases[version] if 0 <= version < len(releases) else None


def newest_spoken(api_key: int) -> int:
    """The newest version of an API that legacy clients speak; -1: none."""
    return len(SPOKEN.get(api_key, ())) - 1


def known(api_key: int, version: int, code: int, at_least: Release = Release.V0_8_2) -> int:
    """What is said in place of `code` to a client that speaks this version, and is known to be `at_least` that new.

    The code itself where the client knows it, or speaks a version that is no legacy client's.
    """
    since = spoken_since(api_key, version)
    if since is None:
        return code
    newest = max(since, at_least)
    if UNKNOWN <= code <= newest:
        return code
    other = _SAID_AS.get(code, UNKNOWN)
    return other if other <= newest else UNKNOWN
