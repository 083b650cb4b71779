"""KIP-932: the two answers to share consumers that name other brokers, from a real broker.

A broker names the leader in ShareFetch if it does not lead the partition, and in ShareAcknowledge if the share
coordinator rejects the acknowledgement as out of date. For the second, the test raises the state epoch of the share
partition at the coordinator, as the group coordinator does, so the broker's next write is fenced.
"""

from __future__ import annotations

import base64
import uuid
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from tests.brokers.proxy.rig.batches import batch
from tests.brokers.proxy.rig.data import IN_TIME, new_topic
from tests.brokers.proxy.rig.frames import Closed, Entity, Wire, request, response

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.scenarios.kafka.broker import Cluster
    from tests.brokers.proxy.equivalence.comparison import Address
    from tests.brokers.proxy.rig.stand import Stand

pytestmark = pytest.mark.kafka
LEADER, OTHER = 1, 2
GROUP_RESOURCE = 32
GROUP, SHARE = 0, 2  # FindCoordinatorRequest.CoordinatorType; the key of SHARE is SharePartitionKey.asCoordinatorKey
NOT_LEADER_OR_FOLLOWER = 6
MEMBER = "AAAAAAAAQACAAAAAAAAAAQ"
_LIMITS = {"max_bytes": 1 << 20, "min_bytes": 1, "max_records": 10, "batch_size": 10}
_DEFAULTS = {"max_bytes": 50 << 20, "min_bytes": 1, "max_records": 500, "batch_size": 500}  # of a KafkaShareConsumer


class Member:
    """The only member of a new share group, on one connection to the leader; coordinators are asked directly."""

    def __init__(self, brokers: Cluster, wire: Wire) -> None:
        self.wire = wire
        self.group = f"share-{uuid.uuid4().hex[:8]}"
        self.topic = new_topic(brokers, [[LEADER], [OTHER]])
        (found,) = self._ask("metadata", 12, {"topics": [{"name": self.topic}]}).topics
        self.topic_id = found.topic_id
        self._brokers = brokers

    def _ask(self, api: str, version: int, body: dict[str, Any], wire: Wire | None = None) -> Entity:
        frame = (wire or self.wire).ask(request(api, version, body))
        assert not isinstance(frame, Closed), api
        return response(api, version, frame.removesuffix(_hidden(frame)) + b"\1\0" if _hidden(frame) else frame)

    def _until(
        self, done: Callable[[Entity], bool], api: str, version: int, body: dict[str, Any], wire: Wire | None = None
    ) -> Entity:
        deadline = monotonic() + IN_TIME
        while not done(answer := self._ask(api, version, body, wire)):
            assert monotonic() < deadline, answer
        return answer

    def _coordinator(self, kind: int, key: str) -> Wire:
        """A connection to the broker itself: coordinators are not tested here."""
        body = {"key_type": kind, "coordinator_keys": [key]}
        answer = self._until(lambda found: found.coordinators[0].node_id > 0, "find_coordinator", 6, body)
        host, _, port = self._brokers.nodes[answer.coordinators[0].node_id].address.rpartition(":")
        return Wire(host, int(port))

    def _of_topic(self, *partitions: dict[str, Any]) -> dict[str, Any]:
        return {"group_id": self.group, "topics": [{"topic_id": self.topic_id, "partitions": list(partitions)}]}

    def produce(self, value: bytes) -> None:
        data = {"topic_id": self.topic_id, "partition_data": [{"index": 0, "records": batch([value])}]}
        self._ask("produce", 13, {"acks": -1, "timeout": timedelta(seconds=IN_TIME), "topic_data": [data]})

    def join(self) -> None:
        """Until there is a record, and the group has both partitions."""
        self.produce(b"one")
        earliest = {"name": "share.auto.offset.reset", "value": "earliest", "config_operation": 0}
        config = {"resource_type": GROUP_RESOURCE, "resource_name": self.group, "configs": [earliest]}
        self._ask("incremental_alter_configs", 1, {"resources": [config]})
        beat = {"group_id": self.group, "member_id": MEMBER, "member_epoch": 0, "subscribed_topic_names": [self.topic]}
        with self._coordinator(GROUP, self.group) as wire:
            self._until(lambda answer: bool(answer.assignment), "share_group_heartbeat", 1, beat, wire)

    def fetch(self, version: int, limits: dict[str, int] = _LIMITS) -> Entity:
        """From the start of a session until this member has acquired the record of partition 0."""
        asked = self._of_topic({"partition_index": 0}, {"partition_index": 1})
        who = {"member_id": MEMBER, "share_session_epoch": 0, "max_wait": timedelta(milliseconds=200)}
        return self._until(_acquired, "share_fetch", version, {**who, **limits, **asked})

    def be_overtaken(self) -> None:
        """Raises the coordinator's state epoch of partition 0 above the leader's."""
        state = self._of_topic({"partition": 0, "state_epoch": 1_000, "start_offset": 0})
        topic_id = base64.urlsafe_b64encode(self.topic_id.bytes).decode().rstrip("=")
        with self._coordinator(SHARE, f"{self.group}:{topic_id}:0") as wire:
            (topic,) = self._ask("initialize_share_group_state", 0, state, wire).results
        assert [partition.error_code for partition in topic.partitions] == [0]

    def acknowledge(self, version: int) -> Entity:
        accept = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
        body = self._of_topic({"partition_index": 0, "acknowledgement_batches": [accept]})
        return self._ask("share_acknowledge", version, {"member_id": MEMBER, "share_session_epoch": 1, **body})


def _hidden(frame: bytes) -> bytes:
    """No node endpoints, and the tagged field in their place, which kio does not know; empty if there is none."""
    at = frame.rfind(b"\1\1\x7f")
    return frame[at:] if at > 0 and not any(frame[at + 8 :]) else b""


def _acquired(answer: Entity) -> bool:
    return any(partition.acquired_records for found in answer.responses for partition in found.partitions)


def _named(answer: Entity) -> list[tuple[int, str, int]]:
    return [(one.node_id, one.host, one.port) for one in answer.node_endpoints]


def _refused(answer: Entity) -> list[tuple[int, int, int]]:
    """(partition, error, leader) of each error."""
    return [
        (partition.partition_index, partition.error_code, partition.current_leader.leader_id)
        for topic in answer.responses
        for partition in topic.partitions
        if partition.error_code
    ]


@pytest.mark.parametrize("through_shoal", [False, True])
@pytest.mark.parametrize("version", [1, 2])
def test_leaders_that_a_share_consumer_is_told_of(
    brokers: Cluster, stand: Stand, version: int, through_shoal: bool
) -> None:
    def address(node_id: int) -> Address:
        _, _, port = brokers.nodes[node_id].proxied_address.rpartition(":")
        return stand.broker(node_id) if through_shoal else (f"broker-{node_id}.shoal.test", int(port))

    host, _, port = brokers.nodes[LEADER].proxied_address.rpartition(":")
    with Wire(*(stand.broker(LEADER) if through_shoal else (host, int(port)))) as wire:
        member = Member(brokers, wire)
        member.join()
        fetched = member.fetch(version)
        assert _refused(fetched) == [(1, NOT_LEADER_OR_FOLLOWER, OTHER)]
        assert _named(fetched) == [(OTHER, *address(OTHER))]
        member.be_overtaken()
        answer = member.acknowledge(version)
        assert _refused(answer) == [(0, NOT_LEADER_OR_FOLLOWER, LEADER)]
        assert _named(answer) == [(LEADER, *address(LEADER))]


@pytest.mark.parametrize("version", [1, 2])
def test_a_share_consumer_gets_as_many_large_records_as_it_wants(brokers: Cluster, stand: Stand, version: int) -> None:
    """More than Shoal holds. The leader that the answer names is hidden then; it is known from the metadata."""
    with Wire(*stand.broker(LEADER)) as wire:
        member = Member(brokers, wire)
        for _ in range(40):
            member.produce(bytes(1_000_000))
        member.join()
        fetched = member.fetch(version, _DEFAULTS)
    assert not _named(fetched)
    (topic,) = fetched.responses
    records = {partition.partition_index: partition.records for partition in topic.partitions}
    assert len(records[0]) > 40_000_000
    assert _refused(fetched) == [(1, NOT_LEADER_OR_FOLLOWER, OTHER)]
