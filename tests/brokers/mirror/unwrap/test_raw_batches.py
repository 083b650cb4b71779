"""Raw batches above `max.message.bytes` of the target's topic: Shoal cuts them, and no mirror repeats them for ever.

The client of Kafka 3.9 makes such a batch of itself again (KAFKA-8350); that of 4.3 makes smaller ones.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, fill
from tests.brokers.mirror.rig.flow import Wiring, flowing

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

PARTITIONS = 2
RECORDS = 20_000
TAKES = 40_000  # bytes of a batch; `shoal mirror` prints a batch.size of 131072
TINY = 3  # records of a batch: to a stock broker they are raw


@pytest.mark.parametrize("version", ["3.9.1", pytest.param("4.3.0", marks=pytest.mark.slow)])
async def test_raw_batches_above_the_target_s_limit_are_cut(
    version: str, pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    wiring = Wiring(topics=topic, tasks=1, version=version, extra={"sync.topic.configs.enabled": "false"})
    remote = f"{aliases.source}.{topic}"
    await Topics(pair.source.bootstrap).create(topic, PARTITIONS)
    await Topics(pair.target.bootstrap).create(remote, PARTITIONS, config={"max.message.bytes": str(TAKES)})
    await fill(pair.source.bootstrap, topic, orders(RECORDS, seed=8), layout=Layout(partitions=PARTITIONS, run=TINY))
    async with flowing(pair, aliases, tmp_path, wiring) as flow:
        counts = await flow.check_faithful(topic, duplicates=0)
        assert counts.missing == 0
        assert await pair.envelopes() == []
    again = re.findall("splitting and retrying", flow.running.log.read_text())
    print(f"{len(again)} batches were refused for their size")
    assert 1 <= len(again) < RECORDS // 10
