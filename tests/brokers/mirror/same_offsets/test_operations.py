"""What operators do with mirror topics while a mirror works: promote, add partitions, delete records, two mirrors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shoal.proxy.cli.promote.command import main as promote
from shoal.scenarios.kafka.content.clients import in_thread
from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, Transaction, fill, fill_transactions
from shoal.scenarios.kafka.errors import TrafficFailed
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.rig.flow import WITHIN, flowing
from tests.brokers.mirror.rig.steady import steady, wrapped_more
from tests.brokers.mirror.same_offsets.rig import until_equal, until_stopped, wiring

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair


@pytest.mark.slow
async def test_a_promoted_copy_is_an_ordinary_topic(
    offsets_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path
) -> None:
    """Other producers are refused until then, in transactions too; its mirror waits from then on."""
    pair, other = offsets_pair, f"{kept}-other"
    source, target = Topics(pair.source.bootstrap), Topics(pair.target.bootstrap)
    for name in (kept, other):
        await source.create(name)
        await fill(pair.source.bootstrap, name, orders(1_000))
    async with flowing(pair, aliases, tmp_path, wiring(f"{kept},{other}")) as flow:
        await until_equal(flow, kept, other)
        copy = flow.remote(kept)
        once = [Transaction(records=tuple(orders(10, seed=6)), commit=True)]
        for idempotent in (False, True):
            with pytest.raises(TrafficFailed, match="POLICY_VIOLATION"):
                await fill(pair.target.bootstrap, copy, orders(10, seed=5), enable_idempotence=idempotent)
        with pytest.raises(TrafficFailed):
            await fill_transactions(pair.target.bootstrap, copy, once, transactional_id=f"{copy}-early")
        await fill(pair.source.bootstrap, kept, orders(100, seed=1))
        await until_equal(flow, kept)
        assert await in_thread(lambda: promote([copy, "--bootstrap", pair.target.bootstrap, "--force"])) == 0
        for idempotent in (False, True):
            await fill(pair.target.bootstrap, copy, orders(10, seed=5), enable_idempotence=idempotent)
        await fill_transactions(pair.target.bootstrap, copy, once, transactional_id=f"{copy}-late")
        for name in (kept, other):
            await fill(pair.source.bootstrap, name, orders(1_000, seed=2))
        assert "was promoted" in await until_stopped(flow, kept)
        await until_equal(flow, other)
        assert await target.ends(copy) == {0: 1_100 + 10 + 10 + 10 + 1}  # a marker


@pytest.mark.slow
async def test_partitions_are_added(offsets_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path) -> None:
    pair = offsets_pair
    source = Topics(pair.source.bootstrap)
    await source.create(kept)
    async with flowing(pair, aliases, tmp_path, wiring(kept)) as flow:
        await fill(pair.source.bootstrap, kept, orders(500))
        await until_equal(flow, kept)
        await source.add_partitions(kept, 3)
        await fill(pair.source.bootstrap, kept, orders(1_500, seed=1), layout=Layout(partitions=3))
        await until_equal(flow, kept)


async def test_the_log_start_of_the_source_is_followed(
    offsets_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path
) -> None:
    pair = offsets_pair
    source, target = Topics(pair.source.bootstrap), Topics(pair.target.bootstrap)
    await source.create(kept)
    await fill(pair.source.bootstrap, kept, orders(2_000))
    wired = wiring(kept, flags=("--follow-log-start",))
    async with flowing(pair, aliases, tmp_path, wired) as flow:
        await until_equal(flow, kept)
        await source.delete_records(kept, {0: 700})

        async def is_followed() -> bool:
            await fill(pair.source.bootstrap, kept, orders(10, seed=3))
            return (await target.spans(flow.remote(kept)))[0].begin == 700

        await until(is_followed, within=WITHIN, what="the copy to begin at 700", poll_s=1.0)
        await until_equal(flow, kept)


async def test_two_mirrors_of_one_topic_double_nothing(
    offsets_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path
) -> None:
    """Each with a Shoal of its own; their copies have the same name."""
    pair = offsets_pair
    await Topics(pair.source.bootstrap).create(kept, 2)
    second = type(aliases)(source=f"{aliases.source}x", target=aliases.target)
    same_name = {"replication.policy.separator": ".", "replication.policy.class": _IDENTITY}
    one, two = (wiring(kept, extra=same_name) for _ in range(2))
    async with (
        flowing(pair, aliases, tmp_path / "one", one) as flow,
        flowing(pair, second, tmp_path / "two", two) as other,
    ):
        async with steady(pair, kept):
            await wrapped_more(flow)
            await wrapped_more(other)
        await until_equal(flow, kept, renamed=False)


_IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


@pytest.mark.slow
async def test_an_exactly_once_mirror(offsets_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path) -> None:
    """Its transactions leave no marker in a mirror topic."""
    pair = offsets_pair
    await Topics(pair.source.bootstrap).create(kept, 2)
    async with flowing(pair, aliases, tmp_path, wiring(kept, exactly_once=True)) as flow:
        async with steady(pair, kept):
            await wrapped_more(flow)
            flow.shoal.kill()
            await flow.shoal.start()
            await wrapped_more(flow)
        await until_equal(flow, kept)
