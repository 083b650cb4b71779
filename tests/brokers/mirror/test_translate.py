"""`shoal translate` against what really is at the offsets, with a stock MirrorMaker 2. `make ops` has more offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from confluent_kafka import Consumer, TopicPartition

from shoal.scenarios.kafka.content.topics import Topics
from tests.brokers.mirror.rig.flow import Wiring, flowing
from tests.brokers.mirror.rig.steady import PARTITIONS, put, warm_up
from tests.brokers.mirror.rig.translated import ask, check_offsets

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair


async def commit(bootstrap: str, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """As a consumer of the group does."""
    committed = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]

    def run() -> None:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
        try:
            consumer.commit(offsets=committed, asynchronous=False)
        finally:
            consumer.close()

    await trio.to_thread.run_sync(run)


@pytest.mark.slow
async def test_offsets_and_groups_through_a_kill_of_shoal(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    await Topics(pair.source.bootstrap).create(topic, PARTITIONS)
    async with flowing(pair, aliases, tmp_path, Wiring(topics=topic)) as flow:
        await warm_up(pair, topic, flow)
        flow.shoal.kill()
        await flow.shoal.start()
        await put(pair, topic, 4_000, seed=2)
        await flow.check_faithful(topic, duplicates=10_000)
        found = await check_offsets(flow, topic, 200)
        assert (found.exact, found.wrong) == (200, 0), found
        assert found.why["appended"] > 0
        back = await check_offsets(flow, topic, 200, to_source=True)
        assert back.wrong == 0, back
        alone = await check_offsets(flow, topic, 200, online=False)
        assert alone.wrong == 0, alone
        ends = await Topics(pair.source.bootstrap).ends(topic)
        committed = {0: ends[0], 1: ends[1] // 2}
        await commit(pair.source.bootstrap, f"group-{topic}", topic, committed)
        brokers = [f"--source-bootstrap={pair.source.bootstrap}", f"--target-bootstrap={pair.target.bootstrap}"]
        file = tmp_path / "reset.csv"
        answer = await ask(flow, "--group", f"group-{topic}", "--reset-file", str(file), *brokers)
        copies = await Topics(pair.target.bootstrap).ends(flow.remote(topic))
        rows = {row["partition"]: row for row in answer["offsets"]}
        assert {number: row["offset"] for number, row in rows.items()} == committed
        assert all(row["exact"] for row in rows.values()), rows
        assert rows[0]["translated"] == copies[0]
        lines = [f"{flow.remote(topic)},{number},{row['translated']}" for number, row in sorted(rows.items())]
        assert file.read_text().splitlines() == lines
