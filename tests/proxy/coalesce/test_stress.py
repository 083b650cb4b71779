"""Many producers under random faults: each gets exactly its own answers, and the log holds what was acknowledged, once,
in order."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from kio.schema.errors import ErrorCode

from tests.support.coalesce_rig import batch, coalesce_rig
from tests.support.shallow.brokers import Script

if TYPE_CHECKING:
    from tests.support.coalesce_rig import CoalesceRig
    from tests.support.shallow.rig import Producer

pytestmark = pytest.mark.usefixtures("lane")

PARTITIONS = 4
CLIENTS = 8
BATCHES = 15
RETRIABLE = (ErrorCode.not_enough_replicas, ErrorCode.out_of_order_sequence_number)


@dataclass
class Idempotent:
    """A real producer: one partition, up to five batches in flight; after a failure it resends all unacknowledged
    ones."""

    rig: CoalesceRig
    number: int
    rng: random.Random
    partition: int = 0
    acknowledged: list[str] = field(default_factory=list)

    async def run(self) -> None:
        self.partition = self.number % PARTITIONS
        waiting = [f"{self.number}.{at}" for at in range(BATCHES)]
        client: Producer | None = None
        while waiting:
            client = client or await self.rig.producer()
            window = waiting[: self.rng.randint(1, 5)]
            try:
                failed = await self._send(client, window)
            except (AssertionError, trio.BrokenResourceError, trio.ClosedResourceError):
                client = None
                continue
            done = window[: len(window) - failed]
            self.acknowledged += done
            del waiting[: len(done)]
            if self.rng.random() < 0.1:
                await client.stream.aclose()
                client = None

    async def _send(self, client: Producer, window: list[str]) -> int:
        """-> number of batches not acknowledged at the end of the window."""
        first = len(self.acknowledged)
        for at, value in enumerate(window):
            one = batch(value, producer=self.number, sequence=first + at)
            await client.send_only({self.partition: one}, acks=self.rng.choice((-1, 1)))
        errors = [(await client.answers())[self.partition][0] for _ in window]
        assert set(errors) <= {ErrorCode.none, *RETRIABLE}, errors
        good = next((at for at, error in enumerate(errors) if error is not ErrorCode.none), len(errors))
        return len(errors) - good


@pytest.mark.parametrize("seed", range(4))
async def test_nothing_is_lost_doubled_or_reordered(seed: int) -> None:
    rng = random.Random(seed)
    settings: dict[str, Any] = {
        "linger": rng.choice((0.0, 0.002)),
        "patience": rng.choice((0.0, 5.0)),
        "request_batches": rng.choice((2, 99)),
    }
    async with coalesce_rig(**settings) as r:
        for number in rng.sample(range(200), 30):
            r.broker.scripts[number] = rng.choice(
                (
                    Script(closes=True),
                    Script(closes=True, appends=False),
                    Script(errors={rng.randrange(PARTITIONS): ErrorCode.not_enough_replicas}),
                )
            )
        producers = [Idempotent(r, number, random.Random(seed * 100 + number)) for number in range(CLIENTS)]
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for producer in producers:
                    nursery.start_soon(partial(producer.run))
        for producer in producers:
            mine = [value for value in r.broker.log(producer.partition) if value.startswith(f"{producer.number}.")]
            assert mine == producer.acknowledged == [f"{producer.number}.{at}" for at in range(BATCHES)]
        assert r.path.tally.taken > CLIENTS
