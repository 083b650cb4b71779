"""Older requests in newer versions: ListOffsets v0, OffsetCommit v0-v1, OffsetFetch v0-v1, and old admin clients'
topic requests.

A conversation is a generator: it is started with the old request's values, yields requests in the version of
`UPSTREAM_VERSION`, is sent their responses, and returns the old response's values. So it may send several requests, and
the caller that carries them need not understand them. Values are those of schema/decomposer.py and schema/composer.py.
Error codes are the broker's: `errors.py` replaces them (every `ErrorCode` in the result of a conversation).

ListOffsets v0 asked for up to `MaxNumOffsets` offsets, newest first, of segments last written before a time
(`UnifiedLog.legacyFetchOffsetsBefore` of 3.9). A 4.x broker does not expose segment boundaries. So the response has the
offset that v1 finds (the first record at or after the time; the log end if there is none), and, if more than one was
requested, the log start. Records before that offset are older than requested; an old broker returned the start of a
segment, which may be long before it.

OffsetCommit v0 and OffsetFetch v0 meant offsets in ZooKeeper. Here they are the group's offsets in Kafka, as in v1: 4.x
brokers have no other place. A partition without an offset is UNKNOWN_TOPIC_OR_PARTITION in v0 and -1 without an error
in v1, as before. OffsetFetch below v2 has no group error. Brokers up to 4.0 then leave out the partitions, and a client
takes that for offsets that were never committed, and starts from the beginning or the end. So Shoal sends v2, and
reports the error for each partition.

CommitTimestamp (OffsetCommit v1) is dropped: it changed when an offset expires, which the broker's own retention now
decides.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.composer import Values
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.types import TopicPartition

__all__ = ["TRANSLATIONS", "Conversation", "error_codes", "say_errors"]

Conversation = Callable[[int, dict[str, Any]], Generator[Values, dict[str, Any], dict[str, Any]]]
"""(old version, values of the request) -> yields requests, is sent responses, and returns the old response's values."""

_LATEST: Final = -1
_EARLIEST: Final = -2
_NOT_FOUND: Final = -1
_NO_OFFSET: Final = -1
_DEFAULT_CONFIG: Final = 5  # ConfigSource of a default value (DescribeConfigsResponse.ConfigSource)

_Said = dict[TopicPartition, dict[str, Any]]


def _same(_: int, request: dict[str, Any]) -> Generator[Values, dict[str, Any], dict[str, Any]]:
    """For newer versions that only add fields, whose defaults change nothing."""
    answer = yield request
    return answer


# ListOffsets


def _list_offsets(_: int, request: dict[str, Any]) -> Generator[Values, dict[str, Any], dict[str, Any]]:
    asked = [(topic, partition) for topic in request["Topics"] for partition in topic["Partitions"]]
    replica = request["ReplicaId"]
    wanted = [
        (TopicPartition(topic["Name"], partition["PartitionIndex"]), partition)
        for topic, partition in asked
        if _is_valid(partition)
    ]
    found = yield from _ask_offsets(replica, [(key, partition["Timestamp"]) for key, partition in wanted])
    beyond = [key for key, partition in wanted if partition["Timestamp"] >= 0 and _is_beyond(found.get(key))]
    ends = yield from _ask_offsets(replica, [(key, _LATEST) for key in beyond])
    several = [
        key for key, partition in wanted if partition["MaxNumOffsets"] > 1 and partition["Timestamp"] != _EARLIEST
    ]
    starts = yield from _ask_offsets(replica, [(key, _EARLIEST) for key in several])
    return {
        "Topics": [
            {
                "Name": topic["Name"],
                "Partitions": [
                    _old_offsets(topic["Name"], partition, found | ends, starts) for partition in topic["Partitions"]
                ],
            }
            for topic in request["Topics"]
        ]
    }


def _is_valid(wanted: Mapping[str, Any]) -> bool:
    return bool(wanted["Timestamp"] >= _EARLIEST and wanted["MaxNumOffsets"] >= 0)


def _is_beyond(said: dict[str, Any] | None) -> bool:
    return said is not None and not said["ErrorCode"] and said["Offset"] == _NOT_FOUND


def _ask_offsets(replica: int, wanted: list[tuple[TopicPartition, int]]) -> Generator[Values, dict[str, Any], _Said]:
    """One request for all partitions; none if there are no partitions. (The broker refuses a partition that occurs
    twice.)"""
    if not wanted:
        return {}
    topics: dict[str, list[Values]] = {}
    for (name, partition), timestamp in wanted:
        topics.setdefault(name, []).append({"PartitionIndex": partition, "Timestamp": timestamp})
    answer = yield {"ReplicaId": replica, "Topics": [{"Name": name, "Partitions": of} for name, of in topics.items()]}
    return {
        TopicPartition(topic["Name"], row["PartitionIndex"]): row
        for topic in answer["Topics"]
        for row in topic["Partitions"]
    }


def _old_offsets(name: str, wanted: Mapping[str, Any], found: _Said, starts: _Said) -> dict[str, Any]:
    partition = TopicPartition(name, wanted["PartitionIndex"])
    code, offsets = _offsets(wanted, found.get(partition), starts.get(partition))
    return {"PartitionIndex": partition.partition, "ErrorCode": code, "OldStyleOffsets": offsets}


def _offsets(
    wanted: Mapping[str, Any], said: dict[str, Any] | None, start: dict[str, Any] | None
) -> tuple[int, list[int]]:
    if wanted["Timestamp"] < _EARLIEST:
        return ErrorCode.UNSUPPORTED_VERSION, []
    if said is None:  # or a negative number was requested
        return ErrorCode.UNKNOWN_SERVER_ERROR, []
    if code := said["ErrorCode"] or (start or {}).get("ErrorCode", 0):
        return code, []
    offsets = [said["Offset"]] if said["Offset"] >= 0 else []
    if start is not None and 0 <= start["Offset"] < said["Offset"]:
        offsets.append(start["Offset"])
    return ErrorCode.NONE, offsets[: wanted["MaxNumOffsets"]]


# OffsetCommit, OffsetFetch


def _offset_commit(version: int, request: dict[str, Any]) -> Generator[Values, dict[str, Any], dict[str, Any]]:
    member = {} if version else {"GenerationIdOrMemberEpoch": -1}
    answer = yield {**request, **member, "RetentionTimeMs": -1}
    return answer


def _offset_fetch(version: int, request: dict[str, Any]) -> Generator[Values, dict[str, Any], dict[str, Any]]:
    answer = yield request
    said = {(topic["Name"], row["PartitionIndex"]): row for topic in answer["Topics"] for row in topic["Partitions"]}
    error_code = answer["ErrorCode"]
    return {
        "Topics": [
            {
                "Name": topic["Name"],
                "Partitions": [
                    _old_offset(version, index, said.get((topic["Name"], index)), error_code)
                    for index in topic["PartitionIndexes"]
                ],
            }
            for topic in request["Topics"]
        ]
    }


def _old_offset(version: int, partition: int, said: dict[str, Any] | None, error_code: int) -> dict[str, Any]:
    nothing = {"PartitionIndex": partition, "CommittedOffset": _NO_OFFSET, "Metadata": ""}
    if error_code:
        return {**nothing, "ErrorCode": error_code}
    if said is None:
        return {**nothing, "ErrorCode": ErrorCode.UNKNOWN_SERVER_ERROR}
    if version == 0 and not said["ErrorCode"] and said["CommittedOffset"] == _NO_OFFSET:
        return {**nothing, "ErrorCode": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    return said


# Configurations


def _describe_configs(_: int, request: dict[str, Any]) -> Generator[Values, dict[str, Any], dict[str, Any]]:
    answer = yield request
    for result in answer["Results"]:
        for config in result["Configs"]:
            config["IsDefault"] = config["ConfigSource"] == _DEFAULT_CONFIG
    return answer


TRANSLATIONS: Final[Mapping[int, Conversation]] = MappingProxyType(
    {
        ApiKey.LIST_OFFSETS: _list_offsets,
        ApiKey.OFFSET_COMMIT: _offset_commit,
        ApiKey.OFFSET_FETCH: _offset_fetch,
        ApiKey.CREATE_TOPICS: _same,
        ApiKey.DELETE_TOPICS: _same,
        ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    }
)
"""By API: for all its versions below `UPSTREAM_VERSION`."""


def say_errors(values: dict[str, Any], say: Callable[[int], int]) -> None:
    """Replace every `ErrorCode` in a response, at any depth, by `say(code)`."""
    for struct in _structs(values):
        if "ErrorCode" in struct:
            struct["ErrorCode"] = say(struct["ErrorCode"])


def error_codes(values: dict[str, Any]) -> set[int]:
    """All error codes in a response, including 0."""
    return {struct["ErrorCode"] for struct in _structs(values) if "ErrorCode" in struct}


def _structs(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield values
    for value in values.values():
        if isinstance(value, list):
            for element in value:
                if isinstance(element, dict):
                    yield from _structs(element)
