"""Translations: old requests in newer versions, and old responses from the broker's newer ones."""

from typing import Any

import pytest

from shoal.protocol.legacy.errors import CLIENT_VERSIONS, newest_spoken
from shoal.protocol.legacy.translate import TRANSLATIONS, say_errors
from shoal.protocol.legacy.versions import UPSTREAM_VERSION
from shoal.protocol.schema.api import API, ApiKey
from shoal.protocol.schema.composer import compose
from shoal.protocol.schema.decomposer import decompose
from shoal.protocol.schema.tables import MESSAGES

Offsets = dict[tuple[str, int, int], tuple[int, int]]
"""(topic, partition, timestamp) -> (error code, offset)."""


def over_the_wire(name: str, version: int, values: Any) -> dict[str, Any]:
    """The values that the other side decodes."""
    body = compose(MESSAGES[name], version, values)
    return decompose(MESSAGES[name], version, body, 0, len(body))


def converse(key: int, version: int, request: Any, *answers: Any) -> tuple[list[Any], dict[str, Any]]:
    """Returns the requests and the old response, both as decoded from the wire."""
    name = API[key].name
    conversation = TRANSLATIONS[key](version, over_the_wire(f"{name}Request", version, request))
    questions = []
    try:
        question = next(conversation)
        for answer in answers:
            questions.append(over_the_wire(f"{name}Request", UPSTREAM_VERSION[key], question))
            question = conversation.send(over_the_wire(f"{name}Response", UPSTREAM_VERSION[key], answer))
    except StopIteration as end:
        assert len(questions) == len(answers)
        return questions, over_the_wire(f"{name}Response", version, end.value)
    raise AssertionError(f"a question without an answer: {question}")


def test_every_version_that_becomes_another_has_a_conversation_or_a_handler_of_its_own() -> None:
    assert set(UPSTREAM_VERSION) - set(TRANSLATIONS) == {ApiKey.FETCH, ApiKey.PRODUCE}
    for key in TRANSLATIONS:
        assert all(
            version < UPSTREAM_VERSION[key] or key in CLIENT_VERSIONS for version in range(newest_spoken(key) + 1)
        )


# ListOffsets


def ask_offsets(*partitions: tuple[str, int, int, int]) -> dict[str, Any]:
    """(topic, partition, timestamp, maximum number of offsets)."""
    topics: dict[str, list[Any]] = {}
    for topic, partition, timestamp, most in partitions:
        row = {"PartitionIndex": partition, "Timestamp": timestamp, "MaxNumOffsets": most}
        topics.setdefault(topic, []).append(row)
    return {"ReplicaId": -1, "Topics": [{"Name": topic, "Partitions": of} for topic, of in topics.items()]}


def found(*partitions: tuple[str, int, int, int]) -> dict[str, Any]:
    """(topic, partition, error code, offset)."""
    topics: dict[str, list[Any]] = {}
    for topic, partition, error_code, offset in partitions:
        row = {"PartitionIndex": partition, "ErrorCode": error_code, "Timestamp": -1, "Offset": offset}
        topics.setdefault(topic, []).append(row)
    return {"Topics": [{"Name": topic, "Partitions": of} for topic, of in topics.items()]}


def asked(question: dict[str, Any]) -> list[tuple[str, int, int]]:
    return [
        (topic["Name"], row["PartitionIndex"], row["Timestamp"])
        for topic in question["Topics"]
        for row in topic["Partitions"]
    ]


def told(answer: dict[str, Any]) -> list[tuple[str, int, int, list[int]]]:
    return [
        (topic["Name"], row["PartitionIndex"], row["ErrorCode"], row["OldStyleOffsets"])
        for topic in answer["Topics"]
        for row in topic["Partitions"]
    ]


def test_ends_of_the_log_are_one_question() -> None:
    request = ask_offsets(("t", 0, -1, 1), ("t", 1, -2, 5), ("u", 0, -2, 1))
    questions, answer = converse(
        ApiKey.LIST_OFFSETS, 0, request, found(("t", 0, 0, 90), ("t", 1, 0, 7), ("u", 0, 0, 0))
    )
    assert [asked(question) for question in questions] == [[("t", 0, -1), ("t", 1, -2), ("u", 0, -2)]]
    assert questions[0]["ReplicaId"] == -1
    assert told(answer) == [("t", 0, 0, [90]), ("t", 1, 0, [7]), ("u", 0, 0, [0])]


def test_more_than_one_offset_is_the_end_and_the_start() -> None:
    questions, answer = converse(
        ApiKey.LIST_OFFSETS, 0, ask_offsets(("t", 0, -1, 3)), found(("t", 0, 0, 90)), found(("t", 0, 0, 10))
    )
    assert [asked(question) for question in questions] == [[("t", 0, -1)], [("t", 0, -2)]]
    assert told(answer) == [("t", 0, 0, [90, 10])]


def test_the_start_of_an_empty_log_is_not_told_twice() -> None:
    _, answer = converse(
        ApiKey.LIST_OFFSETS, 0, ask_offsets(("t", 0, -1, 2)), found(("t", 0, 0, 10)), found(("t", 0, 0, 10))
    )
    assert told(answer) == [("t", 0, 0, [10])]


def test_a_time_after_the_last_record_is_the_end_of_the_log() -> None:
    request = ask_offsets(("t", 0, 10**12, 1), ("t", 1, 10**12, 1))
    questions, answer = converse(
        ApiKey.LIST_OFFSETS, 0, request, found(("t", 0, 0, -1), ("t", 1, 0, 40)), found(("t", 0, 0, 90))
    )
    assert [asked(question) for question in questions] == [[("t", 0, 10**12), ("t", 1, 10**12)], [("t", 0, -1)]]
    assert told(answer) == [("t", 0, 0, [90]), ("t", 1, 0, [40])]


def test_only_a_time_may_be_beyond_the_end() -> None:
    questions, answer = converse(ApiKey.LIST_OFFSETS, 0, ask_offsets(("t", 0, -2, 1)), found(("t", 0, 0, -1)))
    assert len(questions) == 1
    assert told(answer) == [("t", 0, 0, [])]


def test_no_offsets_at_all_may_be_asked_for() -> None:
    _, answer = converse(ApiKey.LIST_OFFSETS, 0, ask_offsets(("t", 0, -1, 0)), found(("t", 0, 0, 90)))
    assert told(answer) == [("t", 0, 0, [])]


def test_an_error_has_no_offsets() -> None:
    questions, answer = converse(
        ApiKey.LIST_OFFSETS, 0, ask_offsets(("t", 0, -1, 2), ("t", 1, -2, 1)),
        found(("t", 0, 6, -1), ("t", 1, 3, -1)),
        found(("t", 0, 6, -1)),
    )  # fmt: skip
    assert told(answer) == [("t", 0, 6, []), ("t", 1, 3, [])]
    assert len(questions) == 2


def test_an_error_of_the_second_question_counts() -> None:
    _, answer = converse(
        ApiKey.LIST_OFFSETS, 0, ask_offsets(("t", 0, -1, 2)), found(("t", 0, 0, 90)), found(("t", 0, 6, -1))
    )
    assert told(answer) == [("t", 0, 6, [])]


@pytest.mark.parametrize(("timestamp", "most", "code"), [(-3, 1, 35), (-5, 1, 35), (-1, -1, -1)])
def test_what_makes_no_sense_is_not_asked(timestamp: int, most: int, code: int) -> None:
    questions, answer = converse(ApiKey.LIST_OFFSETS, 0, ask_offsets(("t", 0, timestamp, most)))
    assert not questions
    assert told(answer) == [("t", 0, code, [])]


def test_a_partition_that_the_broker_leaves_out_is_an_error() -> None:
    _, answer = converse(ApiKey.LIST_OFFSETS, 0, ask_offsets(("t", 0, -1, 1), ("t", 1, -1, 1)), found(("t", 0, 0, 90)))
    assert told(answer) == [("t", 0, 0, [90]), ("t", 1, -1, [])]


# OffsetCommit


def commit(**more: Any) -> dict[str, Any]:
    partitions = [{"PartitionIndex": 3, "CommittedOffset": 77, "CommittedMetadata": "m"}, {"PartitionIndex": 4}]
    return {"GroupId": "g", "Topics": [{"Name": "t", "Partitions": partitions}], **more}


COMMITTED = {
    "Topics": [
        {"Name": "t", "Partitions": [{"PartitionIndex": 3, "ErrorCode": 0}, {"PartitionIndex": 4, "ErrorCode": 3}]}
    ]
}


def test_an_offset_without_a_member_is_committed_for_nobody() -> None:
    (question,), answer = converse(ApiKey.OFFSET_COMMIT, 0, commit(), COMMITTED)
    assert question == {
        "GroupId": "g",
        "GenerationIdOrMemberEpoch": -1,
        "MemberId": "",
        "RetentionTimeMs": -1,
        "Topics": [
            {
                "Name": "t",
                "Partitions": [
                    {"PartitionIndex": 3, "CommittedOffset": 77, "CommittedMetadata": "m"},
                    {"PartitionIndex": 4, "CommittedOffset": 0, "CommittedMetadata": None},
                ],
            }
        ],
    }
    assert answer == COMMITTED


def test_an_offset_of_a_member_is_committed_for_it() -> None:
    (question,), answer = converse(
        ApiKey.OFFSET_COMMIT, 1, commit(GenerationIdOrMemberEpoch=5, MemberId="me"), COMMITTED
    )
    assert (question["GenerationIdOrMemberEpoch"], question["MemberId"]) == (5, "me")
    assert question["RetentionTimeMs"] == -1
    assert answer == COMMITTED


# OffsetFetch

FETCH_OFFSETS = {"GroupId": "g", "Topics": [{"Name": "t", "PartitionIndexes": [0, 1, 2]}]}


def offsets(*partitions: tuple[int, int, str, int], error_code: int = 0) -> dict[str, Any]:
    keys = ("PartitionIndex", "CommittedOffset", "Metadata", "ErrorCode")
    of = [dict(zip(keys, partition, strict=True)) for partition in partitions]
    return {"Topics": [{"Name": "t", "Partitions": of}] if of else [], "ErrorCode": error_code}


def fetched(answer: dict[str, Any]) -> list[tuple[int, int, str, int]]:
    ((name, of),) = [(topic["Name"], topic["Partitions"]) for topic in answer["Topics"]]
    assert name == "t"
    return [(row["PartitionIndex"], row["CommittedOffset"], row["Metadata"], row["ErrorCode"]) for row in of]


@pytest.mark.parametrize(("version", "missing"), [(0, 3), (1, 0)])
def test_an_offset_that_was_never_committed(version: int, missing: int) -> None:
    said = offsets((1, -1, "", 0), (0, 42, "m", 0), (2, -1, "", 29))
    (question,), answer = converse(ApiKey.OFFSET_FETCH, version, FETCH_OFFSETS, said)
    assert question == FETCH_OFFSETS
    assert fetched(answer) == [(0, 42, "m", 0), (1, -1, "", missing), (2, -1, "", 29)]


@pytest.mark.parametrize("version", [0, 1])
def test_an_error_of_the_group_is_said_of_each_partition(version: int) -> None:
    """If partitions were left out, the client would assume that no offset was ever committed."""
    _, answer = converse(ApiKey.OFFSET_FETCH, version, FETCH_OFFSETS, offsets(error_code=14))
    assert fetched(answer) == [(index, -1, "", 14) for index in (0, 1, 2)]


def test_a_partition_that_is_left_out_without_an_error_is_one() -> None:
    _, answer = converse(ApiKey.OFFSET_FETCH, 1, FETCH_OFFSETS, offsets((0, 42, "", 0)))
    assert fetched(answer) == [(0, 42, "", 0), (1, -1, "", -1), (2, -1, "", -1)]


# Topics and configurations


@pytest.mark.parametrize("version", [0, 1])
def test_topics_are_made_with_what_the_old_request_says(version: int) -> None:
    topic = {"Name": "t", "NumPartitions": 3, "ReplicationFactor": 1, "Assignments": [], "Configs": []}
    request = {"Topics": [topic], "timeoutMs": 500, "validateOnly": bool(version)}
    said = {"Topics": [{"Name": "t", "ErrorCode": 36, "ErrorMessage": "there"}], "ThrottleTimeMs": 9}
    (question,), answer = converse(ApiKey.CREATE_TOPICS, version, request, said)
    assert question == request
    message = {"ErrorMessage": "there"} if version else {}
    assert answer == {"Topics": [{"Name": "t", "ErrorCode": 36, **message}]}


def test_topics_are_deleted() -> None:
    said = {"Responses": [{"Name": "t", "ErrorCode": 41}], "ThrottleTimeMs": 9}
    (question,), answer = converse(ApiKey.DELETE_TOPICS, 0, {"TopicNames": ["t"], "TimeoutMs": 5}, said)
    assert question == {"TopicNames": ["t"], "TimeoutMs": 5}
    assert answer == {"Responses": [{"Name": "t", "ErrorCode": 41}]}


def test_configurations_say_whether_they_are_defaults() -> None:
    request = {"Resources": [{"ResourceType": 2, "ResourceName": "t", "ConfigurationKeys": None}]}
    configs = [{"Name": "a", "Value": "1", "ConfigSource": 5}, {"Name": "b", "Value": None, "ConfigSource": 1}]
    said = {"ThrottleTimeMs": 4, "Results": [{"ResourceType": 2, "ResourceName": "t", "Configs": configs}]}
    (question,), answer = converse(ApiKey.DESCRIBE_CONFIGS, 0, request, said)
    assert question == {**request, "IncludeSynonyms": False}
    assert [(row["Name"], row["IsDefault"]) for row in answer["Results"][0]["Configs"]] == [("a", True), ("b", False)]
    assert answer["ThrottleTimeMs"] == 4


def test_errors_are_replaced_wherever_they_stand() -> None:
    answer = {"ErrorCode": 1, "Topics": [{"Partitions": [{"ErrorCode": 2, "Offset": 2}], "Names": ["x"]}]}
    say_errors(answer, lambda code: code * 10)
    assert answer == {"ErrorCode": 10, "Topics": [{"Partitions": [{"ErrorCode": 20, "Offset": 2}], "Names": ["x"]}]}
