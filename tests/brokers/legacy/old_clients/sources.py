"""Topics filled by modern clients, with features unknown to old clients; once per cluster, for all old clients."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from shoal.scenarios.kafka.content.reading import READ_COMMITTED, read_from
from shoal.scenarios.kafka.content.records import EPOCH_MS, oddities, orders, sized
from shoal.scenarios.kafka.content.records import Record as NewRecord
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, Transaction, fill, fill_transactions
from shoal.scenarios.kafka.process import until

from .client import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP, Record, Seen

if TYPE_CHECKING:
    from confluent_kafka import Message

    from .kinds import Kind

CODECS = ("none", "gzip", "snappy", "lz4")
_TYPES = (NO_TIMESTAMP, CREATE_TIME, LOG_APPEND_TIME)  # by librdkafka's numbers
_EAGER_CLEANER = {
    "cleanup.policy": "compact",
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0.001",
    "min.compaction.lag.ms": "0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The records that a modern consumer reads from a partition."""

    topic: str
    seen: tuple[Seen, ...]

    def as_seen(self, kind: Kind, *, since: int = 0) -> list[Seen]:
        """The records that an old client must see from the offset `since` on."""
        seen = [one for one in self.seen if one.offset >= since]
        if kind.timestamps:
            return seen
        return [one._replace(record=one.record._replace(timestamp=-1), timestamp_type=NO_TIMESTAMP) for one in seen]


async def make_sources(bootstrap: str, prefix: str) -> dict[str, Source]:
    """Topics by their special feature."""
    for codec in CODECS:
        await _oddities(bootstrap, f"{prefix}-{codec}", codec)
    await _oddities(bootstrap, f"{prefix}-appended", "gzip", {"message.timestamp.type": "LogAppendTime"})
    await _large_batches(bootstrap, f"{prefix}-large")
    await _transactions(bootstrap, f"{prefix}-transacted")
    await _compacted(bootstrap, f"{prefix}-compacted")
    names = (*CODECS, "appended", "large", "transacted", "compacted")
    return {name: await source(bootstrap, f"{prefix}-{name}") for name in names}


async def source(bootstrap: str, topic: str, *, partition: int = 0) -> Source:
    """The present records without aborted ones."""
    messages: list[Message] = []
    start = [TopicPartition(topic, partition, OFFSET_BEGINNING)]
    await read_from(bootstrap, start, messages.extend, isolation_level=READ_COMMITTED)
    return Source(topic=topic, seen=tuple(map(_seen, messages)))


def _seen(message: Message) -> Seen:
    kind, at = message.timestamp()
    record = Record(message.key(), message.value(), at if kind else -1)
    return Seen(message.partition() or 0, message.offset() or 0, record, _TYPES[kind])


async def _oddities(bootstrap: str, topic: str, codec: str, config: dict[str, str] | None = None) -> None:
    """Headers of every kind, null and empty keys and values, timestamps that go back; batches of one and of many."""
    await Topics(bootstrap).create(topic, config=config)
    for run, seed in ((1, 1), (50, 2)):
        layout = Layout(run=run, exact=True)
        await fill(bootstrap, topic, oddities(4 * run, seed=seed), layout=layout, compression_type=codec)


async def _large_batches(bootstrap: str, topic: str) -> None:
    """Plain, each is many chunks; some records are larger than a chunk."""
    await Topics(bootstrap).create(topic, config={"max.message.bytes": "4000000"})
    layout = Layout(run=2_000, exact=True)
    await fill(bootstrap, topic, orders(4_000), layout=layout, compression_type="gzip")
    await fill(bootstrap, topic, sized(6, 300_000), layout=Layout(run=3, exact=True), compression_type="lz4")
    await fill(bootstrap, topic, orders(2_000, seed=1), layout=layout, compression_type="snappy")


async def _transactions(bootstrap: str, topic: str) -> None:
    """Aborted ones at the beginning, in between and at the end."""
    await Topics(bootstrap).create(topic)
    drawn = oddities(120, seed=3)
    parts = [tuple(next(drawn) for _ in range(20)) for _ in range(6)]
    commits = (False, True, True, False, True, False)
    transactions = [Transaction(records=part, commit=commit) for part, commit in zip(parts, commits, strict=True)]
    await fill_transactions(bootstrap, topic, transactions, transactional_id=topic, compression_type="lz4")


async def _compacted(bootstrap: str, topic: str) -> None:
    """Every second key is repeated, so compaction leaves gaps in batches."""
    await Topics(bootstrap).create(topic, config=_EAGER_CLEANER)
    for seed in range(2):
        drawn = enumerate(sized(600, 500, seed=seed))
        records = (one._replace(key=b"%d" % (at if at % 2 else at + 1_000_000 * seed)) for at, one in drawn)
        await fill(bootstrap, topic, records, layout=Layout(run=40), compression_type="gzip")
    rolls = count(1)

    async def has_holes() -> bool:
        # The active segment is never cleaned; a record with a later timestamp rolls it.
        await fill(bootstrap, topic, iter([NewRecord(b"roll", b"roll", EPOCH_MS + 100_000 * next(rolls))]))
        return len((await source(bootstrap, topic)).seen) < 950

    await until(has_holes, within=60, what=f"{topic} to be compacted", poll_s=0.3)
