"""A mirror catches up: the topic is filled before the mirror starts, which reads as fast as it can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.traffic import Layout, fill
from shoal.scenarios.replay.case import Case, Given
from shoal.scenarios.replay.facts import at_least, equals

if TYPE_CHECKING:
    from shoal.scenarios.replay.stage import Stage

RECORDS, PARTITIONS = 300_000, 4


async def traffic(stage: Stage) -> None:
    assert stage.source is not None
    layout = Layout(partitions=PARTITIONS)
    await fill(stage.source.bootstrap, stage.topic("orders"), orders(RECORDS), layout=layout, compression_type="zstd")
    async with stage.mirroring("orders", options=("--plain-compression", "zstd")) as mirror:
        await stage.copied("orders", RECORDS, mirror)
        await stage.compare("orders", mirror)


CASE = Case(
    name="mirror-catching-up",
    what=f"MirrorMaker 2 copies {RECORDS:,} existing records",
    given=Given(topics={"orders": PARTITIONS}, mirror=True),
    traffic=traffic,
    facts=(
        equals("every record of the source is in the target, at its offset", "copy", "equal"),
        equals("no duplicates: records in the copy", "records", RECORDS),
        at_least("batches travelled in envelopes", "wrapped batches", 100),
        equals("no partition was answered with an error: errors", "partition errors", 0),
    ),
)
