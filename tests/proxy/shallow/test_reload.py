"""A pair of listeners gets other settings while envelopes are in the mirror: each is still opened, and nothing is lost.

The clock jumps when all tasks wait.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.shallow.brokers import ORDERS
from tests.support.shallow.mirror import Mirror, log, logs
from tests.support.shallow.rig import ShallowRig, shallow_rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock


@pytest.fixture
async def r() -> AsyncIterator[ShallowRig]:
    async with shallow_rig(min_batch_bytes=0) as rig:
        rig.source.sets = [{(ORDERS, 0): log(number)} for number in range(30)]
        yield rig


async def change(r: ShallowRig, name: str = "from", **values: Any) -> None:
    """Reload with other values of `[listener.shallow]`."""
    former = r.server.settings
    listeners = tuple(
        replace(x, shallow=replace(x.shallow, **values)) if x.name == name else x for x in former.listeners
    )
    assert await r.server.reconfigure(lambda: replace(former, listeners=listeners), r.paths.of) is not None


async def test_a_topic_becomes_deep_while_its_envelope_is_in_the_mirror(r: ShallowRig, clock: MockClock) -> None:
    mirror = await Mirror.of(r)
    await mirror.prove()
    envelope = await mirror.fetch()
    assert len(envelope) == 1
    await change(r, deep_topics=(ORDERS,))
    await mirror.produce(envelope)
    assert [await mirror.copy() for _ in range(3)] == [False] * 3
    await change(r, deep_topics=())
    assert [await mirror.copy() for _ in range(3)] == [True] * 3, "its connections are as proven as before"
    assert mirror.copied == logs(9)
    assert not any(r.server.listeners["to"].tally.closed.values())


async def test_smaller_envelopes(r: ShallowRig, clock: MockClock) -> None:
    mirror = await Mirror.of(r)
    await mirror.prove()
    for limit in (300_000, 100_000, 400_000):
        envelope = await mirror.fetch()
        await change(r, run_limit=limit, tags={"limit": str(limit)})
        await mirror.produce(envelope)
    assert await mirror.copy()
    assert mirror.copied == logs(6)


async def test_a_reopened_wrapping_listener_begins_unproven(r: ShallowRig, clock: MockClock) -> None:
    """Its former envelopes are opened; the new one wraps nothing before the mirror has proven itself to it."""
    paths = r.server.listeners["to"].path
    mirror = await Mirror.of(r)
    await mirror.prove()
    envelope = await mirror.fetch()
    assert len(envelope) == 1
    await change(r, evidence_seconds=30.0)
    assert r.server.listeners["to"].path is paths
    await mirror.produce(envelope)
    again = await r.consumer()
    mirror.consumer = again
    assert not await mirror.copy(), "an envelope without a proof"
    assert [await mirror.copy() for _ in range(2)] == [True] * 2
    assert mirror.copied == logs(6)
