"""A mirror that tails a topic: small portions of records, and little lag."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from shoal.scenarios.kafka.content.records import chunks, orders
from shoal.scenarios.kafka.content.traffic import Layout, fill
from shoal.scenarios.replay.case import Case, Given
from shoal.scenarios.replay.facts import at_least, at_most, equals

if TYPE_CHECKING:
    from shoal.scenarios.replay.stage import Stage

PORTIONS, PORTION, EVERY_S, PARTITIONS = 80, 400, 0.25, 4


async def traffic(stage: Stage) -> None:
    assert stage.source is not None
    layout = Layout(partitions=PARTITIONS, run=PORTION // PARTITIONS, exact=True)
    async with stage.mirroring("orders", options=("--min-batch-bytes", "0")) as mirror:
        await mirror.until_replicating()
        stage.clock.restart()
        for number, portion in enumerate(chunks(orders(PORTIONS * PORTION), PORTION)):
            await stage.clock.until(number * EVERY_S)
            await fill(
                stage.source.bootstrap, stage.topic("orders"), iter(portion), layout=layout, compression_type="lz4"
            )
        written = trio.current_time()
        await stage.copied("orders", PORTIONS * PORTION, mirror)
        stage.seen["behind"] = trio.current_time() - written
        await stage.compare("orders", mirror)


CASE = Case(
    name="mirror-tailing",
    what=f"MirrorMaker 2 tails {PORTIONS} x {PORTION} records, four times a second",
    given=Given(topics={"orders": PARTITIONS}, mirror=True),
    traffic=traffic,
    facts=(
        equals("every record of the source is in the target, at its offset", "copy", "equal"),
        at_least("batches travelled in envelopes", "wrapped batches", 20),
        at_most("the mirror was not far behind the last record: seconds", "behind", 15.0),
    ),
)
