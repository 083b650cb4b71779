"""Old questions in newer words: ListOffsets v0, OffsetCommit v0-v1, OffsetFetch v0-v1, and the topic requests of old admin clients.

A conversation is a generator: it is started with the old request's values, yields requests in the version of `BECOMES`, is sent their
answers, and returns the old answer's values. So there may be more than one question, and whoever carries them knows nothing of
their meaning. Values are those of schema/decomposer.py and schema/composer.py. Error codes are the broker's: `errors.py` makes old ones of them
(in the answer of a conversation, at every `ErrorCode`).

ListOffsets v0 asked for up to `MaxNumOffsets` offsets, the newest first, of segments whose files were last written before a time
(`UnifiedLog.legacyFetchOffsetsBefore` of 3.9). A broker of 4.x does not tell where segments begin. So the answer has the offset
that v1 finds (the first record at or after the time; the end of the log where there is none), and, if more than one
was asked for, the start of the log. What lies before it is older than was asked; an old broker gave the start of a segment, which may
be long before it.

OffsetCommit v0 and OffsetFetch v0 meant offsets in ZooKeeper. Here they are those of the group in Kafka, as in v1: brokers of 4.x
have no other place. A partition without an offset is UNKNOWN_TOPIC_OR_PARTITION in v0 and -1 without an error in v1, as ever.
OffsetFetch below v2 has no error of the group. Brokers up to 4.0 then leave out the partitions, which a client takes for
offsets that were never committed, and starts from the beginning or the end; it is asked in v2, and the error is said for each partition.

CommitTimestamp (OffsetCommit v1) is dropped: it moved the time at which an offset expires, which the broker's own retention now decides.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.composer import Values
from shoal.protocol.wire.error_codes import ErrorCode

__all__ = ["TRANSLATIONS", "Conversation", "error_codes", "say_errors"]

Conversation = Callable[[int, dict[str, Any]], Generator[Values, dict[str, Any], dict[str, Any]]]
"""(old version, values of the request) -> questions out, answers in, and the old answer's values at the end."""

_LATEST: Final = -1
_EARLIEST: Final = -2
_NOT_FOUND: Final = -1
_NO_OFFSET: Final = -1
_DEFAULT_CONFIG: Final = 5  # ConfigSource of a value that nobody has set (DescribeConfigsResponse.ConfigSource)

Key = tuple[str, int]
_Said = dict[Key, dict[str, Any]]


def _same(_: int, request: dict[str, Any]) -> Generator[Values, dict[str, Any], dict[str, Any]]:
    """Where the newer version only has fields more, with defaults that mean the same."""
    answer = yield request
    return answer


# ListOffsets


def _list_offsets(_: int, request: dict[str, Any]) -> Generator[Values, dict[str, Any], dict[str, Any]]:
    asked = [(topic, one) for topic in request["Topics"] for one in topic["Partitions"]]
    replica = request["ReplicaId"]
    wanted = [((topic["Name"], one["PartitionIndex"]), one) for topic, one in asked if _is_valid(one)]
    found = yield from _ask_offsets(replica, [(key, one["Timestamp"]) for key, one in wanted])
    beyond = [key for key, one in wanted if one["Timestamp"] >= 0 and _is_beyond(found.get(key))]
    ends = yield from _ask_offsets(replica, [(key, _LATEST) for key in beyond])
    several = [key for key, one in wanted if one["MaxNumOffsets"] > 1 and one["Timestamp"] != _EARLIEST]
    starts = yield from _ask_offsets(replica, [(key, _EARLIEST) for key in several])
    return {
        "Topics": [
            {
                "Name": topic["Name"],
                "Partitions": [_old_offsets(topic["Name"], one, found | ends, starts) for one in topic["Partitions"]],
            }
            for topic in request["Topics"]
        ]
    }


def _is_valid(one: Mapping[str, Any]) -> bool:
    return bool(one["Timestamp"] >= _EARLIEST and one["MaxNumOffsets"] >= 0)


def _is_beyond(said: dict[str, Any] | None) -> bool:
    return said is not None and not said["ErrorCode"] and said["Offset"] == _NOT_FOUND


def _ask_offsets(replica: int, wanted: list[tuple[Key, int]]) -> Generator[Values, dict[str, Any], _Said]:
    """One question for all, and none for nobody. (A partition that is asked for twice is refused by the broker.)"""
    if not wanted:
        return {}
    topics: dict[str, list[Values]] = {}
    for (name, partition), timestamp in wanted:
        topics.setdefault(name, []).append({"PartitionIndex": partition, "Timestamp": timestamp})
    answer = yield {"ReplicaId": replica, "Topics": [{"Name": name, "Partitions": of} for name, of in topics.items()]}
    return {(topic["Name"], one["PartitionIndex"]): one for topic in answer["Topics"] for one in topic["Partitions"]}


def _old_offsets(name: str, one: Mapping[str, Any], found: _Said, starts: _Said) -> dict[str, Any]:
    partition = one["PartitionIndex"]
    code, offsets = _offsets(one, found.get((name, partition)), starts.get((name, partition)))
    return {"PartitionIndex": partition, "ErrorCode": code, "OldStyleOffsets": offsets}


def _offsets(
    one: Mapping[str, Any], said: dict[str, Any] | None, start: dict[str, Any] | None
) -> tuple[int, list[int]]:
    if one["Timestamp"] < _EARLIEST:
        return ErrorCode.UNSUPPORTED_VERSION, []
    if said is None:  # or asked for fewer than none
        return ErrorCode.UNKNOWN_SERVER_ERROR, []
    if code := said["ErrorCode"] or (start or {}).get("ErrorCode", 0):
        return code, []
    offsets = [said["Offset"]] if said["Offset"] >= 0 else []
    if start is not None and 0 <= start["Offset"] < said["Offset"]:
        offsets.append(start["Offset"])
    return ErrorCode.NONE, offsets[: one["MaxNumOffsets"]]


# OffsetCommit, OffsetFetch


def _offset_commit(version: int, request: dict[str, Any]) -> Generator[Values, dict[str, Any], dict[str, Any]]:
    member = {} if version else {"GenerationIdOrMemberEpoch": -1}
    answer = yield {**request, **member, "RetentionTimeMs": -1}
    return answer


def _offset_fetch(version: int, request: dict[str, Any]) -> Generator[Values, dict[str, Any], dict[str, Any]]:
    answer = yield request
    said = {(topic["Name"], one["PartitionIndex"]): one for topic in answer["Topics"] for one in topic["Partitions"]}
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
"""By API: for all its versions below `BECOMES`."""


def say_errors(values: dict[str, Any], say: Callable[[int], int]) -> None:
    """Replace every `ErrorCode` in an answer, however deep, by what `say` makes of it."""
    for struct in _structs(values):
        if "ErrorCode" in struct:
            struct["ErrorCode"] = say(struct["ErrorCode"])


def error_codes(values: dict[str, Any]) -> set[int]:
    """All that an answer has, 0 among them."""
    return {struct["ErrorCode"] for struct in _structs(values) if "ErrorCode" in struct}


def _structs(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield values
    for value in values.values():
        if isinstance(value, list):
            for element in value:
                if isinstance(element, dict):
                    yield from _structs(element)
