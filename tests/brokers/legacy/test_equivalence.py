"""The same old requests to Kafka 3.9.1, which still supports them, and through Shoal to Kafka 4.3.0, which does not:
equal answers.

Equal means every field, except that unknown error codes are replaced as in `legacy/errors.py`. Requests and answers of
both use Kafka's own tables (`protocol/schema/test_language.py`), because kio no longer has these versions. (Fetch and
Produce are tested with the old clients themselves, in this directory.)
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import Producer

from shoal.protocol.legacy.errors import downgrade_error
from shoal.protocol.legacy.translate import say_errors
from shoal.protocol.schema.api import API
from shoal.protocol.schema.decomposer import decompose
from shoal.protocol.schema.frames import request_frame
from shoal.protocol.schema.tables import MESSAGES
from shoal.scenarios.kafka.broker import ClusterSpec
from shoal.scenarios.kafka.content.clients import client_config
from tests.brokers.proxy.equivalence.flows import SUBSCRIPTION
from tests.brokers.proxy.rig.frames import Closed, Wire, request, response
from tests.support.kafka.relay import RELAY_HOST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shoal.protocol.schema.composer import Values
    from tests.support.kafka.clusters import SharedClusters

    from .conftest import Route

IN_TIME = 30.0
_NOT_YET = {14, 15, 16, 5}  # the coordinator or leader is not available yet
_TOPIC_ALREADY_EXISTS = 36
_LATEST, _EARLIEST = -1, -2
_FAR = 4_000_000_000_000  # later than every record, and than the clock
NAMES = {api.name: key for key, api in API.items()}
TOPIC = "legacy-equivalence"
FIRST_TIME = 1_600_000_000_000
RECORDS = 30


class Sides(NamedTuple):
    old: Wire  # Kafka 3.9.1, asked directly
    new: Wire  # Kafka 4.3.0, through Shoal


@pytest.fixture
def sides(shared_clusters: SharedClusters, through_shoal: Route) -> Iterator[Sides]:
    old = shared_clusters.cluster("source-3.9.1", ClusterSpec(version="3.9.1", proxied_as=RELAY_HOST))
    with Wire(*address(old.bootstrap)) as direct, Wire(*address(through_shoal.bootstrap)) as through:
        make_topic(direct, old.bootstrap)
        make_topic(through, through_shoal.cluster.bootstrap)
        yield Sides(direct, through)


def address(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.partition(":")
    return host, int(port)


def make_topic(wire: Wire, bootstrap: str) -> None:
    """Create three partitions with records in the first, a second apart, if missing; and the offsets topic."""
    ask(wire, "FindCoordinator", 0, {"Key": "legacy-group"})
    topic = {"Name": TOPIC, "NumPartitions": 3, "ReplicationFactor": 1}
    (made,) = ask(wire, "CreateTopics", 0, {"Topics": [topic], "timeoutMs": 60_000})["Topics"]
    if made["ErrorCode"] == _TOPIC_ALREADY_EXISTS:
        return
    producer = Producer(client_config(bootstrap))
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%d" % number, partition=0, timestamp=FIRST_TIME + 1000 * number)
    assert not producer.flush(IN_TIME)


def ask(wire: Wire, api: str, version: int, body: Values) -> Any:
    """The answer, with only codes that the client knows; retried while the coordinator or leader is not available."""
    deadline = monotonic() + IN_TIME
    while True:
        frame = wire.ask(framed(api, version, body))
        assert not isinstance(frame, Closed), f"{api} v{version} {body}: closed"
        said = decompose(MESSAGES[f"{api}Response"], version, frame, 8, len(frame))
        say_errors(said, partial(downgrade_error, NAMES[api], version))
        if not _NOT_YET & set(codes(said)):
            return said
        assert monotonic() < deadline, said


def framed(api: str, version: int, body: Values) -> bytes:
    return request_frame(NAMES[api], version, 7, "equivalence", body)


def codes(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        if "ErrorCode" in value:
            yield value["ErrorCode"]
        for one in value.values():
            yield from codes(one)
    elif isinstance(value, list):
        for one in value:
            yield from codes(one)


def both(sides: Sides, api: str, version: int, body: Mapping[str, object]) -> Any:
    """The answer of both. AssertionError if they differ."""
    old, new = (in_order(ask(side, api, version, body)) for side in sides)
    assert new == old
    return new


def in_order(said: Any) -> Any:
    """Brokers return topics and partitions in hash order."""
    if isinstance(said, dict):
        return {name: in_order(value) for name, value in said.items()}
    if isinstance(said, list):
        found = [in_order(one) for one in said]
        return sorted(found, key=repr) if found and isinstance(found[0], dict) else found
    return said


def offsets_of(*partitions: tuple[int, int, int], topic: str = TOPIC) -> dict[str, Any]:
    """(partition, timestamp, how many)."""
    of = [{"PartitionIndex": p, "Timestamp": timestamp, "MaxNumOffsets": most} for p, timestamp, most in partitions]
    return {"ReplicaId": -1, "Topics": [{"Name": topic, "Partitions": of}]}


def old_offsets(said: Any) -> dict[int, tuple[int, list[int]]]:
    (topic,) = said["Topics"]
    return {one["PartitionIndex"]: (one["ErrorCode"], one["OldStyleOffsets"]) for one in topic["Partitions"]}


@pytest.mark.parametrize("most", [0, 1, 2, 7])
@pytest.mark.parametrize("timestamp", [_LATEST, _EARLIEST, _FAR])
def test_offsets_of_a_log(sides: Sides, timestamp: int, most: int) -> None:
    said = old_offsets(both(sides, "ListOffsets", 0, offsets_of((0, timestamp, most), (1, timestamp, most))))
    end = RECORDS if timestamp != _EARLIEST else 0
    assert said[0] == (0, ([end, 0] if end else [0])[:most])
    assert said[1] == (0, [0][:most])


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (offsets_of((99, _LATEST, 1)), 3),
        (offsets_of((0, _LATEST, 1), topic="legacy-missing"), 3),
        (offsets_of((0, -3, 1)), -1),
        (offsets_of((0, _LATEST, -1)), -1),
    ],
)
def test_offsets_that_there_are_not(sides: Sides, body: Mapping[str, object], code: int) -> None:
    ((said, offsets),) = old_offsets(both(sides, "ListOffsets", 0, body)).values()
    assert (said, offsets) == (code, [])


def test_a_time_is_found_exactly(sides: Sides) -> None:
    """3.9.1 knows only the write time of a segment, so it finds nothing before now; Shoal never returns too late an
    offset."""
    body = offsets_of((0, FIRST_TIME + 9500, 1), (1, FIRST_TIME, 1))
    assert old_offsets(ask(sides.old, "ListOffsets", 0, body)) == {0: (0, []), 1: (0, [])}
    assert old_offsets(ask(sides.new, "ListOffsets", 0, body)) == {0: (0, [10]), 1: (0, [0])}


def commit(version: int, *partitions: tuple[int, int, str | None], topic: str = TOPIC, **more: Any) -> dict[str, Any]:
    """(partition, offset, metadata)."""
    of = [
        {"PartitionIndex": index, "CommittedOffset": offset, "CommittedMetadata": metadata, "CommitTimestamp": -1}
        for index, offset, metadata in partitions
    ]
    member = {"GenerationIdOrMemberEpoch": -1, "MemberId": ""} if version else {}
    return {"GroupId": "legacy-group", "Topics": [{"Name": topic, "Partitions": of}], **member, **more}


def fetch_offsets(*partitions: int, topic: str = TOPIC, group: str = "legacy-group") -> dict[str, Any]:
    return {"GroupId": group, "Topics": [{"Name": topic, "PartitionIndexes": list(partitions)}]}


def committed(said: Any) -> dict[int, tuple[int, str | None, int]]:
    (topic,) = said["Topics"]
    return {
        one["PartitionIndex"]: (one["CommittedOffset"], one["Metadata"], one["ErrorCode"])
        for one in topic["Partitions"]
    }


def commit_codes(said: Any) -> dict[int, int]:
    (topic,) = said["Topics"]
    return {one["PartitionIndex"]: one["ErrorCode"] for one in topic["Partitions"]}


def test_offsets_of_a_group(sides: Sides) -> None:
    nothing = both(sides, "OffsetFetch", 1, fetch_offsets(0, 1, group="legacy-never"))
    assert committed(nothing) == {0: (-1, "", 0), 1: (-1, "", 0)}
    said = both(sides, "OffsetCommit", 1, commit(1, (0, 12, "who"), (1, 5, None), (99, 1, "")))
    assert commit_codes(said) == {0: 0, 1: 0, 99: 3}
    said = both(sides, "OffsetFetch", 1, fetch_offsets(0, 1, 2))
    assert committed(said) == {0: (12, "who", 0), 1: (5, "", 0), 2: (-1, "", 0)}


def test_commits_that_are_refused(sides: Sides) -> None:
    assert commit_codes(both(sides, "OffsetCommit", 1, commit(1, (0, 1, "m" * 5000)))) == {0: 12}
    assert commit_codes(both(sides, "OffsetCommit", 1, commit(1, (0, 1, ""), topic="legacy-missing"))) == {0: 3}
    stranger = commit(1, (0, 1, ""), GenerationIdOrMemberEpoch=4, MemberId="x", GroupId="legacy-strangers")
    assert commit_codes(both(sides, "OffsetCommit", 1, stranger)) == {0: -1}


def test_offsets_that_were_zookeepers(sides: Sides) -> None:
    """3.9.1 without ZooKeeper refuses v0; see `test_zookeeper.py` for one with ZooKeeper."""
    body = commit(0, (0, 17, "v0"), (99, 1, ""), GroupId="legacy-v0")
    assert commit_codes(ask(sides.new, "OffsetCommit", 0, body)) == {0: 0, 99: 3}
    said = ask(sides.new, "OffsetFetch", 0, fetch_offsets(0, 1, 99, group="legacy-v0"))
    assert committed(said) == {0: (17, "v0", 0), 1: (-1, "", 3), 99: (-1, "", 3)}
    assert committed(ask(sides.new, "OffsetFetch", 1, fetch_offsets(0, group="legacy-v0"))) == {0: (17, "v0", 0)}


@pytest.mark.parametrize("version", [0, 1])
def test_topics_are_made_and_deleted(sides: Sides, version: int) -> None:
    name = f"legacy-made-{version}"
    bodies = [
        {
            "Name": name,
            "NumPartitions": 2,
            "ReplicationFactor": 1,
            "Configs": [{"Name": "retention.ms", "Value": "9"}],
        },
        {"Name": TOPIC, "NumPartitions": 2, "ReplicationFactor": 1},
        {"Name": "legacy/none", "NumPartitions": 2, "ReplicationFactor": 1},
        {"Name": "legacy-replicas", "NumPartitions": 1, "ReplicationFactor": 7},
        {
            "Name": "legacy-config",
            "NumPartitions": 1,
            "ReplicationFactor": 1,
            "Configs": [{"Name": "no", "Value": "1"}],
        },
    ]
    said = [
        {
            one["Name"]: one["ErrorCode"]
            for one in ask(side, "CreateTopics", version, {"Topics": bodies, "timeoutMs": 60_000})["Topics"]
        }
        for side in sides
    ]
    assert said[0] == said[1] == {name: 0, TOPIC: 36, "legacy/none": 17, "legacy-replicas": 38, "legacy-config": 40}
    of = {"Resources": [{"ResourceType": 2, "ResourceName": name, "ConfigurationKeys": ["retention.ms", "segment.ms"]}]}
    for side in sides:
        (result,) = ask(side, "DescribeConfigs", 0, of)["Results"]
        assert {one["Name"]: one["Value"] for one in result["Configs"]} == {
            "retention.ms": "9",
            "segment.ms": "604800000",
        }
    deleted = both(sides, "DeleteTopics", 0, {"TopicNames": [name, "legacy-missing"], "TimeoutMs": 60_000})
    assert {one["Name"]: one["ErrorCode"] for one in deleted["Responses"]} == {name: 0, "legacy-missing": 3}


def test_old_versions_are_offered(sides: Sides) -> None:
    offers = [
        {one["ApiKey"]: (one["MinVersion"], one["MaxVersion"]) for one in ask(side, "ApiVersions", 0, {})["ApiKeys"]}
        for side in sides
    ]
    for api in ("Produce", "Fetch", "ListOffsets", "OffsetCommit", "OffsetFetch", "CreateTopics", "DeleteTopics"):
        (oldest, _), (old, _) = (offer[NAMES[api]] for offer in offers)
        assert old == oldest == 0


def kio_ask(wire: Wire, api: str, body: Mapping[str, object]) -> Any:
    """Version 0 of a passing request, like `ask`."""
    deadline = monotonic() + IN_TIME
    while True:
        frame = wire.ask(request(api, 0, body))
        assert not isinstance(frame, Closed)
        said = response(api, 0, frame)
        if said.error_code.value not in _NOT_YET:
            return said
        assert monotonic() < deadline, said


def test_a_group_of_old_members(sides: Sides) -> None:
    """These versions pass, except error codes; the broker chooses the member id."""

    def member(wire: Wire) -> list[Any]:
        group = {"group_id": "legacy-members"}
        protocol = {"name": "range", "metadata": SUBSCRIPTION}
        join = {"session_timeout": timedelta(seconds=10), "protocol_type": "consumer", "protocols": [protocol]}
        joined = kio_ask(wire, "join_group", {**group, **join})
        own = {**group, "generation_id": joined.generation_id, "member_id": joined.member_id}
        assignment = {"member_id": joined.member_id, "assignment": b"all"}
        assert joined.leader == joined.member_id == joined.members[0].member_id
        member = {
            "GenerationIdOrMemberEpoch": joined.generation_id,
            "MemberId": joined.member_id,
            "GroupId": "legacy-members",
        }
        return [
            (joined.error_code, joined.generation_id, joined.protocol_name, joined.members[0].metadata),
            kio_ask(wire, "sync_group", {**own, "assignments": [assignment]}),
            kio_ask(wire, "heartbeat", own).error_code.value,
            kio_ask(wire, "heartbeat", {**own, "generation_id": 77}).error_code.value,
            commit_codes(ask(wire, "OffsetCommit", 2, commit(2, (0, 3, "m"), **member))),
            commit_codes(ask(wire, "OffsetCommit", 1, commit(1, (1, 4, "n"), **member))),
            committed(ask(wire, "OffsetFetch", 1, fetch_offsets(0, 1, group="legacy-members"))),
            kio_ask(wire, "leave_group", own).error_code.value,
        ]

    old, new = (member(side) for side in sides)
    assert new == old
    assert new[2:] == [0, 22, {0: 0}, {1: 0}, {0: (3, "m", 0), 1: (4, "n", 0)}, 0]
