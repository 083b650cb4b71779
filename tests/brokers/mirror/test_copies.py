"""Every kind of topic, through a stock MirrorMaker 2 and Shoal, is on the target record for record."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest
import trio

from shoal.protocol.shallow.wrap.eligible import Reason
from shoal.scenarios.kafka.content.copies import read_copy
from shoal.scenarios.kafka.content.reading import READ_COMMITTED
from shoal.scenarios.kafka.content.records import EPOCH_MS, Record, oddities, orders, sized
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, Transaction, fill, fill_transactions
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.rig.flow import WITHIN, Flow, Wiring, flowing

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

PARTITIONS = 2
SILENCE_S = 75.0  # above evidence-seconds
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# The target's topics keep everything: they do not get the source's cleanup policies and limits.
EAGER_CLEANER = {
    "cleanup.policy": "compact",
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0.001",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "0",
}
NO_CONFIGS: dict[str, str | None] = {"config.properties.exclude": ".*"}


async def fill_codecs(bootstrap: str, prefix: str, *, seed: int) -> None:
    for codec in CODECS:
        await fill(
            bootstrap,
            f"{prefix}-{codec}",
            orders(6_000, seed=seed),
            layout=Layout(partitions=2, run=100),
            compression_type=codec,
        )
        await fill(
            bootstrap,
            f"{prefix}-mixed",
            orders(6_400, seed=seed),
            layout=Layout(partitions=32, run=50),
            compression_type=codec,
        )


async def prove_sizes(flow: Flow, bootstrap: str, topic: str) -> None:
    """A topic is proven by records that arrive while its flow has the turn, so write until it is proven."""
    seeds = count(100)

    async def is_proven() -> bool:
        await fill(bootstrap, topic, sized(8, 20_000, seed=next(seeds)), layout=Layout(run=2))
        return f"records of {topic} came back" in flow.shoal.log.read_text()

    await until(is_proven, within=WITHIN, what=f"{topic} to be proven", poll_s=0.5)


async def test_codecs_sizes_and_odd_records(pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    bootstrap, topics = pair.source.bootstrap, Topics(pair.source.bootstrap)
    for name in (*CODECS, "odd", "small"):
        await topics.create(f"{topic}-{name}", 2)
    await topics.create(f"{topic}-sizes", 1)
    await topics.create(f"{topic}-mixed", 32)
    await fill_codecs(bootstrap, topic, seed=1)
    await fill(bootstrap, f"{topic}-small", orders(300), layout=Layout(partitions=2, run=1, exact=True))
    names = [f"{topic}-{name}" for name in (*CODECS, "mixed", "sizes", "odd", "small")]

    async with flowing(pair, aliases, tmp_path, Wiring(topics=f"{topic}-.*", tasks=4, extra=NO_CONFIGS)) as flow:
        await prove_sizes(flow, bootstrap, f"{topic}-sizes")
        for size in (8, 5_000, 100_000, 500_000, 900_000):  # the last are above the run limit
            layout = Layout(run=1, exact=True)
            await fill(
                bootstrap, f"{topic}-sizes", sized(6, size, seed=size), layout=layout, message_max_bytes=1_000_000
            )
        for codec in CODECS:
            layout = Layout(partitions=2, run=40)
            await fill(bootstrap, f"{topic}-odd", oddities(600), layout=layout, compression_type=codec)
        await fill(bootstrap, f"{topic}-small", orders(300), layout=Layout(partitions=2, run=1, exact=True))
        await fill_codecs(bootstrap, topic, seed=2)
        await flow.check(*names)
        await flow.until_opened()

        # While it runs: a new topic, and partitions added.
        await topics.create(f"{topic}-late", 1)
        await topics.add_partitions(f"{topic}-zstd", 4)
        for seed in (3, 4):
            layout = Layout(partitions=4)
            await fill(bootstrap, f"{topic}-zstd", orders(4_000, seed=seed), layout=layout, compression_type="zstd")
            await fill(bootstrap, f"{topic}-late", orders(3_000, seed=seed), compression_type="zstd")
            await flow.check(f"{topic}-zstd", f"{topic}-late")

    counts = flow.counts()
    assert counts["wrapped_records"] > 20_000
    assert counts["unwrapped_records"] > 20_000
    assert counts[Reason.TOO_LARGE] > 0
    assert counts[Reason.SMALL] > 0


async def fill_oddly_kept(pair: Pair, topic: str, *, seed: int) -> None:
    """LogAppendTime, transactions, idempotence: the stamps of brokers and producers on batches."""
    bootstrap = pair.source.bootstrap
    await fill(bootstrap, f"{topic}-appended", orders(1_500, seed=seed), compression_type="lz4")
    await fill(bootstrap, f"{topic}-once", orders(6_000, seed=seed), compression_type="zstd", enable_idempotence=True)
    transactions = [
        Transaction(records=tuple(orders(700, seed=100 * seed + index)), commit=index % 3 != 1) for index in range(6)
    ]
    await fill_transactions(
        bootstrap,
        f"{topic}-transacted",
        transactions,
        transactional_id=f"{topic}-{seed}",
        layout=Layout(run=100),
        compression_type="lz4",
    )


async def compact(pair: Pair, topic: str, *, seed: int = 0) -> None:
    """Fill a compacted topic in which every second key repeats, and wait until the cleaner has left gaps. With another
    seed the values are others, for the same keys."""
    bootstrap = pair.source.bootstrap
    for part in range(4):
        records = (
            record._replace(key=b"%d" % (index if index % 2 else index + 1_000_000 * part))
            for index, record in enumerate(sized(3_000, 1_500, seed=seed + part))
        )
        await fill(bootstrap, topic, records, layout=Layout(run=40), compression_type="zstd")

    rolls = count(1)

    async def has_holes() -> bool:
        # The active segment is never cleaned; a record with a later timestamp rolls it.
        await fill(bootstrap, topic, iter([Record(b"roll", b"roll", EPOCH_MS + 100_000 * next(rolls))]))
        return len((await read_copy(bootstrap, topic)).partitions[0].offsets) < 9_000

    await until(has_holes, within=60, what=f"{topic} to be compacted", poll_s=0.5)


async def test_topics_that_brokers_and_producers_have_marked(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    bootstrap, topics = pair.source.bootstrap, Topics(pair.source.bootstrap)
    await topics.create(f"{topic}-appended", 1, config={"message.timestamp.type": "LogAppendTime"})
    for name in ("once", "transacted", "cut"):
        await topics.create(f"{topic}-{name}", 1)
    await topics.create(f"{topic}-compacted", 1, config=EAGER_CLEANER)
    await fill(bootstrap, f"{topic}-cut", orders(6_000), layout=Layout(run=500), compression_type="zstd")
    await topics.delete_records(f"{topic}-cut", {0: 1_234})  # the first record left is inside a batch
    await fill_oddly_kept(pair, topic, seed=1)
    names = [f"{topic}-{name}" for name in ("appended", "once", "transacted", "cut")]

    # In small steps, so that a topic is proven long before its data ends.
    extra = {**NO_CONFIGS, f"{aliases.source}.consumer.max.partition.fetch.bytes": "65536"}
    async with flowing(pair, aliases, tmp_path, Wiring(topics=f"{topic}-.*", extra=extra)) as flow:
        await flow.check(*names)
        seeds = count(20)

        async def is_told() -> bool:
            # A topic's first batches are raw because of missing evidence; later ones have their own reason.
            await fill_oddly_kept(pair, topic, seed=next(seeds))
            counts = flow.counts()
            return all(counts[why] for why in (Reason.LOG_APPEND_TIME, Reason.CONTROL))

        await until(is_told, within=WITHIN, what="batches to stay raw for what they are", poll_s=0.5)
        await fill(bootstrap, f"{topic}-cut", orders(6_000, seed=5), layout=Layout(run=500), compression_type="zstd")
        await flow.check(*names)

        # A gap by retention: unread records are deleted when the mirror returns. And the topic was compacted.
        flow.running.kill()
        await compact(pair, f"{topic}-compacted")
        await fill(bootstrap, f"{topic}-cut", orders(3_000, seed=6), layout=Layout(run=500), compression_type="zstd")
        await topics.delete_records(f"{topic}-cut", {0: 13_777})
        await fill(bootstrap, f"{topic}-cut", orders(3_000, seed=7), layout=Layout(run=500), compression_type="zstd")
        flow.running.restart()
        await flow.check_gap(f"{topic}-cut")
        await flow.check(f"{topic}-compacted")

    raw = flow.counts()
    assert raw["wrapped_records"] > 3_000
    assert raw[Reason.LOG_APPEND_TIME] > 0
    assert raw[Reason.HOLES] > 0
    assert raw[Reason.CONTROL] > 0


@pytest.mark.slow
async def test_a_mirror_that_reads_committed_data_leaves_out_what_was_aborted(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    await Topics(pair.source.bootstrap).create(f"{topic}-transacted", 1)
    for name in ("appended", "once"):
        await Topics(pair.source.bootstrap).create(f"{topic}-{name}", 1)
    await fill_oddly_kept(pair, topic, seed=1)
    extra = {f"{aliases.source}.consumer.isolation.level": "read_committed", **NO_CONFIGS}

    async with flowing(pair, aliases, tmp_path, Wiring(topics=f"{topic}-.*", tasks=1, extra=extra)) as flow:
        await flow.check(f"{topic}-transacted", isolation=READ_COMMITTED)
        seeds = count(2)

        async def has_dropped() -> bool:
            await fill_oddly_kept(pair, topic, seed=next(seeds))
            await flow.check(f"{topic}-transacted", f"{topic}-once", isolation=READ_COMMITTED)
            counts = flow.counts()
            return counts["wrapped_records"] > counts["unwrapped_records"] > 0

        await until(has_dropped, within=WITHIN, what="envelopes of aborted data to be handed out", poll_s=0.5)

    counts = flow.counts("total")
    assert counts["wrapped_records"] > counts["unwrapped_records"] > 0, "aborted envelopes were dropped by the mirror"


@pytest.mark.slow
async def test_nothing_but_aborted_data_for_longer_than_envelopes_are_waited_for(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    """Its envelopes never arrive, because the mirror drops them; this does not show where it produces to."""
    bootstrap = pair.source.bootstrap
    await Topics(bootstrap).create(topic, PARTITIONS)
    extra = {f"{aliases.source}.consumer.isolation.level": "read_committed", **NO_CONFIGS}
    seeds = count(1)

    async def transact(*commits: bool) -> None:
        transactions = [Transaction(records=tuple(orders(2_000, seed=next(seeds))), commit=one) for one in commits]
        layout, name = Layout(partitions=PARTITIONS, run=100), f"{topic}-{next(seeds)}"
        await fill_transactions(
            bootstrap, topic, transactions, transactional_id=name, layout=layout, compression_type="lz4"
        )

    async with flowing(pair, aliases, tmp_path, Wiring(topics=topic, extra=extra)) as flow:

        async def is_wrapped() -> bool:
            await transact(True)
            return flow.counts()["unwrapped_records"] > 0

        await until(is_wrapped, within=WITHIN, what="envelopes to arrive", poll_s=0.5)
        await flow.check(topic, isolation=READ_COMMITTED)
        before, end = flow.counts(), trio.current_time() + SILENCE_S

        async def is_over() -> bool:
            await transact(False, False)
            return trio.current_time() > end

        await until(is_over, within=SILENCE_S + WITHIN, what="a long time", poll_s=1.0)
        counts = flow.counts()
        assert counts["wrapped_records"] - before["wrapped_records"] > 10_000
        assert counts["unwrapped_records"] == before["unwrapped_records"]
        await transact(True, False, True)
        await flow.check(topic, isolation=READ_COMMITTED)
        assert flow.counts()["unwrapped_records"] > before["unwrapped_records"]
        assert not flow.events("flow-stopped")
