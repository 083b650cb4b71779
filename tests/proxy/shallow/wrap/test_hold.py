"""Answers of the wrap listener that the interlock holds.

Scripted rules decide; test_topics.py has the real ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from shoal.protocol.shallow.interlock.rules import AlwaysWrap, HandedOut, PartitionData, Raw, Review, Withhold
from shoal.proxy.statistics import CloseCause
from tests.support.rig import until
from tests.support.shallow.rig import ShallowRig, shallow_rig
from tests.support.shallow.sets import LOG, P0, P1, spans

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from trio.testing import MockClock

    from shoal.protocol.shallow.interlock.flow import Flow

pytestmark = pytest.mark.usefixtures("lane")


@pytest.fixture
async def r() -> AsyncIterator[ShallowRig]:
    async with shallow_rig(paired=False, min_batch_bytes=0) as rig:
        yield rig


class Rules(AlwaysWrap):
    """Hold partition 1 until released, and remember what is reported as given."""

    def __init__(self) -> None:
        super().__init__(salt=bytes(16), first_serial=1, token=1)
        self.seconds = 3.0
        self.paused_until = -1.0
        self.gave: list[tuple[int, int, int | None]] = []
        self.left = 0

    def hold(self, flow: Flow, partitions: Sequence[PartitionData], now: float) -> Sequence[float | None]:
        return [now + self.seconds if self.seconds and data.read.partition else None for data in partitions]

    def review(
        self, flow: Flow, partitions: Sequence[PartitionData], waits: Sequence[float | None], now: float
    ) -> Review:
        decisions = super().review(flow, partitions, waits, now).decisions
        held = [Withhold() if until else Raw() for until in waits]
        return Review([held[at] if data.read.partition else decisions[at] for at, data in enumerate(partitions)])

    def pause_until(self, flow: Flow, now: float) -> float | None:
        return self.paused_until if now < self.paused_until else None

    def disconnected(self, flow: Flow, connection: int, now: float) -> None:
        self.left += 1

    def commit(self, flow: Flow, review: Review, handed_out: Sequence[HandedOut | None], now: float) -> None:
        super().commit(flow, review, handed_out, now)
        given = [handed for handed in handed_out if handed is not None]
        self.gave += [(handed.read.partition, handed.read.next_offset, handed.raw_next) for handed in given]


@pytest.fixture
def rules(r: ShallowRig) -> Rules:
    made = Rules()
    r.wrap.interlock.rules = made
    return made


async def test_a_partition_that_has_to_wait_too_long_is_answered_without_records(
    r: ShallowRig, rules: Rules, clock: MockClock
) -> None:
    r.source.sets = [{P0: LOG, P1: LOG}, {P1: LOG}]
    client = await r.consumer()
    begin = trio.current_time()
    await client.send(client.request({P0: 100, P1: 100}))
    sets = await client.record_sets()
    assert trio.current_time() - begin == 10
    assert spans(sets[P0]) == [None] * 4 + [(104, 114)]
    assert sets[P1] == b""
    assert rules.gave == [(0, 115, 104)], "what was not given does not count as given"
    rules.seconds = 0
    assert await client.fetch(100, 1) == LOG
    assert rules.gave[1:] == [(1, 115, 115)]


async def test_a_paused_mirror_gets_its_answer_when_the_pause_ends(
    r: ShallowRig, rules: Rules, clock: MockClock
) -> None:
    r.source.sets = [{P0: LOG}]
    rules.paused_until = trio.current_time() + 4
    client = await r.consumer()
    assert spans(await client.fetch(100))[4:] == [(104, 114)]
    assert trio.current_time() == rules.paused_until


async def test_an_answer_without_records_waits_for_nothing(r: ShallowRig, rules: Rules, clock: MockClock) -> None:
    rules.paused_until = begin = trio.current_time() + 4
    client = await r.consumer()
    await client.ask(100)
    await client.frame()
    assert trio.current_time() < begin


async def test_whoever_leaves_while_its_answer_is_held_is_forgotten(
    r: ShallowRig, rules: Rules, clock: MockClock
) -> None:
    r.source.sets = [{P1: LOG}]
    client = await r.consumer()
    await client.ask(100, 1)
    await until(lambda: len(r.source.requests) == 1)
    await client.stream.aclose()
    await trio.sleep(6)  # Limits.close_seconds: the clock jumps only when all tasks wait
    assert await r.closed("from") == {CloseCause.CLIENT_CLOSED: 1}
    assert (rules.gave, rules.left) == ([], 1)


async def test_draining_completes_a_held_answer(r: ShallowRig, rules: Rules, clock: MockClock) -> None:
    r.source.sets = [{P0: LOG}]
    rules.paused_until = trio.current_time() + 4
    client = await r.consumer()
    await client.ask(100)
    await until(lambda: len(r.source.requests) == 1)
    r.server.drain()
    assert spans(await client.record_set())[4:] == [(104, 114)]
    assert await client.at_end()
    await client.stream.aclose()
    assert await r.closed("from") == {CloseCause.DRAINED: 1}
