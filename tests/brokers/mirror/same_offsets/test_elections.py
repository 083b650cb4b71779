"""Leaders that lack records, at the target and at the source, and leaders without the agent."""

from __future__ import annotations

import os
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from shoal.scenarios.demo_offsets.replicas import log_end
from shoal.scenarios.kafka.content.copies import Copy, read_copy
from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, Transaction, fill, fill_transactions
from shoal.scenarios.kafka.mirror import Mirror
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.rig.flow import WITHIN, Flow, flowing
from tests.brokers.mirror.rig.steady import steady
from tests.brokers.mirror.same_offsets.rig import until_ends_equal, until_equal, until_stopped, wiring
from tests.brokers.mirror.same_offsets.three import (
    ON_THREE,
    create_on,
    move,
    until_in_sync,
    until_led,
    until_replicas_are_equal,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Node
    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

pytestmark = pytest.mark.slow

TENS = Layout(run=10, exact=True)
HUNDREDS = Layout(run=100, exact=True)
_ONE = {"min.insync.replicas": "1"}
_UNCLEAN = {**_ONE, "unclean.leader.election.enable": "true"}
_UNSYNCED = {"sync.topic.configs.enabled": "false"}


async def until_log_ends(node: Node, copy: str, end: int) -> None:
    await until(
        lambda: log_end(node.data / f"{copy}-0") == end, within=WITHIN, what=f"the log of {copy} to end at {end}"
    )


async def copied(flow: Flow, topic: str) -> Copy:
    return await read_copy(flow.pair.target.bootstrap, flow.remote(topic))


async def test_a_stale_replica_behind_a_gap_at_an_election(
    three_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path
) -> None:
    """It has 110 to 119 of the old epoch; then the source deletes them, and the new epoch begins with a gap."""
    pair, target = three_pair, three_pair.target
    old, *others = target.nodes.values()
    await Topics(pair.source.bootstrap).create(kept)
    await create_on(target, f"{aliases.source}.{kept}", [old, *others], _ONE)
    await create_on(target, f"not-{kept}", [old, *others], _ONE)
    await fill(pair.source.bootstrap, kept, orders(110), layout=TENS)
    async with flowing(pair, aliases, tmp_path, wiring(kept, extra={**ON_THREE, **_UNSYNCED})) as flow:
        copy = flow.remote(kept)
        await until_equal(flow, kept)
        before = await copied(flow, kept)
        for node in others:
            os.kill(node.process.pid, signal.SIGSTOP)
        await fill(old.address, f"not-{kept}", orders(1), acks=1)  # it answers the fetches that still wait
        await fill(pair.source.bootstrap, kept, orders(10, seed=1), layout=TENS)
        await until_log_ends(old, copy, 120)
        flow.running.kill()  # it would send them to the next leader
        old.kill()
        for node in others:
            os.kill(node.process.pid, signal.SIGCONT)
        second = await until_led(target, copy)
        await fill(pair.source.bootstrap, kept, orders(990, seed=2), layout=TENS)
        await Topics(pair.source.bootstrap).delete_records(kept, {0: 1110})
        flow.mirror = await Mirror.start(tmp_path, flow.spec)
        await fill(pair.source.bootstrap, kept, orders(10, seed=3), layout=TENS)
        await until_ends_equal(flow, kept)
        assert [(line["from_offset"], line["to_offset"]) for line in flow.events("same-offsets-expired")] == [
            (110, 1109)
        ]
        (third,) = [node for node in others if node is not second]
        await move(target, copy, [third, second, old])
        await old.start()
        await fill(pair.source.bootstrap, kept, orders(10, seed=4), layout=TENS)
        await until_ends_equal(flow, kept)
        await until_replicas_are_equal([old, *others], copy)
        ours, theirs = await read_copy(pair.source.bootstrap, kept), await copied(flow, kept)
        wanted, found = [before.partitions[0], ours.partitions[0]], theirs.partitions[0]
        assert list(found.offsets) == [*range(110), *range(1110, 1130)]
        assert list(found.fingerprints) == [one for part in wanted for one in part.fingerprints]
        assert await pair.envelopes() == []


async def test_a_copy_that_has_lost_its_tail_in_an_unclean_election(
    three_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path
) -> None:
    pair, target = three_pair, three_pair.target
    leader, follower, _ = target.nodes.values()
    await Topics(pair.source.bootstrap).create(kept)
    await create_on(target, f"{aliases.source}.{kept}", [leader, follower], _UNCLEAN)
    await fill(pair.source.bootstrap, kept, orders(500), layout=HUNDREDS)
    async with flowing(pair, aliases, tmp_path, wiring(kept, extra={**ON_THREE, **_UNSYNCED})) as flow:
        copy = flow.remote(kept)
        await until_equal(flow, kept)
        follower.kill()
        await until_in_sync(target, copy, [leader])
        await fill(pair.source.bootstrap, kept, orders(300, seed=1), layout=TENS)
        await until_equal(flow, kept)
        leader.kill()
        await follower.start()
        assert await until_led(target, copy) is follower
        assert log_end(follower.data / f"{copy}-0") == 500
        await fill(pair.source.bootstrap, kept, orders(100, seed=2), layout=HUNDREDS)
        await until_equal(flow, kept)
        await leader.start()
        await until_in_sync(target, copy, [leader, follower])
        await until_replicas_are_equal([leader, follower], copy)
        assert flow.events("same-offsets-stopped") == []


async def test_a_source_that_has_lost_its_tail_in_an_unclean_election(
    from_three: Pair, kept: str, aliases: Aliases, tmp_path: Path
) -> None:
    """What it has then at the same offsets is not mixed with what was copied, whatever its last batches are."""
    pair, source = from_three, from_three.source
    leader, follower, _ = source.nodes.values()
    plain, marked = f"{kept}-plain", f"{kept}-marked"
    for name in (plain, marked):
        await create_on(source, name, [leader, follower], _UNCLEAN)

    async def write(seed: int, count: int) -> None:
        await fill(source.bootstrap, plain, orders(100 * count, seed=seed), layout=HUNDREDS)
        made = [Transaction(records=tuple(orders(20, seed=seed + one)), commit=True) for one in range(count)]
        await fill_transactions(source.bootstrap, marked, made, transactional_id=f"{kept}-{seed}")

    await write(0, 3)
    async with flowing(pair, aliases, tmp_path, wiring(f"{plain},{marked}")) as flow:
        await until_equal(flow, plain, marked)
        follower.kill()
        for name in (plain, marked):
            await until_in_sync(source, name, [leader])
        await write(10, 2)
        await until_equal(flow, plain, marked)
        before = {name: await copied(flow, name) for name in (plain, marked)}
        leader.kill()
        await follower.start()
        for name in (plain, marked):
            assert await until_led(source, name) is follower
        await write(20, 4)
        for name in (plain, marked):
            await until_another(flow, name)
            assert (await copied(flow, name)).partitions == before[name].partitions
        await leader.start()
        assert await pair.envelopes() == []


async def until_another(flow: Flow, topic: str) -> None:
    def said() -> bool:
        events = [line for line in flow.events("same-offsets-stopped") if line["topic"] == topic]
        return any("is another than the log has there" in str(line["detail"]) for line in events)

    await until(said, within=WITHIN, what=f"{topic} to be found another", process=flow.shoal.process, poll_s=0.2)


@asynccontextmanager
async def without_agent(node: Node) -> AsyncIterator[None]:
    await restart(node, agent=False)
    try:
        yield
    finally:
        await restart(node, agent=True)


async def restart(node: Node, *, agent: bool) -> None:
    await node.stop()
    node.agent = agent
    await node.start()


async def test_leaders_without_the_agent(three_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path) -> None:
    """Their partitions wait until a broker with the agent leads them; a stock follower has what its leader has."""
    pair, target = three_pair, three_pair.target
    one, two, stock = target.nodes.values()
    no_mirror_topic = f"is no mirror topic on broker {stock.settings.node_id} of"
    led, other = f"{kept}-led", f"{kept}-other"
    async with without_agent(stock):
        for name, replicas in ((led, [stock, one, two]), (other, [one, stock, two])):
            await Topics(pair.source.bootstrap).create(name)
            await create_on(target, f"{aliases.source}.{name}", replicas, _ONE)
            await fill(pair.source.bootstrap, name, orders(500), layout=TENS)
        async with flowing(pair, aliases, tmp_path, wiring(f"{led},{other}", extra={**ON_THREE, **_UNSYNCED})) as flow:
            assert no_mirror_topic in await until_stopped(flow, led)
            await until_equal(flow, other)
            assert await Topics(target.bootstrap).ends(flow.remote(led)) == {0: 0}
            await move(target, flow.remote(led), [one, stock, two])
            await until_equal(flow, led)

            async with steady(pair, other, partitions=1):
                await move(target, flow.remote(other), [stock, one, two])
                assert no_mirror_topic in await until_stopped(flow, other)
                await move(target, flow.remote(other), [two, stock, one])
            await until_equal(flow, led, other)
            for name in (led, other):
                await until_replicas_are_equal([one, two, stock], flow.remote(name))
