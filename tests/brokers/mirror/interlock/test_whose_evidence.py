"""Records that come back to the target listener from another producer than the mirror's own.

A relay is before both listeners of Shoal, and connects from 127.0.0.2 to represent another host.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import pytest

from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.rig.copier import Copier
from tests.brokers.mirror.rig.flow import WITHIN, Flow, Wiring, flowing
from tests.brokers.mirror.rig.steady import put
from tests.support.kafka.relay import RELAY_HOST, relay

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

pytestmark = pytest.mark.slow

HERE = "127.0.0.1"


class Second(NamedTuple):
    """A second mirror that copies the first one's copy: its address, the name of its copies, and Shoal's message."""

    address: str
    copy: str
    told: str


SECONDS = {
    "another host": Second(RELAY_HOST, "{remote}", f"from {RELAY_HOST}, not from {HERE}"),
    "the same host": Second(HERE, "{target}.{remote}", "which is made of a copy in {target};"),
}


async def until_strayed(flow: Flow, topic: str, *, times: int = 1) -> list[str]:
    """Write records until this many tokens were brought by another mirror; -> the messages."""
    seeds = count(1)

    async def have_strayed() -> bool:
        await put(flow.pair, topic, 300, seed=next(seeds), partitions=1)
        return len(flow.events("flow-strayed")) >= times

    await until(have_strayed, within=WITHIN, what="a record with a token to stray", poll_s=0.5)
    return [str(event["message"]) for event in flow.events("flow-strayed")]


@pytest.mark.parametrize("second", SECONDS.values(), ids=SECONDS)
async def test_a_mirror_past_shoal_of_whose_copy_another_makes_one_through_it(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path, second: Second
) -> None:
    await Topics(pair.source.bootstrap).create(topic, 1)
    wiring = Wiring(topics=topic, tasks=1, host=RELAY_HOST, producer=pair.target.bootstrap)
    async with flowing(pair, aliases, tmp_path, wiring) as flow:
        source, target = flow.ports
        remote = flow.remote(topic)
        copy = second.copy.format(remote=remote, target=aliases.target)
        copy = f"{copy}.copy" if copy == remote else copy
        for name in (remote, copy):
            await Topics(pair.target.bootstrap).create(name, 1)
        through_shoal = f"{RELAY_HOST}:{flow.target_port}"
        async with relay(*source), relay(*target, address=second.address):
            with Copier(source=pair.target.bootstrap, topic=remote, target=through_shoal, copy=copy, delay=0.0):
                (told,) = await until_strayed(flow, topic)
                for seed in range(50, 60):
                    await put(pair, topic, 1_000, seed=seed, partitions=1)
                everything = await Topics(pair.source.bootstrap).total(topic)
                copies, process = Topics(pair.target.bootstrap), flow.running.process
                await copies.until_total(remote, everything, within=WITHIN, process=process)
                await copies.until_total(copy, everything, within=WITHIN, process=process)
            await flow.running.stop()
        assert second.told.format(target=aliases.target) in told
        assert f"Does {aliases.target}.producer.bootstrap.servers " in told
        assert await pair.envelopes() == []
    assert flow.counts("total")["envelopes"] == 0
    assert not flow.events("flow-proven")


async def test_a_mirror_of_two_addresses_is_told_what_to_do(
    pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    await Topics(pair.source.bootstrap).create(topic, 1)
    async with flowing(pair, aliases, tmp_path, Wiring(topics=topic, tasks=1, host=RELAY_HOST)) as flow:
        source, target = flow.ports
        async with relay(*source), relay(*target, address=RELAY_HOST):
            (told,) = await until_strayed(flow, topic)
            await flow.check(topic)
            await flow.running.stop()
        assert f"from {RELAY_HOST}, not from {HERE}" in told
        assert "--any-producer" in told
    assert flow.counts("total")["envelopes"] == 0


async def test_and_is_wrapped_when_that_is_done(pair: Pair, topic: str, aliases: Aliases, tmp_path: Path) -> None:
    await Topics(pair.source.bootstrap).create(topic, 1)
    wiring = Wiring(topics=topic, tasks=1, host=RELAY_HOST, shoal=("--any-producer",))
    async with flowing(pair, aliases, tmp_path, wiring) as flow:
        source, target = flow.ports
        async with relay(*source), relay(*target, address=RELAY_HOST):
            for seed in range(5):
                await put(pair, topic, 1_000, seed=seed, partitions=1)
                await flow.check(topic)
            await flow.until_opened()
            await flow.running.stop()
    assert flow.counts("total")["wrapped_records"] > 0
