"""A real mirror while `deep-topics` changes again and again: envelopes on their way are opened, and nothing is lost."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from shoal.protocol.shallow.wrap.eligible import Reason
from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import fill
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.rig.flow import Wiring, flowing, logged

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

TIMES = 6


@pytest.mark.slow
async def test_topics_become_deep_and_are_wrapped_again(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    bootstrap = pair.source.bootstrap
    await Topics(bootstrap).create(topic, 1)
    await fill(bootstrap, topic, orders(20_000), compression_type="zstd")

    async with flowing(pair, aliases, tmp_path, Wiring(topics=topic, tasks=1, tables={})) as flow:
        await flow.until_wrapped(1)
        config = tmp_path / "shoal.toml"
        text = config.read_text()
        for number in range(1, TIMES + 1):
            shallow = f'mode = "wrap"\nshallow = {{ deep-topics = ["{topic if number % 2 else "nothing"}"] }}'
            config.write_text(text.replace('mode = "wrap"', shallow))
            os.kill(flow.shoal.pid, signal.SIGHUP)
            await until(lambda n=number: len(logged(flow.shoal, "reloaded")) == n, within=20, what="a reload")  # type: ignore[misc]
            await fill(bootstrap, topic, orders(10_000, seed=number), compression_type="zstd")
        await flow.check(topic)
        applied = [line["applied"] for line in logged(flow.shoal, "reloaded")]
        assert applied == [["listener 'source': shallow.deep-topics"]] * TIMES
    counts = flow.counts("total")
    assert counts["wrapped_batches"] > 0
    assert counts[Reason.DEEP_TOPIC] > 0
