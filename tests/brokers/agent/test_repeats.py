"""Idempotence of sets: the broker remembers the last 5 batches of a producer id, and neither duplicates nor loses
one."""

from itertools import count
from typing import NamedTuple

import pytest

from shoal.protocol.records.batch import encode_batch
from shoal.protocol.wire.compression import Codec
from shoal.scenarios.kafka.broker import Cluster, Node
from shoal.scenarios.kafka.content.topics import Topics

from .logs import as_logged, log_batches
from .sets import Answer, batches, produce_one, records

OUT_OF_ORDER, STALE_EPOCH, INVALID = 45, 47, 87
_IDS = count(1000)


class Producer(NamedTuple):
    """Numbers batches of two records like an idempotent producer; no broker has assigned its id."""

    producer_id: int

    def batch(self, number: int, epoch: int = 0) -> bytes:
        return encode_batch(
            records(2, seed=number), producer_id=self.producer_id, producer_epoch=epoch, base_sequence=2 * number
        )

    def batches(self, *numbers: int) -> list[bytes]:
        return [self.batch(number) for number in numbers]


@pytest.fixture
def one() -> Producer:
    return Producer(next(_IDS))


@pytest.fixture
def other() -> Producer:
    return Producer(next(_IDS))


async def test_a_set_that_is_sent_again_is_acknowledged_and_not_written_again(
    cluster: Cluster, node: Node, topic: str, one: Producer
) -> None:
    await Topics(cluster.bootstrap).create(topic)
    first, second = one.batches(0, 1, 2, 3, 4), one.batches(5, 6)
    assert produce_one(node.address, topic, first) == Answer(0, 0)
    assert produce_one(node.address, topic, first) == Answer(0, 0)
    assert produce_one(node.address, topic, second) == Answer(0, 10)
    assert produce_one(node.address, topic, second) == Answer(0, 10)
    assert log_batches(node, topic) == as_logged(first + second)


async def test_a_set_written_before_in_part_is_refused_and_taken_batch_by_batch(
    cluster: Cluster, node: Node, topic: str, one: Producer
) -> None:
    await Topics(cluster.bootstrap).create(topic)
    sent = one.batches(0, 1, 2)
    assert produce_one(node.address, topic, sent[:2]) == Answer(0, 0)
    for repeated in ([1, 2], [0, 1, 2]):
        assert produce_one(node.address, topic, one.batches(*repeated)) == Answer(INVALID, -1)
    assert log_batches(node, topic) == as_logged(sent[:2])
    assert [produce_one(node.address, topic, [batch]) for batch in sent] == [Answer(0, 0), Answer(0, 2), Answer(0, 4)]
    assert log_batches(node, topic) == as_logged(sent)


@pytest.mark.parametrize("new_first", [True, False])
async def test_the_repetition_of_one_producer_costs_another_nothing(
    cluster: Cluster, node: Node, topic: str, one: Producer, other: Producer, new_first: bool
) -> None:
    await Topics(cluster.bootstrap).create(topic)
    assert produce_one(node.address, topic, [one.batch(0)]) == Answer(0, 0)
    mixed = [other.batch(0), one.batch(0)] if new_first else [one.batch(0), other.batch(0)]
    assert produce_one(node.address, topic, mixed) == Answer(INVALID, -1)
    assert log_batches(node, topic) == as_logged([one.batch(0)])
    plain = encode_batch(records(1))
    assert produce_one(node.address, topic, [one.batch(0), plain]) == Answer(INVALID, -1)
    assert produce_one(node.address, topic, [one.batch(1), other.batch(0), plain]) == Answer(0, 2)


async def test_batches_that_were_written_apart_are_no_repeated_set(
    cluster: Cluster, node: Node, topic: str, one: Producer, other: Producer
) -> None:
    await Topics(cluster.bootstrap).create(topic)
    for batch in (one.batch(0), other.batch(0), one.batch(1)):
        produce_one(node.address, topic, [batch])
    assert produce_one(node.address, topic, one.batches(0, 1)) == Answer(INVALID, -1)  # no base offset fits both
    assert produce_one(node.address, topic, [one.batch(0), other.batch(0), one.batch(1)]) == Answer(0, 0)
    assert len(log_batches(node, topic)) == 3


@pytest.mark.parametrize("numbers", [(0, 0), (0, 2), (1, 0), (0, 1, 1)])
async def test_sequences_within_a_set_must_follow_each_other(
    cluster: Cluster, node: Node, topic: str, one: Producer, numbers: tuple[int, ...]
) -> None:
    """A broker accepts any sequence of an unknown producer, for each batch of a set."""
    await Topics(cluster.bootstrap).create(topic)
    assert produce_one(node.address, topic, one.batches(*numbers)) == Answer(INVALID, -1)
    assert log_batches(node, topic) == []
    assert produce_one(node.address, topic, one.batches(0, 1, 2)) == Answer(0, 0)
    assert produce_one(node.address, topic, one.batches(4, 5)) == Answer(OUT_OF_ORDER, -1)


@pytest.mark.parametrize("kind", ["producer", "gzip", "uncompressed"])
async def test_a_stamp_on_the_first_batch_is_enough_for_a_set_of_any_size(
    cluster: Cluster, node: Node, topic: str, one: Producer, kind: str
) -> None:
    await Topics(cluster.bootstrap).create(topic, config={"compression.type": kind})
    plain = batches(600, tuple(Codec))
    sets = [[one.batch(number), *plain] for number in range(3)]
    bases = [produce_one(node.address, topic, one_set).base_offset for one_set in sets]
    log = log_batches(node, topic)
    again = [produce_one(node.address, topic, one_set) for one_set in sets]
    assert again == [Answer(0, base) for base in bases]
    assert produce_one(node.address, topic, [one.batch(1)]) == Answer(0, bases[1])
    assert log_batches(node, topic) == log


async def test_a_known_stamp_before_other_batches_than_then_is_refused(
    cluster: Cluster, node: Node, topic: str, one: Producer
) -> None:
    await Topics(cluster.bootstrap).create(topic)
    first, second, third = batches(3)
    produce_one(node.address, topic, [one.batch(0), first, second])
    produce_one(node.address, topic, [third])
    log = log_batches(node, topic)
    stamped = one.batch(0)
    for others in ([second], [first, third], [second, first], [first, second, third, third]):
        assert produce_one(node.address, topic, [stamped, *others]) == Answer(INVALID, -1)
    assert produce_one(node.address, topic, [first, stamped]) == Answer(INVALID, -1)
    for others in ([first], [first, second], [first, second, third]):  # written there, by any sender
        assert produce_one(node.address, topic, [stamped, *others]) == Answer(0, 0)
    assert log_batches(node, topic) == log


async def test_more_batches_than_the_broker_remembers_are_not_written_twice(
    cluster: Cluster, node: Node, topic: str, one: Producer
) -> None:
    await Topics(cluster.bootstrap).create(topic)
    sent = one.batches(*range(8))
    assert produce_one(node.address, topic, sent) == Answer(0, 0)
    assert produce_one(node.address, topic, sent).error in (OUT_OF_ORDER, INVALID)
    assert log_batches(node, topic) == as_logged(sent)


async def test_an_old_epoch_in_a_set_is_fenced(cluster: Cluster, node: Node, topic: str, one: Producer) -> None:
    await Topics(cluster.bootstrap).create(topic)
    assert produce_one(node.address, topic, [one.batch(0, epoch=1)]) == Answer(0, 0)
    assert produce_one(node.address, topic, one.batches(1, 2)) == Answer(STALE_EPOCH, -1)
    assert len(log_batches(node, topic)) == 1
