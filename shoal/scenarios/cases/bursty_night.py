"""A bursty night: many small producers, mostly quiet, that all wake up at the full hour."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from shoal.protocol.wire.compression import Codec
from shoal.scenarios.replay.arrivals import ALL, NEWEST_PRODUCE, Arrival, ArrivedBatch
from shoal.scenarios.replay.case import Case, Given
from shoal.scenarios.replay.facts import Fact, at_least, equals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.scenarios.replay.stage import Stage

PRODUCERS, PARTITIONS, HOURS, HOUR_S = 60, 48, 4, 4.0
QUIET, BURST, BURST_S = 10.0, 500.0, 1.0  # requests per second of all producers; duration of a burst
COALESCE = """
coalesce = true
[listener.coalescing]
ignore-client-ids = true
linger = 0.01
"""


def night(topic: str) -> Iterator[Arrival]:
    rng, at = random.Random(5), 0.0
    while at < HOURS * HOUR_S:
        at += rng.expovariate(BURST if at % HOUR_S < BURST_S else QUIET)
        producer = rng.randrange(PRODUCERS)
        part = ArrivedBatch(
            topic, rng.randrange(PARTITIONS), rng.randint(1, 5), rng.randint(150, 900), None, Codec.NONE
        )
        yield Arrival(at, producer, f"sensor-{producer}", NEWEST_PRODUCE, ALL, (part,))


async def traffic(stage: Stage) -> None:
    topic = stage.topic("readings")
    await stage.play(night(topic), [topic])


CASE = Case(
    name="bursty-night",
    what=f"{PRODUCERS} small producers, {HOURS} bursts; a coalescing listener",
    given=Given(topics={"readings": PARTITIONS}, listener=COALESCE),
    traffic=traffic,
    facts=(
        at_least("the night was busy: produce requests", "requests", 1_000),
        equals("every batch was acknowledged: errors", "errors", 0),
        equals("every batch is there once, whole, in its producer's order", "audit", "clean"),
        Fact(
            name="the broker got at most half as many produce requests as were sent",
            value=lambda seen: seen["broker requests"] and seen["broker requests"] / seen["requests"],
            holds=lambda share: share <= 0.5,
            wanted="at most 0.5 of them",
        ),
    ),
)
