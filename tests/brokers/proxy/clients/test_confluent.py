"""librdkafka through Shoal. It could not resolve a leaked broker address."""

from __future__ import annotations

import uuid
from collections import Counter
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_END, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from shoal.scenarios.kafka.content.clients import client_config
from tests.brokers.proxy.rig.data import IN_TIME, Record, as_record, new_topic, produce, read, various, wait_until_gone
from tests.brokers.proxy.rig.feeder import Feeder
from tests.support.shoal_process import connected_to, socket_inodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.scenarios.kafka.broker import Cluster
    from tests.brokers.proxy.rig.stand import Stand

pytestmark = pytest.mark.kafka
THREE = [[1], [2], [3]]  # a partition on every broker


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_every_codec_arrive_unchanged(brokers: Cluster, stand: Stand, codec: str) -> None:
    topic = new_topic(brokers, THREE)
    sent = produce(stand.bootstrap, topic, various(900), partitions=3, compression_type=codec, enable_idempotence=True)
    assert read(brokers.bootstrap, topic, partitions=3) == sent
    assert read(stand.bootstrap, topic, partitions=3) == sent


def test_large_records_pass_both_ways(brokers: Cluster, stand: Stand) -> None:
    topic = new_topic(brokers, THREE)
    large = [Record(b"%d" % number, bytes([number]) * 900_000) for number in range(12)]
    sent = produce(stand.bootstrap, topic, large, partitions=3, linger_ms=0)
    assert read(stand.bootstrap, topic, partitions=3) == read(brokers.bootstrap, topic, partitions=3) == sent


@pytest.mark.parametrize("protocol", [pytest.param("classic", marks=pytest.mark.slow), "consumer"])
def test_a_group_rebalances_between_two_members(brokers: Cluster, stand: Stand, protocol: str) -> None:
    topic = new_topic(brokers, [[1], [2], [3], [1]])
    sent = produce(stand.bootstrap, topic, various(400), partitions=4)
    group = f"g-{uuid.uuid4().hex[:12]}"
    settings = {**client_config(stand.bootstrap), "group.id": group, "group.protocol": protocol}
    settings |= {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    first, second = Consumer(settings), Consumer(settings)
    got: list[Record] = []
    try:
        first.subscribe([topic])
        _poll_until(lambda: len(first.assignment()) == 4 and len(got) == 400, [first], got)
        first.commit(asynchronous=False)
        second.subscribe([topic])
        _poll_until(lambda: len(first.assignment()) == len(second.assignment()) == 2, [first, second], got)
        first.close()
        _poll_until(lambda: len(second.assignment()) == 4, [second], got)
        committed = second.committed([TopicPartition(topic, number) for number in range(4)], IN_TIME)
    finally:
        first.close()
        second.close()
    assert Counter(got) == Counter(record for records in sent.values() for record in records), "lost, or read twice"
    assert [place.offset for place in committed] == [100] * 4


def _poll_until(happened: Callable[[], bool], consumers: list[Consumer], got: list[Record]) -> None:
    deadline = monotonic() + IN_TIME
    while not happened():
        assert monotonic() < deadline, [consumer.assignment() for consumer in consumers]
        for consumer in consumers:
            got += [as_record(message) for message in consumer.consume(100, 0.05) if message.error() is None]


def test_transactions_are_committed_and_aborted(brokers: Cluster, stand: Stand) -> None:
    topic, source = new_topic(brokers, THREE), new_topic(brokers, [[1]])
    produce(stand.bootstrap, source, various(10))
    group, batches = f"g-{uuid.uuid4().hex[:12]}", [list(various(30)), list(various(40)), list(various(50))]
    settings = {**client_config(stand.bootstrap), "group.id": group, "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    producer = Producer({**client_config(stand.bootstrap), "transactional.id": f"x-{uuid.uuid4().hex[:12]}"})
    try:
        consumer.assign([TopicPartition(source, 0, OFFSET_END)])
        producer.init_transactions(IN_TIME)
        for number, (records, commit) in enumerate(zip(batches, (True, False, True), strict=True)):
            producer.begin_transaction()
            for record in records:
                producer.produce(topic, record.value, record.key, number, timestamp=record.timestamp)
            assert not producer.flush(IN_TIME), "an abort would drop what was not sent yet"
            offsets = [TopicPartition(source, 0, 3 + number)]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), IN_TIME)
            (producer.commit_transaction if commit else producer.abort_transaction)(IN_TIME)
        committed = consumer.committed([TopicPartition(source, 0)], IN_TIME)
    finally:
        consumer.close()
    everything = {number: _bare(records) for number, records in enumerate(batches)}
    for bootstrap in (stand.bootstrap, brokers.bootstrap):
        assert read(bootstrap, topic, partitions=3) == everything
        kept = read(bootstrap, topic, partitions=3, isolation_level="read_committed")
        assert kept == {**everything, 1: []}
    assert committed[0].offset == 5, "the offsets of the last committed transaction"


def _bare(records: list[Record]) -> list[Record]:
    return [record._replace(headers=()) for record in records]


def test_only_shoal_connects_to_the_brokers(brokers: Cluster, stand: Stand) -> None:
    topic = new_topic(brokers, THREE)
    consumer = Consumer({**client_config(stand.bootstrap), "group.id": "onlooker", "auto.offset.reset": "earliest"})
    got: list[Record] = []
    try:
        consumer.subscribe([topic])
        with Feeder(stand.bootstrap, topic, partitions=3) as feeder:
            feeder.wait_for(100)
            _poll_until(lambda: len(got) >= 100, [consumer], got)
            ports = {node.settings.ports.proxied for node in brokers.nodes.values()}
            before, own, after = connected_to(ports), socket_inodes(stand.shoal.pid), connected_to(ports)
    finally:
        consumer.close()
    lasting = before & after  # others may have ended between two checks
    assert lasting
    assert lasting <= own


def test_metadata_names_only_shoal(stand: Stand) -> None:
    admin = AdminClient(client_config(stand.bootstrap))
    metadata: Any = admin.list_topics(timeout=IN_TIME)
    ours = {(node, *stand.broker(node)) for node in stand.cluster.nodes}
    assert {(broker.id, broker.host, broker.port) for broker in metadata.brokers.values()} == ours
    described: Any = admin.describe_cluster(request_timeout=IN_TIME).result()
    assert {(node.id, node.host, node.port) for node in described.nodes} == ours


def _until_answered(expected: object, ask: Callable[[], object]) -> None:
    """Any broker may answer, and each learns of a change at its own time."""
    deadline = monotonic() + IN_TIME
    while (found := ask()) != expected:
        assert monotonic() < deadline, found


def _retention(admin: AdminClient, resource: ConfigResource) -> str | None:
    value: str | None = admin.describe_configs([resource])[resource].result()["retention.ms"].value
    return value


def test_admin_of_topics(brokers: Cluster, stand: Stand) -> None:
    through, direct = AdminClient(client_config(stand.bootstrap)), AdminClient(client_config(brokers.bootstrap))
    name = f"admin-{uuid.uuid4().hex[:12]}"
    through.create_topics([NewTopic(name, 2, 1)], operation_timeout=IN_TIME)[name].result()
    with pytest.raises(KafkaException, match="already exists"):
        through.create_topics([NewTopic(name, 2, 1)])[name].result()
    through.create_partitions([NewPartitions(name, 3)], operation_timeout=IN_TIME)[name].result()
    entry = ConfigEntry("retention.ms", "86400000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
    through.incremental_alter_configs([resource])[resource].result()
    for admin in (through, direct):
        _until_answered("86400000", partial(_retention, admin, resource))
        assert len(admin.list_topics(name, timeout=IN_TIME).topics[name].partitions) == 3
    produce(stand.bootstrap, name, various(30), partitions=3)
    asked = {TopicPartition(name, number): OffsetSpec.latest() for number in range(3)}
    ends = [future.result().offset for future in through.list_offsets(asked).values()]
    assert ends == [10, 10, 10]
    deleted = through.delete_records([TopicPartition(name, 0, 4)])
    assert [future.result().low_watermark for future in deleted.values()] == [4]
    through.delete_topics([name], operation_timeout=IN_TIME)[name].result()
    wait_until_gone(brokers, name)


def test_admin_of_groups_and_acls(brokers: Cluster, stand: Stand) -> None:
    through, direct = AdminClient(client_config(stand.bootstrap)), AdminClient(client_config(brokers.bootstrap))
    topic, group = new_topic(brokers, [[1]]), f"g-{uuid.uuid4().hex[:12]}"
    produce(stand.bootstrap, topic, various(5))
    consumer = Consumer({**client_config(stand.bootstrap), "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    consumer.close()
    assert group in {one.group_id for one in through.list_consumer_groups().result().valid}
    assert through.describe_consumer_groups([group])[group].result().state.name == "EMPTY"
    through.delete_consumer_groups([group])[group].result()
    assert group not in {one.group_id for one in direct.list_consumer_groups().result().valid}
    who = ("User:nobody-here", "*", AclOperation.READ, AclPermissionType.DENY)
    binding = AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, *who)
    wanted = AclBindingFilter(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, *who)
    through.create_acls([binding])[binding].result()
    _until_answered([binding], lambda: direct.describe_acls(wanted).result())
    assert through.delete_acls([wanted])[wanted].result() == [binding]
    _until_answered([], lambda: direct.describe_acls(wanted).result())
