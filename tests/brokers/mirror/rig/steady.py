"""Continuous writes, so that a fault hits a working mirror; and checks that it works."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from shoal.protocol.shallow.unwrap.sequences.own import MAX_IN_FLIGHT
from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.traffic import Layout, fill

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.brokers.mirror.rig.flow import Flow
    from tests.support.kafka.clusters import Pair

PARTITIONS = 2
RUN = 100  # records of a batch, about 9 kB in zstd
# Duplicates of MM2 alone after a lost answer: its outer batch in flight, per partition. Through Shoal an outer batch is
# one envelope (or a plain batch of 16 kB), and at most one batch of an envelope is in doubt.
ENVELOPE_RECORDS = 512 * 1024 // 9_000 * RUN
# Duplicates of a Shoal that is killed: what was in flight to the target, or a plain batch of the mirror, per partition.
KILL_RECORDS = (MAX_IN_FLIGHT + 2) * RUN


@asynccontextmanager
async def steady(pair: Pair, topic: str, records: int = 1_000, *, partitions: int = PARTITIONS) -> AsyncIterator[None]:
    """Write records during the block, so that a fault in it hits a working mirror."""
    over = trio.Event()

    async def produce() -> None:
        seed = 1_000
        while not over.is_set():
            seed += 1
            await put(pair, topic, records, seed=seed, partitions=partitions)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce)
        yield
        over.set()


async def put(pair: Pair, topic: str, records: int, *, seed: int, partitions: int = PARTITIONS) -> None:
    """Produce; wait for a source broker that restarts."""
    layout = Layout(partitions=partitions, run=RUN)
    await fill(
        pair.source.bootstrap,
        topic,
        orders(records, seed=seed),
        layout=layout,
        compression_type="zstd",
        enable_idempotence=True,
        message_timeout_ms=120_000,
    )


async def wrapped_more(flow: Flow, records: int = 2_000) -> None:
    """Wait until the mirror copies with envelopes (again)."""
    await flow.until_wrapped(flow.counts()["wrapped_records"] + records)


async def warm_up(pair: Pair, topic: str, flow: Flow, *, partitions: int = PARTITIONS) -> None:
    """Wait until the mirror copies with envelopes and has caught up."""
    async with steady(pair, topic, partitions=partitions):
        await wrapped_more(flow, 1)
    await flow.check_faithful(topic, duplicates=0)
