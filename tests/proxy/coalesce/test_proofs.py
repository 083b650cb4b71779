"""A coalescing listener and the proof of sets: over any connection, a broker gets sets only if proven to store them.

Clients connect and disconnect, the broker's habits change, and some or all of its connections end. The broker itself
checks what it receives.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from shoal.protocol.schema.api import ApiKey
from tests.support.coalesce_rig import NODE, ORDERS, CoalesceRig, batch, coalesce_rig, values
from tests.support.multibatch.broker import Habits
from tests.support.multibatch.brokers import Behind
from tests.support.multibatch.unproven import Watching, bad

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.rig import BrokerSide
    from tests.support.shallow.rig import Producer

STORES = Habits(node_ids=(NODE,))
BAD = bad(STORES)
LINGER = 0.003


OTHER = replace(STORES, cluster_id="another")


@dataclass
class Stage:
    rig: CoalesceRig
    target: Watching
    carriers: list[BrokerSide]
    numbers: count[int] = field(default_factory=count)
    clients: list[Producer] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)

    async def wave(self, width: int = 4) -> None:
        """A batch from each of this many clients for one partition, at once, until acknowledged."""
        while len(self.clients) < width:
            self.clients.append(await self._client())
        async with trio.open_nursery() as nursery:
            for place in range(width):
                nursery.start_soon(self._send, place, f"v{next(self.numbers)}")

    async def _client(self) -> Producer:
        client = await self.rig.producer()
        client.client_id = f"client-{next(self.numbers)}"  # one without errors
        return client

    async def _send(self, place: int, value: str) -> None:
        for _ in range(4):
            try:
                await self.clients[place].send_only({0: batch(value)})
                ((code, _),) = (await self.clients[place].answers()).values()
            except (AssertionError, trio.BrokenResourceError):
                self.clients[place] = await self._client()
                continue
            assert code is ErrorCode.none
            self.sent.append(value)
            return
        raise AssertionError(f"{value} is not acknowledged")

    async def waves_with_sets(self) -> None:
        """Until the broker is proven and receives sets."""
        for _ in range(50):
            await self.wave()
            if self.target.sets[ORDERS]:
                return
        raise AssertionError("no set was sent")

    async def become(self, habits: Habits, *, carriers_only: bool = False) -> None:
        """Another broker at the same address. Either only the lanes' connections to the old one end, or all."""
        self.target.change(habits)
        for side in self.carriers if carriers_only else self.rig.fake.sides:
            await side.stream.aclose()
        self.carriers.clear()

    def stored(self) -> list[str]:
        return [value for _, one in self.target.topics[ORDERS][0].stored for value in values(one)]

    def check(self) -> None:
        """No set was sent without proof, and all acknowledged records are there. (A lost connection may cause
        duplicates.)"""
        assert self.target.early == 0
        assert set(self.sent) <= set(self.stored())


@asynccontextmanager
async def stage(habits: Habits) -> AsyncIterator[Stage]:
    target = Watching(habits, good=(STORES, OTHER))
    target.with_topic(ORDERS)
    behind, carriers, known = Behind(target), [], set[object]()

    async def answer(side: BrokerSide, frame: bytes) -> None:
        if side not in known and b"client-" not in frame[:40]:  # its first request is Shoal's
            carriers.append(side)
        known.add(side)
        await behind.answer(side, frame)

    async with coalesce_rig(answer=answer, ignore_client_ids=True, linger=LINGER) as r:
        target.address = r.fake.address
        yield Stage(r, target, carriers)


@pytest.mark.parametrize("habits", BAD.values(), ids=BAD)
async def test_a_broker_that_is_not_proven_gets_single_batches_and_has_every_record(habits: Habits) -> None:
    async with stage(habits) as here:
        for _ in range(5):
            await here.wave()
        assert here.target.sets[ORDERS] == 0
        assert ApiKey.API_VERSIONS in here.target.asked, "it was asked"
        here.check()


async def test_a_proven_broker_gets_sets_and_has_every_record() -> None:
    async with stage(STORES) as here:
        await here.waves_with_sets()
        here.check()
        assert len(here.stored()) == len(here.sent), "and nothing twice"


@pytest.mark.parametrize("habits", [BAD["loses"], OTHER], ids=["loses", "good, of another cluster"])
async def test_where_a_lane_s_connection_was_lost_sets_wait_for_another_proof(habits: Habits) -> None:
    """The connection of the proof is half open: it has not yet noticed that its broker is gone."""
    async with stage(STORES) as here:
        await here.waves_with_sets()
        await here.become(habits, carriers_only=True)
        for _ in range(3):
            await here.wave()
        here.check()


async def test_another_broker_that_is_proven_gets_sets_over_the_same_connections() -> None:
    async with stage(STORES) as here:
        await here.waves_with_sets()
        await here.become(OTHER, carriers_only=True)
        await here.wave()
        here.target.sets.clear()
        await here.waves_with_sets()
        here.check()


async def test_a_lane_s_new_connection_says_who_it_leads_to_before_it_carries_a_set() -> None:
    """A lane of another kind of request connects when another broker has the address."""
    async with stage(STORES) as here:
        await here.waves_with_sets()
        here.target.change(BAD["loses"])
        here.target.habits = replace(here.target.habits, cluster_id="another")
        for client in here.clients:
            client.version = 9
        for _ in range(3):
            await here.wave()
        here.check()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("waves"), st.integers(1, 5)),
        st.tuples(st.sampled_from(["restart", "carriers"]), st.sampled_from([STORES, OTHER, *BAD.values()])),
    ),
    min_size=2,
    max_size=8,
)


@settings(max_examples=25, suppress_health_check=list(HealthCheck), deadline=None)
@given(first=st.sampled_from([STORES, *BAD.values()]), steps=STEPS)
def test_whatever_a_broker_turns_into_no_set_goes_to_one_that_is_not_proven(first: Habits, steps: list[Any]) -> None:
    async def run() -> None:
        async with stage(first) as here:
            for what, value in steps:
                if what == "waves":
                    for _ in range(3):
                        await here.wave(value)
                else:
                    await here.become(value, carriers_only=what == "carriers")
            await here.wave()
            here.check()

    trio.run(run)
