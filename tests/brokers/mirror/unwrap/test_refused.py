"""Batches that the target refuses because of their content: MirrorMaker 2 loses at most one batch of them, as without
Shoal.

    partition 0   a timestamp hours ahead              (message.timestamp.after.max.ms: an hour since Kafka 4)
    partition 1   a record without a key               (cleanup.policy = compact)
    partition 2   a record larger than the target takes  (max.message.bytes)

Each in the middle of many good batches. With `errors.tolerance = all` the mirror continues after it, otherwise its task
fails.
"""

from __future__ import annotations

import random
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from shoal.scenarios.kafka.content.copies import Copy, read_copy
from shoal.scenarios.kafka.content.records import EPOCH_MS, Record, orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, fill
from shoal.scenarios.kafka.mirror import running_mirror
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.rig.flow import WITHIN, Flow, Wiring, flowing, logged
from tests.brokers.mirror.rig.steady import RUN, steady, wrapped_more

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from shoal.scenarios.kafka.process import Process
    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

PARTITIONS = 3
LATE, NO_KEY, LARGE = range(PARTITIONS)
BATCHES = 40  # of each partition
BAD_BATCH = 20
LARGE_BYTES = 150_000
HOURS_MS = 5 * 3_600_000
PRODUCER_BATCH = 16 * 1024  # batch.size of MirrorMaker 2's producer: that much goes with a refused record without Shoal
SMALLEST = 300  # bytes of a record
TAKES = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
TAKES_NOT = {
    "message.timestamp.after.max.ms": "3600000",
    "cleanup.policy": "compact",
    "max.message.bytes": str(LARGE_BYTES * 2 // 3),
}
RECEIVED = 500_000_000  # by the reader that compares: a batch may be large without compression
FAILED = "will not recover until manually restarted"
REFUSED = "the target broker answered error 32"


def refusals(flow: Flow, what: str) -> list[dict[str, object]]:
    return [line for line in logged(flow.shoal, "partition-refused") if what in str(line["detail"])]


async def make_topics(pair: Pair, topic: str, remote: str, takes_not: dict[str, str]) -> None:
    await Topics(pair.source.bootstrap).create(topic, PARTITIONS, config=TAKES)
    await Topics(pair.target.bootstrap).create(remote, PARTITIONS, config=takes_not)


def settings(aliases: Aliases, tolerance: str) -> dict[str, str]:
    return {
        "errors.tolerance": tolerance,
        "sync.topic.configs.enabled": "false",  # else the target takes what the source takes
        f"{aliases.target}.offset.flush.interval.ms": "500",
        f"{aliases.source}.consumer.fetch.min.bytes": "200000",  # so that the batches come in long runs
        f"{aliases.source}.consumer.fetch.max.wait.ms": "1000",
    }


def troubled(kinds: tuple[int, ...]) -> Iterator[Record]:
    """Runs for the partitions in turn; in one of each of `kinds`, the middle record is bad."""
    records = orders(BATCHES * PARTITIONS * RUN, seed=77)
    for number, record in enumerate(records):
        batch, partition = number // RUN // PARTITIONS, number // RUN % PARTITIONS
        is_bad = partition in kinds and batch == BAD_BATCH and number % RUN == RUN // 2
        yield spoilt(record, partition) if is_bad else record


def spoilt(record: Record, partition: int) -> Record:
    if partition == LATE:
        return record._replace(timestamp=time.time_ns() // 1_000_000 + HOURS_MS)
    if partition == NO_KEY:
        return record._replace(key=None)
    return record._replace(value=random.Random(5).randbytes(LARGE_BYTES))


async def bring_trouble(pair: Pair, topic: str, kinds: tuple[int, ...]) -> None:
    layout = Layout(partitions=PARTITIONS, run=RUN)
    await fill(pair.source.bootstrap, topic, troubled(kinds), layout=layout, compression_type="zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """One partition: which records (by their place in it) are not on the target. All others are there once, in
    order.
    """

    places: list[int]
    until: int


def missing(ours: Copy, theirs: Copy, partition: int) -> Missing:
    source, target = ours.partitions[partition].fingerprints, theirs.partitions[partition].fingerprints
    there = set(target)
    assert [one for one in source if one in there] == list(target), f"out of order or twice in partition {partition}"
    return Missing(places=[at for at, one in enumerate(source) if one not in there], until=len(source))


async def copied(pair: Pair, topic: str, remote: str, process: Process, *, least: float = 0) -> tuple[Copy, Copy]:
    """Wait until the last record of each partition is there, and this many different ones."""
    ours = theirs = await read_copy(pair.source.bootstrap, topic, receive_message_max_bytes=RECEIVED)

    async def complete() -> bool:
        nonlocal theirs
        theirs = await read_copy(pair.target.bootstrap, remote)
        different = sum(len(set(partition.fingerprints)) for partition in theirs.partitions.values())
        ends = ((ours.partitions[one], theirs.partitions[one]) for one in range(PARTITIONS))
        return different >= least and all(
            there.fingerprints and there.fingerprints[-1] == here.fingerprints[-1] for here, there in ends
        )

    await until(complete, within=WITHIN, what="the last records to be copied", process=process, poll_s=1.0)
    return ours, theirs


async def check_last_comings(pair: Pair, topic: str, remote: str, process: Process) -> None:
    """Nothing is missing, and the last copies of records are in order."""
    everything = (await read_copy(pair.source.bootstrap, topic, receive_message_max_bytes=RECEIVED)).records
    ours, theirs = await copied(pair, topic, remote, process, least=everything)
    for partition in range(PARTITIONS):
        there = theirs.partitions[partition].fingerprints
        assert list(dict.fromkeys(reversed(there)))[::-1] == list(ours.partitions[partition].fingerprints)


@pytest.mark.slow
async def test_with_tolerance_only_the_refused_batch_is_missing(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    wiring = Wiring(topics=topic, tasks=1, extra=settings(aliases, "all"))
    await make_topics(pair, topic, f"{aliases.source}.{topic}", TAKES_NOT)
    async with flowing(pair, aliases, tmp_path, wiring) as flow:
        async with steady(pair, topic, partitions=PARTITIONS):
            await wrapped_more(flow)
        before = await flow.check_faithful(topic, duplicates=0)
        assert before.missing == 0
        await bring_trouble(pair, topic, (LATE, NO_KEY, LARGE))
        ours, theirs = await copied(pair, topic, flow.remote(topic), flow.running.process)
        for partition in (LATE, NO_KEY):
            lost = missing(ours, theirs, partition)
            bad = lost.until - (BATCHES - BAD_BATCH) * RUN + RUN // 2
            assert bad in lost.places
            assert lost.places == list(range(lost.places[0], lost.places[0] + len(lost.places)))
            assert len(lost.places) <= RUN
        large = missing(ours, theirs, LARGE)
        assert large.places == [large.until - (BATCHES - BAD_BATCH) * RUN + RUN // 2]
        assert await pair.envelopes() == []
        said = flow.shoal.log.read_text()
        assert REFUSED in said
        assert "a single record is too large" in said
    assert FAILED not in flow.running.log.read_text()


@pytest.mark.slow
async def test_mirrormaker_alone_loses_its_own_batch(pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    """For comparison with the test above."""
    wiring = Wiring(topics=topic, tasks=1, extra=settings(aliases, "all"))
    spec = replace(Flow(pair, aliases, tmp_path, wiring).spec, consumer=None, producer=None)
    await make_topics(pair, topic, spec.remote_topic(topic), TAKES_NOT)
    async with running_mirror(tmp_path, spec) as mirror:
        await bring_trouble(pair, topic, (LATE, NO_KEY, LARGE))
        ours, theirs = await copied(pair, topic, spec.remote_topic(topic), mirror.process)
        counts = [len(missing(ours, theirs, partition).places) for partition in range(PARTITIONS)]
    print(f"missing without Shoal, by partition: {counts}")
    assert all(1 <= one <= PRODUCER_BATCH // SMALLEST for one in counts)


@pytest.mark.slow
async def test_without_tolerance_a_restarted_task_finds_the_record_as_without_shoal(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    wiring = Wiring(topics=topic, tasks=1, extra=settings(aliases, "none"))
    remote = f"{aliases.source}.{topic}"
    await make_topics(pair, topic, remote, {"message.timestamp.after.max.ms": "3600000"})
    async with flowing(pair, aliases, tmp_path, wiring) as flow:
        async with steady(pair, topic, partitions=PARTITIONS):
            await wrapped_more(flow)
        await flow.check_faithful(topic, duplicates=0)
        await bring_trouble(pair, topic, (LATE,))
        for times in (1, 2, 3):
            await flow.running.process.until_printed(FAILED, within=WITHIN)
            await flow.running.stop()
            # The first time an envelope is refused, and its other batches are there; from then on MM2 has the records
            # themselves.
            assert len(refusals(flow, REFUSED)) == 1
            if times < 3:
                flow.running.restart()
        await Topics(pair.target.bootstrap).alter(remote, TAKES)
        flow.running.restart()
        # Records after the bad batch were appended before it, and again after it, as with MirrorMaker 2 alone.
        await check_last_comings(pair, topic, remote, flow.running.process)
        assert await pair.envelopes() == []


HUGE_RECORDS, HUGE_RECORD = 1_200, 60_000  # 72 MB: more than Shoal opens to cut a batch (rebatch.MAX_DECOMPRESSED)


def huge() -> Iterator[Record]:
    """Records that compress well, but not to nothing."""
    drawn = random.Random(3)
    for at in range(HUGE_RECORDS):
        yield Record(drawn.randbytes(200) + bytes(HUGE_RECORD - 200), b"%d" % at, EPOCH_MS + at)


@asynccontextmanager
async def unreadable(pair: Pair, topic: str) -> AsyncIterator[None]:
    """A topic of this test alone: the search for envelopes in all topics of the clusters cannot read it."""
    try:
        yield
    finally:
        await Topics(pair.source.bootstrap).delete(topic)


@pytest.mark.slow
async def test_a_batch_that_cannot_be_cut_is_no_endless_retry(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    """It is over the target's limit, and too much without compression: the mirror makes new batches of it after a
    restart.
    """
    wiring = Wiring(topics=topic, tasks=1, extra=settings(aliases, "none"))
    remote = f"{aliases.source}.{topic}"
    await make_topics(pair, topic, remote, {"max.message.bytes": str(2 * HUGE_RECORD)})
    async with unreadable(pair, topic), flowing(pair, aliases, tmp_path, wiring) as flow:
        async with steady(pair, topic, partitions=PARTITIONS):
            await wrapped_more(flow)
        await flow.check_faithful(topic, duplicates=0)
        await fill(
            pair.source.bootstrap,
            topic,
            huge(),
            layout=Layout(run=HUGE_RECORDS, exact=True),
            compression_type="zstd",
            queue_buffering_max_kbytes=200_000,
            batch_size=100_000_000,
            message_max_bytes=200_000_000,
        )
        await bring_trouble(pair, topic, ())
        await flow.running.process.until_printed(FAILED, within=WITHIN)
        assert "over max.message.bytes of the target topic, and cannot be cut in pieces that fit" in (
            flow.running.log.read_text()
        )
        await flow.running.stop()
        flow.running.restart()
        await check_last_comings(pair, topic, remote, flow.running.process)
        assert len(refusals(flow, "cannot be cut")) == 1
        # The target is equal to the source, so it has no envelope.
