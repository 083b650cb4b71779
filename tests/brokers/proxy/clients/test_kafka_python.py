"""kafka-python through Shoal. It could not resolve a leaked broker address."""

from __future__ import annotations

import uuid
from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from tests.brokers.proxy.rig.data import IN_TIME, TIMESTAMP, Contents, Record, new_topic, read, wait_until_gone
from tests.support.kafka_python import KafkaAdminClient, KafkaConsumer, KafkaProducer

if TYPE_CHECKING:
    from shoal.scenarios.kafka.broker import Cluster
    from tests.brokers.proxy.rig.stand import Stand

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("forgotten_sockets")]


@pytest.mark.parametrize("codec", [None, "gzip", "lz4", "zstd"])  # snappy needs python-snappy, which is not installed
def test_records_are_produced_and_consumed_by_a_group(brokers: Cluster, stand: Stand, codec: str | None) -> None:
    topic = new_topic(brokers, [[1], [2], [3]])
    sent: Contents = {0: [], 1: [], 2: []}
    producer = KafkaProducer(bootstrap_servers=stand.bootstrap, acks="all", compression_type=codec)
    try:
        for number in range(300):
            record = Record(b"%d" % number, b"value %d" % number, TIMESTAMP + number, (("h", b"%d" % number),))
            sent[number % 3].append(record)
            producer.send(topic, record.value, record.key, list(record.headers), number % 3, record.timestamp)
        producer.flush(IN_TIME)
    finally:
        producer.close()
    assert read(brokers.bootstrap, topic, partitions=3) == sent
    assert _consumed(stand, topic, 300) == Counter(record for records in sent.values() for record in records)


def _consumed(stand: Stand, topic: str, count: int) -> Counter[Record]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=stand.bootstrap,
        group_id=f"g-{uuid.uuid4().hex[:12]}",
        auto_offset_reset="earliest",
    )
    got: Counter[Record] = Counter()
    deadline = monotonic() + IN_TIME
    try:
        while got.total() < count:
            assert monotonic() < deadline, f"{got.total()} of {count} records"
            for records in consumer.poll(500).values():
                got.update(
                    Record(record.key, record.value, record.timestamp, tuple(record.headers)) for record in records
                )
        assert all(stand.is_ours(broker.host, broker.port) for broker in consumer._client.cluster.brokers())
    finally:
        consumer.close()
    return got


def test_admin(brokers: Cluster, stand: Stand) -> None:
    topic = f"kp-{uuid.uuid4().hex[:12]}"
    admin = KafkaAdminClient(bootstrap_servers=stand.bootstrap)
    try:
        admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 3}}, wait_for_metadata=True)
        assert read(brokers.bootstrap, topic, partitions=2) == {0: [], 1: []}
        (described,) = admin.describe_topics([topic])
        assert len(described["partitions"]) == 2
        named = {one["broker_id"]: (one["host"], one["port"]) for one in admin.describe_cluster()["brokers"]}
        assert named == {node: stand.broker(node) for node in stand.cluster.nodes}
        admin.delete_topics([topic])
        wait_until_gone(brokers, topic)
        assert topic not in admin.list_topics()
    finally:
        admin.close()
