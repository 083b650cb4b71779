"""Topics of `same-offsets` whose copies the target's brokers don't know as mirror topics, with `--without-agent`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, fill
from shoal.scenarios.kafka.mirror import Mirror
from tests.brokers.mirror.rig.flow import flowing
from tests.brokers.mirror.rig.steady import PARTITIONS, put, wrapped_more
from tests.brokers.mirror.same_offsets.rig import until_equal, until_stopped, wiring

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

ORDINARY = ("--without-agent", "ordinary")
PATTERN = "(no-)?so-.*"


@pytest.mark.slow
async def test_it_is_mirrored_as_an_ordinary_one(
    offsets_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path
) -> None:
    """Nothing of it is given before, and it stays so when Shoal and the mirror begin again."""
    pair, ordinary = offsets_pair, f"no-{kept}"
    source = Topics(pair.source.bootstrap)
    for name in (kept, ordinary):
        await source.create(name, PARTITIONS)
        await put(pair, name, 2_000, seed=1)
    wired = wiring(f"{kept},{ordinary}", same_offsets=PATTERN, flags=ORDINARY)
    async with flowing(pair, aliases, tmp_path, wired) as flow:
        await flow.until_said(f"{ordinary} is mirrored as an ordinary topic")
        await until_equal(flow, kept)
        await flow.check(ordinary)
        flow.shoal.kill()
        await flow.shoal.start()
        flow.running.kill()
        flow.mirror = await Mirror.start(tmp_path, flow.spec)
        for seed in range(2, 6):
            for name in (kept, ordinary):
                await put(pair, name, 2_000, seed=seed)
        await wrapped_more(flow)
        await until_equal(flow, kept)
        await flow.check_faithful(ordinary, duplicates=2_000)
        assert {line["topic"] for line in flow.events("same-offsets-ordinary")} == {ordinary}
        assert flow.events("same-offsets-stopped") == []


@pytest.mark.slow
async def test_one_of_which_a_locator_was_given_never_becomes_ordinary(
    offsets_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path
) -> None:
    """What the mirror has passed meanwhile would be lost."""
    pair, ordinary = offsets_pair, f"no-{kept}"
    await Topics(pair.source.bootstrap).create(ordinary)
    await fill(pair.source.bootstrap, ordinary, orders(1_000), layout=Layout(run=200))
    async with flowing(pair, aliases, tmp_path, wiring(ordinary, same_offsets=PATTERN)) as flow:
        await until_stopped(flow, ordinary)
    log_before = len(flow.shoal.log.read_text())
    async with flowing(pair, aliases, tmp_path, wiring(ordinary, same_offsets=PATTERN, flags=ORDINARY)) as flow:
        await until_stopped(flow, ordinary)
        assert flow.events("same-offsets-ordinary") == []
        assert await Topics(pair.target.bootstrap).ends(flow.remote(ordinary)) == {0: 0}
    assert len(flow.shoal.log.read_text()) > log_before
