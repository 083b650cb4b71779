"""A broker is killed while a producer writes through Shoal, and restarted two seconds later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from shoal.scenarios.kafka.content.compare import first_difference
from shoal.scenarios.kafka.content.copies import read_copy
from shoal.scenarios.kafka.content.records import chunks, orders
from shoal.scenarios.kafka.content.traffic import Layout, fill
from shoal.scenarios.replay.case import Case, Fault, Given
from shoal.scenarios.replay.facts import equals

if TYPE_CHECKING:
    from shoal.scenarios.replay.stage import Stage

PORTIONS, PORTION, EVERY_S, PARTITIONS = 40, 1_000, 0.2, 4
AT_S, AWAY_S = 3.0, 2.0
KILLED = "the broker was killed and is back"
LAYOUT = Layout(partitions=PARTITIONS, run=PORTION // PARTITIONS, exact=True)


async def traffic(stage: Stage) -> None:
    reference, through = stage.topic("directly"), stage.topic("through-shoal")
    await fill(stage.site.bootstrap, reference, orders(PORTIONS * PORTION), layout=LAYOUT, compression_type="lz4")
    stage.clock.restart()
    for number, portion in enumerate(chunks(orders(PORTIONS * PORTION), PORTION)):
        await stage.clock.until(number * EVERY_S)
        await fill(
            stage.through_shoal, through, iter(portion), layout=LAYOUT, compression_type="lz4", enable_idempotence=True
        )
    await stage.faults_over.wait()
    original, copy = await read_copy(stage.site.bootstrap, reference), await read_copy(stage.site.bootstrap, through)
    stage.seen["difference"] = await first_difference(original, copy) or "none"


async def restart(stage: Stage) -> None:
    stage.node.kill()
    await trio.sleep(AWAY_S)
    await stage.node.start()


CASE = Case(
    name="broker-restart",
    what=f"broker killed at {AT_S:g} s, back {AWAY_S:g} s later; idempotent writes",
    given=Given(topics={"directly": PARTITIONS, "through-shoal": PARTITIONS}),
    traffic=traffic,
    faults=(Fault(at=AT_S, what=KILLED, inject=restart),),
    facts=(
        equals("the broker was killed and is back", KILLED, True),
        equals("every record is there once and in order, as one written directly: difference", "difference", "none"),
    ),
    own_brokers="it kills a broker",
)
