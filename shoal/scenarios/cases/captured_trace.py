"""A captured trace: traffic is replayed from Shoal's index only."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from shoal.scenarios.cases.bursty_night import HOUR_S, PARTITIONS, night
from shoal.scenarios.replay.case import Case, Given
from shoal.scenarios.replay.facts import Fact, at_most, equals

if TYPE_CHECKING:
    from shoal.scenarios.replay.stage import Stage


async def traffic(stage: Stage) -> None:
    from shoal.scenarios.replay.index.source import read_index  # needs pyarrow, which no other case does
    from shoal.scenarios.replay.trace import TraceSettings, replay_index

    topic = stage.topic("readings")
    first = await stage.play(takewhile(lambda arrival: arrival.at < HOUR_S, night(topic)), [topic])
    await stage.stop_shoal()
    recorded = read_index(stage.work / "capture", f"{stage.token}-again-")
    settings = TraceSettings(speed=stage.clock.speed)
    again = await replay_index(recorded, stage.site, stage.work / "again", settings)
    stage.seen["captured"] = recorded.requests, recorded.batches
    stage.seen["played"] = first.requests, first.batches
    stage.seen["again"] = again["produce_requests"], again["batches"]
    stage.seen["again audit"] = again["audit"]["clean"]
    stage.seen["again errors"] = sum(again["errors"].values())
    stage.seen["bytes"] = abs(again["bytes"] / first.size - 1)


CASE = Case(
    name="captured-trace",
    what="part of the bursty night, replayed from its index",
    given=Given(topics={"readings": PARTITIONS}, capture=True),
    traffic=traffic,
    facts=(
        equals("every batch of the first run is there once, in order", "audit", "clean"),
        Fact(
            name="the index holds each request and batch that was sent",
            value=lambda seen: (
                "as many" if seen["captured"] == seen["played"] else f"{seen['captured']}, {seen['played']}"
            ),
            holds=lambda found: found == "as many",
            wanted="as many (requests, batches) as were sent",
        ),
        Fact(
            name="the replay sends each of them again",
            value=lambda seen: (
                "as many" if seen["again"] == seen["captured"] else f"{seen['again']}, {seen['captured']}"
            ),
            holds=lambda found: found == "as many",
            wanted="as many (requests, batches) as were captured",
        ),
        equals("every batch of the replay is there once, in order", "again audit", True),
        equals("the replay was acknowledged: errors", "again errors", 0),
        at_most("the synthetic batches are as large as the captured ones: difference", "bytes", 0.02),
    ),
)
