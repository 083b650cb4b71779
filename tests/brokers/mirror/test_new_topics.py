"""A small topic is not fully read before it is proven: most of it is sent in envelopes, also if another topic was
proven first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, fill
from tests.brokers.mirror.rig.flow import Wiring, flowing

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

RECORDS = 112_000
BATCHES = RECORDS // 350  # of 31 kB: 10 MB


def assert_mostly_wrapped(before: Counter[str], after: Counter[str], batches: int) -> None:
    raw = after["no_evidence"] - before["no_evidence"]
    wrapped = after["wrapped_batches"] - before["wrapped_batches"]
    print(f"{wrapped} batches wrapped, {raw} raw before the proof")
    assert wrapped > 0.8 * batches
    assert wrapped + raw <= 1.2 * batches, "the figures are not those of these topics"


async def test_a_small_topic_created_while_running(pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    bootstrap, topics = pair.source.bootstrap, Topics(pair.source.bootstrap)
    first, second = f"{topic}-first", f"{topic}-second"
    await topics.create(first, 1)
    await fill(bootstrap, first, orders(20_000), compression_type="zstd")

    async with flowing(pair, aliases, tmp_path, Wiring(topics=f"{topic}-.*", tasks=1)) as flow:
        await flow.until_wrapped(1)
        await flow.check(first)
        before = flow.counts()
        await topics.create(second, 4)
        await fill(bootstrap, second, orders(RECORDS), layout=Layout(partitions=4), compression_type="zstd")
        await flow.check(second)

    assert_mostly_wrapped(before, flow.counts("total"), BATCHES)


@pytest.mark.slow
async def test_small_topics_behind_one_another_after_a_restart(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    """MM2 restarts its task for every new topic, so here several topics are proven in one flow."""
    bootstrap, topics = pair.source.bootstrap, Topics(pair.source.bootstrap)
    names = [f"{topic}-{name}" for name in ("first", "second", "third")]
    await topics.create(names[0], 1)
    await fill(bootstrap, names[0], orders(20_000), compression_type="zstd")

    async with flowing(pair, aliases, tmp_path, Wiring(topics=f"{topic}-.*", tasks=1)) as flow:
        await flow.check(names[0])
        before = flow.counts()
        assert await flow.running.stop()
        for name in names[1:]:
            await topics.create(name, 1)
        for name in names:
            await fill(bootstrap, name, orders(RECORDS, seed=2), compression_type="zstd")
        flow.running.restart()
        await flow.check(*names)

    assert_mostly_wrapped(before, flow.counts("total"), 3 * BATCHES)
