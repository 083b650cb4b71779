"""Through the whole unwrap listener: a broker gets a set of batches only if proven, since last lost, to store sets.

A mirror's producer sends envelopes of several batches over changing connections, to a broker whose habits change at
restarts. The broker itself checks what it receives.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from shoal.proxy.config.settings import Limits
from shoal.proxy.shallow.interlock import Interlocks
from shoal.proxy.shallow.monitor.monitor import MirrorMonitors
from shoal.proxy.shallow.unwrap.path import UnwrapPath
from tests.support.multibatch.broker import Habits
from tests.support.multibatch.brokers import Behind
from tests.support.multibatch.unproven import Watching, bad
from tests.support.rig import FakeBroker, Rig, rig, until
from tests.support.shallow.batches import outer, records
from tests.support.shallow.brokers import ORDERS
from tests.support.shallow.rig import Producer
from tests.support.shallow.world import plain, poll, some_batch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shoal.protocol.records.batch import NewRecord

STORES = Habits()
BAD = bad(STORES)


@dataclass
class Stage:
    rig: Rig
    target: Watching
    fake: FakeBroker
    port: int
    client: Producer | None = None
    sent: list[NewRecord] = field(default_factory=list)

    async def send(self, number: int, batches: int) -> bool:
        """One envelope; -> whether it was acknowledged. The mirror reconnects and retries as needed."""
        parts = [some_batch(1000 * number + 10 * place, 2) for place in range(batches)]
        for _ in range(4):
            if self.client is None:
                stream = await trio.open_tcp_stream("127.0.0.1", self.port)
                self.client = Producer(await self.rig.clients.enter_async_context(stream))
            try:
                await self.client.produce(outer(*parts))
                ((code, _),) = (await self.client.answers()).values()
            except (AssertionError, trio.BrokenResourceError):
                self.client = None
                continue
            if code is ErrorCode.none:
                self.sent += records(*parts)
                return True
        return False

    async def restart(self, habits: Habits) -> None:
        """Every connection is lost."""
        self.target.change(habits)
        ended = sum(self.rig.listener.tally.closed.values())
        for side in self.fake.sides:
            await side.stream.aclose()
        if self.client is not None:
            await until(lambda: sum(self.rig.listener.tally.closed.values()) > ended)
            self.client = None

    def stored(self) -> list[NewRecord]:
        log = b"".join(base.to_bytes(8, "big") + one[8:] for base, one in self.target.topics[ORDERS][0].stored)
        return plain([seen.record for seen in poll(log)])


@asynccontextmanager
async def stage(habits: Habits) -> AsyncIterator[Stage]:
    target = Watching(habits, good=(STORES,))
    target.with_topic(ORDERS)
    fake = FakeBroker(Behind(target).answer)
    async with rig(
        broker=fake,
        limits=Limits(close_seconds=0),
        path=lambda listener: UnwrapPath(listener, Interlocks([]), MirrorMonitors()),
    ) as one:
        _, port = one.listener.advertise(fake.address, 1, "127.0.0.1")
        target.address = fake.address
        yield Stage(one, target, fake, port)


@pytest.mark.parametrize("habits", BAD.values(), ids=BAD)
async def test_a_broker_that_is_not_proven_gets_single_batches_and_has_every_record(habits: Habits) -> None:
    async with stage(habits) as here:
        for number in range(3):
            assert await here.send(number, 5)
        assert here.target.sets[ORDERS] == 0
        assert here.stored() == here.sent


async def test_a_proven_broker_gets_sets_and_has_every_record() -> None:
    async with stage(STORES) as here:
        for number in range(3):
            assert await here.send(number, 5)
        assert here.target.sets[ORDERS] > 0
        assert here.target.early == 0
        assert here.stored() == here.sent


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 9)),
        st.tuples(st.just("restart"), st.sampled_from([STORES, *BAD.values()])),
    ),
    min_size=2,
    max_size=8,
)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(first=st.sampled_from([STORES, *BAD.values()]), steps=STEPS)
def test_whatever_a_broker_turns_into_no_set_goes_to_one_that_is_not_proven(first: Habits, steps: list[Any]) -> None:
    async def run() -> None:
        async with stage(first) as here:
            for number, (what, value) in enumerate(steps):
                if what == "send":
                    assert await here.send(number, value)
                else:
                    await here.restart(value)
            assert here.target.early == 0
            assert here.stored() == here.sent

    trio.run(run)
