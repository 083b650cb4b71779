"""Topics and their contents, directly from the brokers, to compare with what passed through Shoal."""

from __future__ import annotations

import itertools
import uuid
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, ResourceType

from shoal.scenarios.kafka.content.clients import client_config
from tests.support.kafka.acls import allow

from .frames import Closed, Wire, request, response

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from shoal.scenarios.kafka.broker import Cluster

IN_TIME = 30.0
TIMESTAMP = 1_780_000_000_000  # ms, of the first record
Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp: int = TIMESTAMP
    headers: Headers = ()


Contents = dict[int, list[Record]]  # by partition, in the order of offsets


def various(count: int, *, size: int = 100) -> Iterator[Record]:
    """Null and empty keys and values, headers, values of all lengths up to `size`; all records differ."""
    keys = itertools.cycle((None, b"", b"key", b"\x00\xff"))
    headers: Iterator[Headers] = itertools.cycle(((), (("a", b"1"), ("a", None)), (("b", b""),)))
    for number in range(count):
        value = b"%d:" % number + bytes([number % 251]) * (number % size)
        yield Record(next(keys), None if number % 17 == 3 else value, TIMESTAMP + number, next(headers))


def new_topic(brokers: Cluster, replicas: Sequence[Sequence[int]], config: Mapping[str, str] | None = None) -> str:
    """A topic with a partition on each of `replicas` (leader first); returns when every broker knows it."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    placed = [list(nodes) for nodes in replicas]
    wanted = NewTopic(name, len(placed), replica_assignment=placed, config=dict(config or {}))
    admin = AdminClient(client_config(brokers.bootstrap))
    admin.create_topics([wanted])[name].result(IN_TIME)
    _wait_until_leaders_are(brokers, name, [nodes[0] for nodes in placed])
    return name


def granted_topic(broker: Cluster) -> str:
    """A new topic of the only broker: alice may write, bob may only describe it."""
    topic, may = new_topic(broker, [[1]]), AclOperation
    allow(broker, ResourceType.TOPIC, topic, [("alice", may.WRITE), ("alice", may.DESCRIBE), ("bob", may.DESCRIBE)])
    return topic


def wait_until_gone(brokers: Cluster, topic: str) -> None:
    """Until every broker has learned of the deletion."""
    _wait_until_leaders_are(brokers, topic, [])


def _wait_until_leaders_are(brokers: Cluster, topic: str, wanted: list[int]) -> None:
    deadline = monotonic() + IN_TIME
    for node_id, node in brokers.nodes.items():
        while node.running and (found := leaders(brokers, topic, ask=node_id)) != wanted:
            assert monotonic() < deadline, f"broker {node_id}: the leaders of {topic} are {found}"


def leaders(brokers: Cluster, topic: str, *, ask: int = 1) -> list[int]:
    """The leader of each partition (-1 if none) according to broker `ask`; empty if it does not know the topic."""
    host, _, port = brokers.nodes[ask].address.rpartition(":")
    with Wire(host, int(port)) as wire:
        frame = wire.ask(request("metadata", 8, {"topics": [{"name": topic}], "allow_auto_topic_creation": False}))
    assert not isinstance(frame, Closed)
    (found,) = response("metadata", 8, frame).topics
    return [partition.leader_id for partition in sorted(found.partitions, key=lambda row: int(row.partition_index))]


def produce(
    bootstrap: str, topic: str, records: Iterable[Record], *, partitions: int = 1, **settings: object
) -> Contents:
    """Produce to the partitions in turn and wait for all acknowledgements; -> the expected contents of the topic."""
    producer = Producer(
        {**client_config(bootstrap), **{key.replace("_", "."): value for key, value in settings.items()}}
    )
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    sent: Contents = {number: [] for number in range(partitions)}
    for number, record in enumerate(records):
        sent[number % partitions].append(record)
        producer.produce(
            topic,
            record.value,
            record.key,
            number % partitions,
            delivered,
            timestamp=record.timestamp,
            headers=list(record.headers),
        )
        producer.poll(0)
    assert producer.flush(IN_TIME) == 0
    assert not failures, failures
    return sent


def read(bootstrap: str, topic: str, *, partitions: int = 1, **settings: object) -> Contents:
    """All records of the partitions, without control batches and, under read_committed, without aborted records."""
    return _read(bootstrap, topic, partitions, settings)


def read_with_coordinator(bootstrap: str, topic: str, *, partitions: int = 1, **settings: object) -> Contents:
    """As `read`, with an answer of the group's coordinator.

    librdkafka connects to the coordinator in any case, and may otherwise end in the middle of that TLS handshake.
    """
    return _read(bootstrap, topic, partitions, settings, asks_coordinator=True)


def _read(
    bootstrap: str, topic: str, partitions: int, settings: Mapping[str, object], *, asks_coordinator: bool = False
) -> Contents:
    consumer = Consumer(
        {
            **client_config(bootstrap),
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    found: Contents = {number: [] for number in range(partitions)}
    unfinished = set(found)
    deadline = monotonic() + IN_TIME
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in found])
        while unfinished:
            assert monotonic() < deadline, f"the ends of {sorted(unfinished)} of {topic} were not reached"
            for message in consumer.consume(1000, 0.1):
                error = message.error()
                if error is None:
                    found[_partition(message)].append(as_record(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(_partition(message))
                else:
                    assert error.retriable(), error
        if asks_coordinator:
            consumer.committed([TopicPartition(topic, number) for number in found], IN_TIME)
    finally:
        consumer.close()
    return found


def as_record(message: Any) -> Record:
    """`message` is confluent_kafka's, whose stubs are wider than a consumed message."""
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Record(message.key(), message.value(), message.timestamp()[1], headers)


def _partition(message: Message) -> int:
    partition = message.partition()
    assert partition is not None
    return partition
