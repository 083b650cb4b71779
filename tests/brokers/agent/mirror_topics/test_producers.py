"""Clients of a mirror topic, before and after it is promoted."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from shoal.scenarios.kafka.broker import ClusterSpec, running_cluster
from shoal.scenarios.kafka.content.clients import client_config, in_thread
from shoal.scenarios.kafka.content.reading import READ_COMMITTED, read_all
from shoal.scenarios.kafka.content.topics import OffsetRange, Topics
from shoal.scenarios.kafka.metrics import attribute
from shoal.scenarios.kafka.process import until
from tests.brokers.agent.test_transactions import Transaction, ask

from .rig import INVALID, READ_ONLY, Answer, demote, dense, flagged, probe, promote, send

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka import Message

    from shoal.scenarios.kafka.broker import Cluster, Node

_WITHIN = 30.0
BEAN = "shoal:type=MirrorTopics"


async def until_promoted(node: Node, topic: str) -> None:
    await until(lambda: send(node, topic, probe()).error == READ_ONLY, within=_WITHIN, what="its promotion")


def deliver(producer: Producer, topic: str, *values: bytes) -> list[KafkaError | None]:
    errors: list[KafkaError | None] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    producer.flush(_WITHIN)
    return errors


async def values(cluster: Cluster, topic: str) -> list[bytes | None]:
    found: list[bytes | None] = []

    def take(messages: list[Message]) -> None:
        found.extend(message.value() for message in messages)

    await read_all(cluster.bootstrap, topic, take, isolation_level=READ_COMMITTED)
    return found


@pytest.mark.parametrize("kind", [{}, {"enable_idempotence": True}], ids=["plain", "idempotent"])
async def test_producers_are_refused_until_it_is_promoted(
    cluster: Cluster, node: Node, mirrored: str, kind: dict[str, bool]
) -> None:
    assert send(node, mirrored, flagged(dense(0, 2))).error == 0
    producer = Producer(client_config(cluster.bootstrap, **kind))
    (error,) = await in_thread(partial(deliver, producer, mirrored, b"early"))
    assert error is not None
    assert error.code() == KafkaError.POLICY_VIOLATION
    assert send(node, mirrored, flagged(dense(2, 1))) == Answer(0, 2, 0, None)

    promote(node, mirrored)
    await until_promoted(node, mirrored)
    producer = Producer(client_config(cluster.bootstrap, **kind))
    assert await in_thread(partial(deliver, producer, mirrored, b"3", b"4")) == [None, None]
    refused = send(node, mirrored, flagged(dense(5, 1)))
    assert (refused.error, refused.text) == (
        READ_ONLY,
        f"{mirrored} was promoted: it no longer takes the batches of a mirror",
    )
    assert await values(cluster, mirrored) == [b"0: 0", b"0: 1", b"0: 2", b"3", b"4"]


async def test_a_transaction_of_an_ordinary_producer_takes_no_offset(
    cluster: Cluster, node: Node, mirrored: str
) -> None:
    """Its batch is refused, it aborts, and the coordinator writes a marker in each partition of the transaction."""
    assert send(node, mirrored, flagged(dense(0, 2))).error == 0
    left_out = int((await attribute(node, BEAN, "MarkersLeftOut"))[0])
    settings = client_config(cluster.bootstrap, transactional_id=f"of {mirrored}", message_timeout_ms=10_000)
    producer = Producer(settings)
    await in_thread(partial(producer.init_transactions, _WITHIN))
    producer.begin_transaction()
    (error,) = await in_thread(partial(deliver, producer, mirrored, b"early"))
    assert error is not None
    with pytest.raises(KafkaException):
        producer.commit_transaction(_WITHIN)
    await in_thread(partial(producer.abort_transaction, _WITHIN))
    assert await Topics(cluster.bootstrap).spans(mirrored, committed=True) == {0: OffsetRange(0, 2)}
    assert int((await attribute(node, BEAN, "MarkersLeftOut"))[0]) == left_out + 1
    assert send(node, mirrored, flagged(dense(2, 1))) == Answer(0, 2, 0, None)

    promote(node, mirrored)
    await until_promoted(node, mirrored)
    producer = Producer({**settings, "client.id": "again"})
    await in_thread(partial(producer.init_transactions, _WITHIN))
    for value, end in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        assert await in_thread(partial(deliver, producer, mirrored, value)) == [None]
        await in_thread(partial(end, _WITHIN))
    assert await values(cluster, mirrored) == [b"0: 0", b"0: 1", b"0: 2", b"committed"]


async def test_a_promotion_is_of_one_topic_and_survives_a_restart(
    cluster: Cluster, node: Node, mirrored: str, topic: str
) -> None:
    other = f"mirrored-other-{topic}"
    await Topics(cluster.bootstrap).create(other)
    promote(node, mirrored)
    await until_promoted(node, mirrored)
    for _ in range(2):
        assert send(node, mirrored, dense(0, 1)).error == 0
        assert send(node, other, dense(0, 1)).error == READ_ONLY
        await node.stop()
        await node.start()
        await until(lambda: send(node, mirrored, probe()).error == READ_ONLY, within=_WITHIN, what="the leader")
    await Topics(cluster.bootstrap).delete(mirrored)
    await Topics(cluster.bootstrap).create(mirrored)
    assert send(node, mirrored, dense(0, 1)).error == READ_ONLY
    promote(node, mirrored)
    await until_promoted(node, mirrored)
    demote(node, mirrored)
    await until(lambda: send(node, mirrored, probe()).error == 0, within=_WITHIN, what="the end of its promotion")
    assert send(node, mirrored, dense(0, 1)).error == READ_ONLY


async def test_offsets_of_an_ordinary_writer_are_no_duplicates(cluster: Cluster, node: Node, mirrored: str) -> None:
    """Promoted by mistake, written to, and a mirror topic again: its mirror does not go on as if nothing was."""
    assert send(node, mirrored, flagged(dense(0, 2))).error == 0
    promote(node, mirrored)
    await until_promoted(node, mirrored)
    assert send(node, mirrored, dense(0, 1, seed=5)).error == 0
    demote(node, mirrored)
    await until(lambda: send(node, mirrored, probe()).error == 0, within=_WITHIN, what="the end of its promotion")
    assert send(node, mirrored, flagged(dense(2, 1))).error == INVALID
    assert send(node, mirrored, flagged(dense(3, 1))) == Answer(0, 3, 0, None)


async def test_the_bean_counts(node: Node, mirrored: str) -> None:
    (before,) = map(int, await attribute(node, BEAN, "RepeatedBatches"))
    send(node, mirrored, flagged(dense(0, 2)), flagged(dense(2, 2)))
    send(node, mirrored, flagged(dense(2, 2)), flagged(dense(4, 2)))
    assert await attribute(node, BEAN, "RepeatedBatches") == [str(before + 1)]


@pytest.mark.agent
async def test_kafkas_own_topics_are_never_mirror_topics(tmp_path: Path) -> None:
    """The coordinator expects that each of its markers in __consumer_offsets has an offset."""
    spec = ClusterSpec(agent=True, jvm_options=("-Dshoal.mirror.topics=.*",))
    async with running_cluster(tmp_path, spec) as cluster:
        node = cluster.nodes[1]
        await Topics(cluster.bootstrap).create("input")
        assert send(node, "input", dense(0, 1)).error == READ_ONLY
        producer = Transaction.producer(node.address)
        ids = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
        for _ in range(3):  # each waits for the end of the one before
            of = {"transactional_id": producer.transactional_id, **ids}
            assert int(ask(node.address, "add_offsets_to_txn", 3, {**of, "group_id": "readers"}).error_code) == 0
            assert int(ask(node.address, "end_txn", 3, {**of, "committed": False}).error_code) == 0

        reader = Consumer({**client_config(cluster.bootstrap), "group.id": "readers", "enable.auto.commit": False})
        reader.assign([TopicPartition("input", 0, 0)])
        position = TopicPartition("input", 0, 5)
        writer = Producer(client_config(cluster.bootstrap, transactional_id="of readers"))
        await in_thread(partial(writer.init_transactions, _WITHIN))
        writer.begin_transaction()
        metadata = reader.consumer_group_metadata()
        await in_thread(partial(writer.send_offsets_to_transaction, [position], metadata, _WITHIN))
        await in_thread(partial(writer.commit_transaction, _WITHIN))
        (found,) = await in_thread(partial(reader.committed, [position], timeout=_WITHIN))
        assert found.offset == 5
        reader.close()
