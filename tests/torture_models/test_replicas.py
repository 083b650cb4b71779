"""A real broker and the model get the same requests in one random order: the same error codes and offsets, the same
log.

Also across an orderly stop and a start. (No broker here is a `Sets.STOCK_CHECK`, which accepts sets and keeps Kafka's
check.)
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.scenarios.kafka.broker import ClusterSpec
from shoal.scenarios.kafka.content.topics import Topics
from tests.brokers.agent.logs import log_batches
from tests.brokers.agent.sets import Answer, produce_one
from tests.torture_models.replicas import Partition, Sets, batches_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.scenarios.kafka.broker import Cluster, Node
    from tests.support.kafka.clusters import Pair, SharedClusters

TOO_LATE = 4_000_000_000_000
OLD = 1_700_000_000_000  # a starting broker forgets producers whose last batch is older than a day
MAX_BYTES = 250


class Asker:
    """Producers that make all possible mistakes: repeat, skip, go back, change their epoch or their records."""

    def __init__(self, seed: int, timestamp: int) -> None:
        self.timestamp = timestamp
        self.draw = random.Random(seed)
        self.next: dict[int, tuple[int, int]] = {}  # producer id -> epoch, sequence
        self.sent: list[bytes] = []

    def record_set(self, most: int) -> bytes:
        draw = self.draw
        if self.sent and draw.random() < 0.35:
            return draw.choice(self.sent[-8:]) if draw.random() < 0.6 else self._mixed(most)
        producer_id = draw.choice((-1, 7_001, 7_001, 7_002))
        record_set = b"".join(self._batch(producer_id) for _ in range(draw.choice((1, 1, 2, most))))
        self.sent.append(record_set)
        return record_set

    def _mixed(self, most: int) -> bytes:
        """Consecutive batches out of the last four sets sent."""
        batches = [batch for one in self.sent[-4:] for batch in batches_of(one)]
        start = self.draw.randrange(len(batches))
        return b"".join(batches[start : start + self.draw.randint(1, most)])

    def _batch(self, producer_id: int) -> bytes:
        draw, count = self.draw, self.draw.randint(1, 3)
        epoch, sequence = self.next.get(producer_id, (0, draw.choice((0, 0, 5))))
        slip = draw.choice(("", "", "", "", "", "", "skip", "back", "epoch", "old epoch", "epoch, no new start"))
        sequence = max(sequence + {"skip": 2, "back": -2}.get(slip, 0), 0)
        if slip.startswith("epoch"):
            epoch, sequence = epoch + 1, sequence if "no" in slip else 0
        stamps = (producer_id, max(epoch - (slip == "old epoch"), 0), sequence) if producer_id >= 0 else (-1, -1, -1)
        if slip in ("", "epoch"):
            self.next[producer_id] = epoch, sequence + count
        size = draw.choice((3, 3, 3, 3, 200))
        timestamp = self.timestamp if draw.random() < 0.95 else TOO_LATE
        records = [NewRecord(timestamp + at, b"k", b"%05d" % draw.randrange(10**5) * size) for at in range(count)]
        batch = encode_batch(records, producer_id=stamps[0], producer_epoch=stamps[1], base_sequence=stamps[2])
        return batch if draw.random() < 0.97 else batch[:-1] + bytes([batch[-1] ^ 1])


def both(
    node: Node, topic: str, model: Partition, sets: Sets, asker: Asker, number: int
) -> Iterator[tuple[bytes, Answer, Answer]]:
    for _ in range(number):
        record_set = asker.record_set(5 if sets is Sets.AGENT else 2)
        real = produce_one(node.address, topic, batches_of(record_set))
        error, base, _ = model.produce(record_set, sets)
        yield record_set, real, Answer(error, base)


async def compared(
    cluster: Cluster, topic: str, sets: Sets, *, seeds: range, number: int, restarts: int = 0, old: bool = False
) -> set[int]:
    """-> all error codes."""
    node, seen = cluster.nodes[1], set[int]()
    config = {"max.message.bytes": str(MAX_BYTES), "message.timestamp.after.max.ms": "3600000"}
    for seed in seeds:
        name, model, asker = (
            f"{topic}-{seed}",
            Partition(1, MAX_BYTES, refused_from=TOO_LATE),
            Asker(seed, OLD if old else time.time_ns() // 1_000_000),
        )
        topics = Topics(cluster.bootstrap)
        await topics.create(name, config=config)
        for round_number in range(restarts + 1):
            if round_number:
                assert await node.stop(), "a killed broker remembers more than an orderly stop keeps"
                await node.start()
                # Metadata names a leader before the leader knows, which then answers NOT_LEADER_OR_FOLLOWER.
                await topics.until_total(name, model.end, within=30)
                model.expire() if old else model.restart()
            for record_set, real, expected in both(node, name, model, sets, asker, number):
                assert real == expected, (seed, [batch[43:61].hex() for batch in batches_of(record_set)])
                seen.add(real.error)
        assert [batch[16:] for batch in log_batches(node, name)] == [entry.batch[16:] for entry in model.log]
    return seen


async def test_a_stock_broker_answers_as_the_model(pair: Pair, topic: str) -> None:
    seen = await compared(pair.target, topic, Sets.REFUSED, seeds=range(4), number=60)
    assert seen == {0, 2, 10, 32, 45, 47, 87}


@pytest.fixture(params=[Sets.REFUSED, Sets.AGENT])
def sets(request: pytest.FixtureRequest) -> Sets:
    return Sets(request.param)


@pytest.fixture
def broker(shared_clusters: SharedClusters, sets: Sets) -> Cluster:
    agent = sets is Sets.AGENT
    return shared_clusters.cluster("agent-4.3.0" if agent else "restarted", ClusterSpec(version="4.3.0", agent=agent))


@pytest.mark.slow
async def test_a_broker_answers_as_the_model(broker: Cluster, sets: Sets, topic: str) -> None:
    seen = await compared(broker, topic, sets, seeds=range(10, 20), number=80)
    assert seen == {0, 2, 10, 32, 45, 47, 87}


@pytest.mark.slow
@pytest.mark.parametrize("old", [False, True])
async def test_a_broker_that_was_stopped_answers_as_the_model(
    broker: Cluster, sets: Sets, topic: str, old: bool
) -> None:
    await compared(broker, topic, sets, seeds=range(30, 31), number=25, restarts=2, old=old)
