"""Sets in transactions: the checks of a single batch apply to every batch of a set."""

import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import pytest

from shoal.protocol.records.batch import TRANSACTIONAL, encode_batch
from shoal.scenarios.kafka.broker import Cluster, Node
from shoal.scenarios.kafka.content.copies import read_copy
from shoal.scenarios.kafka.content.reading import READ_COMMITTED
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.process import until
from tests.brokers.proxy.rig.frames import Body, Closed, Entity, Wire, request, response
from tests.support.batches import damaged

from .logs import as_logged, log_batches
from .sets import VERSION, Answer, produce, produce_one, records

CORRUPT, NOT_ENOUGH_REPLICAS, OUT_OF_ORDER, INVALID_TXN_STATE, TRANSACTION_REFUSED, INVALID = 2, 19, 45, 48, 53, 87
NOT_YET = {NOT_ENOUGH_REPLICAS, 51}  # the last transaction is still being ended
COORDINATOR_NOT_READY = {14, 15, 16, 51}  # loading, not available, not it (yet), still ending the last transaction
UNANNOUNCED = 12  # of Produce: it adds its partitions to the transaction itself
_TRIES = 2000


def ask(address: str, api: str, version: int, body: Body) -> Entity:
    """Asks until the coordinator is ready; one broker is the coordinator of everything."""
    host, _, port = address.rpartition(":")
    with Wire(host, int(port)) as wire:
        for _ in range(_TRIES):
            frame = wire.ask(request(api, version, body))
            assert not isinstance(frame, Closed)
            answer = response(api, version, frame)
            if not COORDINATOR_NOT_READY & set(_errors(answer)):
                return answer
    raise AssertionError(answer)


def _errors(answer: Entity) -> list[int]:
    topics = getattr(answer, "results_by_topic_v3_and_below", ())
    nested = [one.partition_error_code for topic in topics for one in topic.results_by_partition]
    return [getattr(answer, "error_code", 0), *nested]


class Transaction(NamedTuple):
    address: str
    transactional_id: str
    producer_id: int
    epoch: int

    @classmethod
    def producer(cls, address: str) -> "Transaction":
        name = f"sets-{uuid.uuid4().hex}"
        ask(address, "find_coordinator", 3, {"key": name, "key_type": 1})
        body = {"transactional_id": name, "transaction_timeout": timedelta(seconds=60)}
        answer = ask(address, "init_producer_id", 3, {**body, "producer_id": -1, "producer_epoch": -1})
        assert answer.error_code == 0
        return cls(address, name, int(answer.producer_id), int(answer.producer_epoch))

    @property
    def _names(self) -> dict[str, object]:
        ids = {"producer_id": self.producer_id, "producer_epoch": self.epoch}
        return {"transactional_id": self.transactional_id, **ids, **{f"v3_and_below_{k}": v for k, v in ids.items()}}

    def begin(self, topic: str) -> None:
        topics = [{"name": topic, "partitions": [0]}]
        body = {
            **self._names,
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_topics": topics,
        }
        answer = ask(self.address, "add_partitions_to_txn", 3, body)
        assert not any(_errors(answer)), answer

    def end(self, commit: bool) -> None:
        answer = ask(self.address, "end_txn", 3, {**self._names, "committed": commit})
        assert answer.error_code == 0

    def ended(self, commit: bool) -> "Transaction":
        """By version 2: the next one has an epoch of its own."""
        names = {"transactional_id": self.transactional_id, "producer_id": self.producer_id}
        answer = ask(self.address, "end_txn", 5, {**names, "producer_epoch": self.epoch, "committed": commit})
        assert answer.error_code == 0
        return self._replace(producer_id=int(answer.producer_id), epoch=int(answer.producer_epoch))

    def batches(self, *numbers: int, attributes: int = TRANSACTIONAL) -> list[bytes]:
        return [
            encode_batch(
                records(2, seed=number),
                attributes=attributes,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=2 * number,
            )
            for number in numbers
        ]


def produced(transaction: Transaction, topic: str, batches: Sequence[bytes], version: int = VERSION) -> Answer:
    name = transaction.transactional_id
    return produce_one(transaction.address, topic, batches, version=version, transactional_id=name)


def once_ended(transaction: Transaction, topic: str, batches: Sequence[bytes], version: int = VERSION) -> Answer:
    """The answer once the coordinator has ended the last transaction; until then it gives no clear answer."""
    for _ in range(_TRIES):
        answer = produced(transaction, topic, batches, version)
        if answer.error not in NOT_YET:
            return answer
    raise AssertionError(answer)


async def test_sets_are_committed_and_aborted_as_a_whole(cluster: Cluster, node: Node, topic: str) -> None:
    """After a first batch that opens the transaction in the partition."""
    await Topics(cluster.bootstrap).create(topic)
    transaction = Transaction.producer(node.address)
    transaction.begin(topic)
    assert produced(transaction, topic, transaction.batches(0)) == Answer(0, 0)
    assert produced(transaction, topic, transaction.batches(1, 2)) == Answer(0, 2)
    assert produced(transaction, topic, transaction.batches(1, 2)) == Answer(0, 2)  # again: not written twice
    transaction.end(commit=True)
    transaction.begin(topic)
    assert produced(transaction, topic, transaction.batches(3)) == Answer(0, 7)  # the marker is at 6
    assert produced(transaction, topic, transaction.batches(4, 5)) == Answer(0, 9)
    transaction.end(commit=False)
    transaction.begin(topic)
    assert produced(transaction, topic, transaction.batches(6)) == Answer(0, 14)
    assert produced(transaction, topic, transaction.batches(7, 8)) == Answer(0, 16)
    transaction.end(commit=True)
    copy = await read_copy(cluster.bootstrap, topic, isolation=READ_COMMITTED)
    assert list(copy.partitions[0].offsets) == [*range(6), *range(14, 20)]


async def test_a_set_opens_a_transaction(cluster: Cluster, node: Node, topic: str) -> None:
    """The coordinator's confirmation (KIP-890) is valid for the append, so for every batch of the set."""
    await Topics(cluster.bootstrap).create(topic)
    transaction = Transaction.producer(node.address)
    for first, base, commit in ((0, 0, True), (4, 9, False), (8, 18, True)):
        transaction.begin(topic)
        opening = transaction.batches(first, first + 1, first + 2)
        assert produced(transaction, topic, opening) == Answer(0, base)
        assert produced(transaction, topic, opening) == Answer(0, base)  # again: not written twice
        assert produced(transaction, topic, transaction.batches(first + 3)) == Answer(0, base + 6)
        transaction.end(commit=commit)
    assert log_batches(node, topic)[:4] == as_logged(transaction.batches(0, 1, 2, 3))
    copy = await read_copy(cluster.bootstrap, topic, isolation=READ_COMMITTED)
    assert list(copy.partitions[0].offsets) == [*range(8), *range(18, 26)]


async def test_a_set_opens_a_transaction_of_version_2(cluster: Cluster, node: Node, topic: str, version: str) -> None:
    """The partition is not added before, and the epoch is new: sequences begin at 0 (KIP-890)."""
    if version.startswith("3."):
        pytest.skip("transactions of version 2 came with Kafka 4")
    await Topics(cluster.bootstrap).create(topic)
    transaction = Transaction.producer(node.address)
    for base, commit in ((0, True), (9, False), (18, True)):
        opening = transaction.batches(0, 1, 2)
        assert once_ended(transaction, topic, opening, UNANNOUNCED) == Answer(0, base)
        assert produced(transaction, topic, opening, UNANNOUNCED) == Answer(0, base)  # again: not written twice
        assert produced(transaction, topic, transaction.batches(3), UNANNOUNCED) == Answer(0, base + 6)
        transaction = transaction.ended(commit)
    copy = await read_copy(cluster.bootstrap, topic, isolation=READ_COMMITTED)
    assert list(copy.partitions[0].offsets) == [*range(8), *range(18, 26)]


async def test_a_refused_set_leaves_its_transaction_as_it_was(cluster: Cluster, node: Node, topic: str) -> None:
    """A bad batch inside, or a gap before: nothing is written, and the next append is checked independently."""
    await Topics(cluster.bootstrap).create(topic)
    transaction = Transaction.producer(node.address)
    transaction.begin(topic)
    opening = transaction.batches(0, 1)
    assert produced(transaction, topic, [opening[0], damaged(opening[1], -2)]) == Answer(CORRUPT, -1)
    assert log_batches(node, topic) == []
    assert produced(transaction, topic, opening) == Answer(0, 0)
    assert produced(transaction, topic, transaction.batches(3, 4)) == Answer(OUT_OF_ORDER, -1)
    assert produced(transaction, topic, transaction.batches(2, 3)) == Answer(0, 4)
    transaction.end(commit=True)
    await until(lambda: len(log_batches(node, topic)) == 5, within=30, what="the marker")  # until then all is confirmed
    assert once_ended(transaction, topic, transaction.batches(4, 5)) == Answer(INVALID_TXN_STATE, -1)
    assert log_batches(node, topic)[:4] == as_logged(transaction.batches(0, 1, 2, 3))
    assert len(log_batches(node, topic)) == 5


async def test_a_set_outside_a_transaction_is_refused(cluster: Cluster, node: Node, topic: str) -> None:
    await Topics(cluster.bootstrap).create(topic)
    transaction = Transaction.producer(node.address)
    assert produced(transaction, topic, transaction.batches(0, 1)).error == INVALID_TXN_STATE
    assert log_batches(node, topic) == []


async def test_a_transactional_set_needs_its_transactional_id(cluster: Cluster, node: Node, topic: str) -> None:
    await Topics(cluster.bootstrap).create(topic)
    transaction = Transaction.producer(node.address)
    transaction.begin(topic)
    assert produce_one(node.address, topic, transaction.batches(0, 1)) == Answer(TRANSACTION_REFUSED, -1)
    transaction.end(commit=False)
    assert [batch[:8] for batch in log_batches(node, topic)] in ([], [bytes(8)])  # at most the marker


async def test_no_set_hides_a_transactional_batch_behind_another(cluster: Cluster, node: Node, topic: str) -> None:
    """RequestUtils asks the first batch only whether a request is transactional."""
    await Topics(cluster.bootstrap).create(topic)
    transaction, other = Transaction.producer(node.address), Transaction.producer(node.address)
    transaction.begin(topic)
    inside, outside = transaction.batches(0), transaction.batches(1, attributes=0)
    for hidden in (outside + inside, inside + outside, inside + other.batches(0), [encode_batch(records(1)), *inside]):
        for name in (None, transaction.transactional_id):
            answer = produce(node.address, {(topic, 0): hidden}, transactional_id=name)
            assert not isinstance(answer, Closed)
            assert answer[topic, 0].error in (TRANSACTION_REFUSED, INVALID)
    assert log_batches(node, topic) == []
    assert produced(transaction, topic, transaction.batches(0)) == Answer(0, 0)
    transaction.end(commit=True)
    assert log_batches(node, topic)[:1] == as_logged(transaction.batches(0))
