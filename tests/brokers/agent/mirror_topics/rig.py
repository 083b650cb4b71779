"""Batches with the flag of a mirror, and a broker's answers to them with their texts."""

from __future__ import annotations

import struct
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, NamedTuple

from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.wire.compression import Codec
from shoal.scenarios.kafka.broker import ClusterSpec
from tests.brokers.agent.sets import TIMESTAMP, VERSION, exchange
from tests.brokers.agent.test_transactions import ask
from tests.brokers.proxy.rig.frames import Closed, Entity, response

if TYPE_CHECKING:
    from shoal.scenarios.kafka.broker import Cluster, Node
    from tests.support.kafka.clusters import SharedClusters

CORRUPT, TOO_LARGE, READ_ONLY, WRONG_END, INVALID = 2, 10, 44, 45, 87
MIRRORED = "mirrored-"  # the topics of `OPTIONS`
OPTIONS = (f"-Dshoal.mirror.topics={MIRRORED}.*",)
FAR = 5_000_000_000
_LEADER_EPOCH = 12
_SET, _DELETE, _TOPIC, _BROKER = 0, 1, 2, 4  # of IncrementalAlterConfigs
_NO_GAP, _START, _PROBE = -2, -(2**31), -(2**31) + 1


def mirror_cluster(shared_clusters: SharedClusters, version: str) -> Cluster:
    """One broker with mirror topics."""
    often = {"log.cleaner.backoff.ms": "200"}
    spec = ClusterSpec(version=version, agent=True, jmx=True, jvm_options=OPTIONS, properties=often)
    return shared_clusters.cluster(f"mirror-topics-{version}", spec)


class Answer(NamedTuple):
    error: int
    base_offset: int
    log_start: int
    text: str | None


def batch(base: int, *deltas: int, codec: Codec = Codec.NONE, last: int | None = None, seed: int = 0) -> bytes:
    """A batch with a record at each of `deltas`; none: a filler up to `last`."""
    records = [
        NewRecord(TIMESTAMP + base + delta, b"k%d" % (base + delta), b"%d: %d" % (seed, base + delta), (), delta)
        for delta in deltas
    ]
    return encode_batch(records, base_offset=base, codec=codec, last_offset_delta=last)


def dense(base: int, count: int, *, codec: Codec = Codec.NONE, seed: int = 0) -> bytes:
    return batch(base, *range(count), codec=codec, seed=seed)


def flagged(made: bytes, gap: int = 0) -> bytes:
    """As a mirror sends it behind `gap` offsets without a batch."""
    return _with_epoch(made, _NO_GAP - gap)


def starting(made: bytes) -> bytes:
    """As a mirror sends the first batch of all."""
    return _with_epoch(made, _START)


def probe() -> bytes:
    return _with_epoch(batch(1, last=0), _PROBE)


def _with_epoch(made: bytes, epoch: int) -> bytes:
    return made[:_LEADER_EPOCH] + struct.pack(">i", epoch) + made[_LEADER_EPOCH + 4 :]


def send(node: Node, topic: str, *sent: bytes, acks: int = -1) -> Answer:
    """One request for partition 0."""
    frame = exchange(node.address, {(topic, 0): sent}, acks=acks)
    if isinstance(frame, Closed):
        raise ConnectionResetError("no answer")
    return answer_of(response("produce", VERSION, frame))


def answer_of(produced: Entity) -> Answer:
    (row,) = produced.responses[0].partition_responses
    return Answer(int(row.error_code), row.base_offset, row.log_start_offset, row.error_message)


def promote(node: Node, topic: str) -> None:
    """As `shoal promote`: a key of the brokers' default configuration, with the topic's id."""
    (found,) = ask(node.address, "metadata", 12, {"topics": [{"name": topic}]}).topics
    _change(node, topic, _SET, urlsafe_b64encode(found.topic_id.bytes).decode().rstrip("="))


def demote(node: Node, topic: str) -> None:
    _change(node, topic, _DELETE, None)


def configure(node: Node, topic: str, name: str, value: str) -> None:
    _alter(node, _TOPIC, topic, name, _SET, value)


def _change(node: Node, topic: str, operation: int, value: str | None) -> None:
    _alter(node, _BROKER, "", f"shoal.mirror.promoted.{topic}", operation, value)


def _alter(node: Node, kind: int, resource_name: str, name: str, operation: int, value: str | None) -> None:
    config = {"name": name, "config_operation": operation, "value": value}
    resource = {"resource_type": kind, "resource_name": resource_name, "configs": [config]}
    answer = ask(node.address, "incremental_alter_configs", 1, {"resources": [resource]})
    assert [int(row.error_code) for row in answer.responses] == [0]
