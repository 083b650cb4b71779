"""Batches below min-batch-bytes: left to the mirror, or wrapped if the target is proven to take sets of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from tests.support.shallow.brokers import ORDERS
from tests.support.shallow.mirror import COPY, FIRST, SIZE, Mirror, has_token, log, logs, rest
from tests.support.shallow.proofs import Vouched, vouch
from tests.support.shallow.rig import shallow_rig
from tests.support.shallow.world import poll, produced

if TYPE_CHECKING:
    from shoal.proxy.cluster.multi_batch import ProbeConnection


async def test_tiny_batches_stay_raw_until_the_target_is_proven(clock: object) -> None:
    async with shallow_rig() as r:
        proof = Vouched()
        proof.holds = False
        vouch(r, proof, topic=COPY)
        r.source.sets = [{(ORDERS, 0): log(number)} for number in range(9)]
        mirror = await Mirror.of(r, node=1)
        assert [await mirror.copy() for _ in range(4)] == [False] * 4
        proof.holds = True
        assert [await mirror.copy() for _ in range(3)] == [False, True, True]
        before = len(r.target.requests)
        proof.holds = False
        assert [await mirror.copy() for _ in range(2)] == [True, False]
        assert len(r.target.requests) == before + 3, "an envelope that is under way goes one by one"
        assert mirror.copied == logs(9)


class Asking(Vouched):
    """A proof that the test completes."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = False
        self.asked, self.answered = trio.Event(), trio.Event()

    async def ensure(self, connection: ProbeConnection) -> bool:
        self.asked.set()
        await self.answered.wait()
        return self.holds


async def token_under_way(mirror: Mirror) -> None:
    """A token is given, and produced after the request for the proof."""
    seen = poll(await mirror.consumer.fetch(SIZE))
    assert has_token(seen)
    await mirror.producer.send(mirror.producer.request({(COPY, 0): produced(seen)}))
    mirror.r.source.sets.insert(0, {(ORDERS, 0): rest(1)})


@pytest.mark.parametrize("takes_sets", [True, False])
async def test_tiny_batches_wait_while_the_target_is_asked(clock: object, takes_sets: bool) -> None:
    async with shallow_rig() as r, trio.open_nursery() as nursery:
        proof = Asking()
        vouch(r, proof, topic=COPY)
        r.source.sets = [{(ORDERS, 0): log(number)} for number in range(2)]
        mirror = await Mirror.of(r, node=1)
        nursery.start_soon(mirror.produce, await mirror.fetch())
        await proof.asked.wait()
        await token_under_way(mirror)
        await mirror.consumer.ask(SIZE + FIRST)
        await trio.sleep(4)
        proof.holds, answered_at = takes_sets, trio.current_time()
        proof.answered.set()
        seen = poll(await mirror.consumer.record_set())
        assert len(seen) == (1 if takes_sets else SIZE - FIRST)
        assert trio.current_time() - answered_at < 1


async def test_tiny_batches_wait_no_longer_than_an_answer_may_be_held(clock: object) -> None:
    async with shallow_rig() as r, trio.open_nursery() as nursery:
        proof = Asking()
        vouch(r, proof, topic=COPY)
        r.source.sets = [{(ORDERS, 0): log(number)} for number in range(2)]
        mirror = await Mirror.of(r, node=1)
        nursery.start_soon(mirror.produce, await mirror.fetch())
        await proof.asked.wait()
        begin = trio.current_time()
        await token_under_way(mirror)
        assert len(poll(await mirror.consumer.fetch(SIZE + FIRST))) == SIZE - FIRST
        assert 9 < trio.current_time() - begin < 11
        proof.answered.set()
