"""The topics and the prebuilt requests of every benchmark run.

Fetched: 32 kB zstd batches of JSON records, 4 partitions, in requests like the Java consumer's (1 MiB of each partition
in one answer). Produced: 217 kB requests of 4 uncompressed batches, so that the broker does little besides appending
them.
"""

from __future__ import annotations

import json
import random
import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from bench.load import Wire
from shoal.scenarios.kafka.content.clients import client_config
from shoal.scenarios.kafka.content.topics import Topics
from tests.support import frames

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.load import Address

__all__ = ["CLIENT", "MIRROR_CLIENT", "PARTITIONS", "RECORDS", "TINY", "Stage", "records_of"]

CLIENT = "bench"
MIRROR_CLIENT = "bench|replication-consumer"  # which a wrap listener takes for the data consumer of MirrorMaker 2
PARTITIONS = 4
BATCHES = 1024  # of each partition: 4 x 32 MiB, more than any cache near the CPU holds
RECORDS = 500  # of each batch: ~32 kB zstd
DISTINCT = 64  # batches actually built; their offsets make them different
BATCHES_PER_FETCH = 32  # 1 MiB of each partition
PRODUCED_BYTES = 54_000  # of each of the 4 batches: 217 kB in one request
SMALL_BYTES = 100
CROWD_PARTITIONS = 200
TINY_BATCHES = 2048  # of each partition, three records each: all of them fit into one answer
TINY = 3
STAMP_MS = 1_700_000_000_000
TIMEOUT_S = 20.0

# Repeated produce runs must not fill the disk.
_SHORT = {"segment.bytes": str(64 << 20), "retention.bytes": str(64 << 20), "file.delete.delay.ms": "1000"}
_TOPICS: Mapping[str, tuple[int, Mapping[str, str]]] = {
    "fetched": (PARTITIONS, {}),
    "small": (1, {}),
    "tiny": (PARTITIONS, {}),
    "produced": (PARTITIONS, _SHORT),
    "unwrapped": (PARTITIONS, _SHORT),
    "crowd": (CROWD_PARTITIONS, _SHORT),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One broker with its topics, ready for reads and writes."""

    broker: Address
    admin: AdminClient
    fetched: frames.Topic
    produced: frames.Topic
    unwrapped: frames.Topic
    small: frames.Topic
    tiny: frames.Topic
    crowd: frames.Topic
    produce_version: int

    @classmethod
    async def build(cls, broker: Address, *, topic_ids: bool) -> Stage:
        """Create and fill the topics. `topic_ids`: whether the broker supports Produce v13 (Kafka 4.0)."""
        bootstrap = f"{broker[0]}:{broker[1]}"
        admin, topics = AdminClient(client_config(bootstrap)), Topics(bootstrap)
        for name, (partitions, config) in _TOPICS.items():
            await topics.create(f"bench-{name}", partitions, config=config)
        created = {name: _described(admin, f"bench-{name}") for name in _TOPICS}
        stage = cls(broker=broker, admin=admin, produce_version=13 if topic_ids else 11, **created)
        stage._fill()
        return stage

    def fetches(self, client: str = CLIENT) -> list[bytes]:
        """One round over the whole topic; each request begins at a batch."""
        starts = range(0, BATCHES * RECORDS, BATCHES_PER_FETCH * RECORDS)
        return [frames.fetch(client, self.fetched, dict.fromkeys(range(PARTITIONS), start)) for start in starts]

    def tiny_fetches(self) -> list[bytes]:
        """Answers of thousands of batches."""
        return [frames.fetch(CLIENT, self.tiny, dict.fromkeys(range(PARTITIONS), 0))]

    def produces(self) -> list[bytes]:
        noise = random.Random(1)
        batches = {at: frames.batch([noise.randbytes(PRODUCED_BYTES)], STAMP_MS) for at in range(PARTITIONS)}
        return [self._produce(self.produced, batches)]

    def tiny_produces(self) -> list[bytes]:
        """One batch of few records in a request."""
        return [self._produce(self.produced, {0: frames.batch([b"x" * SMALL_BYTES] * TINY, STAMP_MS)})]

    def few_records(self) -> tuple[list[bytes], int]:
        """Requests of one batch of 1 to 3 records each, and the number of records in all of them."""
        sizes = [(partition, count) for partition in range(PARTITIONS) for count in (1, 2, 3)]
        one = {count: frames.batch([b"x" * SMALL_BYTES] * count, STAMP_MS) for count in (1, 2, 3)}
        return [self._produce(self.produced, {at: one[count]}) for at, count in sizes], sum(n for _, n in sizes)

    def keyed_produces(self, count: int) -> list[bytes]:
        """One record each, to any partition of the crowd's topic."""
        chance, one = random.Random(1), frames.batch([b"x" * SMALL_BYTES], STAMP_MS)
        return [self._produce(self.crowd, {chance.randrange(CROWD_PARTITIONS): one}) for _ in range(count)]

    def heartbeats(self) -> list[bytes]:
        return [frames.heartbeat(CLIENT)]

    def by_name(self) -> Stage:
        """The same, for a proxy that knows no Produce by topic id (v13)."""
        return replace(self, produce_version=min(self.produce_version, 11))

    def small_requests(self) -> dict[str, bytes]:
        """The kinds of lone request, by name: edited by Shoal, passed undecoded, and one small record each way."""
        little = frames.batch([b"x" * SMALL_BYTES], STAMP_MS)
        return {
            "ApiVersions": frames.api_versions(CLIENT),
            "ListOffsets": frames.list_offsets(CLIENT, self.small),
            "Fetch": frames.fetch(CLIENT, self.small, {0: 0}),
            "Produce": self._produce(self.produced, {0: little}),
        }

    def unwraps(self, envelopes: Mapping[int, list[bytes]]) -> list[bytes]:
        """Produce requests of envelopes by partition, two in each: below a mirror's max.request.size of 1 MiB."""
        pairs = [(at, at + 1) for at in range(0, PARTITIONS, 2)]
        return [
            self._produce(self.unwrapped, dict(zip(pair, batches, strict=True)))
            for pair in pairs
            for batches in zip(*(envelopes[at] for at in pair), strict=True)
        ]

    def end_offsets(self, topic: frames.Topic) -> int:
        """Sum of all partitions."""
        partitions, _ = _TOPICS[topic.name.removeprefix("bench-")]
        wanted = {TopicPartition(topic.name, at): OffsetSpec.latest() for at in range(partitions)}
        found = self.admin.list_offsets(wanted, request_timeout=TIMEOUT_S)
        return sum(future.result().offset for future in found.values())

    def _produce(self, topic: frames.Topic, batches: Mapping[int, bytes]) -> bytes:
        return frames.produce(CLIENT, topic, batches, version=self.produce_version)

    def _fill(self) -> None:
        batches = [frames.batch(records_of(seed), STAMP_MS, zstd=True) for seed in range(DISTINCT)]
        with Wire(self.broker) as wire:
            for at in range(BATCHES):
                one = batches[at % DISTINCT]
                wire.send(self._produce(self.fetched, dict.fromkeys(range(PARTITIONS), one)))
                wire.drain()
            few = frames.batch(records_of(1)[:TINY], STAMP_MS)
            for _ in range(TINY_BATCHES):
                wire.send(self._produce(self.tiny, dict.fromkeys(range(PARTITIONS), few)))
                wire.drain()
            wire.send(self._produce(self.small, {0: frames.batch([b"x" * SMALL_BYTES], STAMP_MS)}))
            wire.drain()
        if (found := self.end_offsets(self.fetched)) != (wanted := PARTITIONS * BATCHES * RECORDS):
            raise RuntimeError(f"{self.fetched.name} holds {found:,} records instead of {wanted:,}")


def records_of(seed: int) -> list[bytes]:
    """JSON that zstd compresses 4:1, like real events."""
    chance = random.Random(seed)
    return [_event(chance) for _ in range(RECORDS)]


def _event(chance: random.Random) -> bytes:
    event = {
        "event_id": f"{chance.getrandbits(128):032x}",
        "user": chance.randrange(5_000_000),
        "action": chance.choice(("view", "click", "add_to_cart", "purchase", "search")),
        "page": f"/shop/{chance.randrange(800)}/item/{chance.randrange(90_000)}",
        "price": round(chance.random() * 500, 2),
        "currency": chance.choice(("EUR", "USD", "CHF")),
        "user_agent": chance.choice(("Mozilla/5.0 (X11; Linux x86_64)", "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5)")),
        "session": f"{chance.getrandbits(64):016x}",
        "timestamp": STAMP_MS + chance.randrange(86_400_000),
    }
    return json.dumps(event).encode()


def _described(admin: AdminClient, name: str) -> frames.Topic:
    described = admin.describe_topics(TopicCollection([name]), request_timeout=TIMEOUT_S)[name].result()
    most, least = described.topic_id.get_most_significant_bits(), described.topic_id.get_least_significant_bits()
    return frames.Topic(name, struct.pack(">qq", most, least))
