"""Mixed codecs: producers with different compression fill one topic, and a mirror copies it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.scenarios.kafka.content.records import chunks, orders
from shoal.scenarios.kafka.content.traffic import Layout, fill
from shoal.scenarios.kafka.segments import segment_contents
from shoal.scenarios.replay.case import Case, Given
from shoal.scenarios.replay.facts import at_least, equals

if TYPE_CHECKING:
    from shoal.scenarios.replay.stage import Stage

CODECS = ("gzip", "snappy", "none", "lz4", "zstd")
ROUNDS, PORTION, PARTITIONS = 20, 1_000, 4


async def traffic(stage: Stage) -> None:
    assert stage.source is not None
    records = len(CODECS) * ROUNDS * PORTION
    layout = Layout(partitions=PARTITIONS, run=PORTION // PARTITIONS, exact=True)
    for number, portion in enumerate(chunks(orders(records), PORTION)):
        codec = CODECS[number % len(CODECS)]
        await fill(stage.source.bootstrap, stage.topic("mixed"), iter(portion), layout=layout, compression_type=codec)
    async with stage.mirroring("mixed") as mirror:
        await stage.copied("mixed", records, mirror)
        await stage.compare("mixed", mirror)
        copy = mirror.spec.remote_topic(stage.topic("mixed"))
    stage.seen["codecs"] = sorted(segment_contents(stage.node.data, copy).codecs) if stage.site.cluster else None


CASE = Case(
    name="mixed-codecs",
    what=f"one topic in {', '.join(CODECS)}, mirrored",
    given=Given(topics={"mixed": PARTITIONS}, mirror=True),
    traffic=traffic,
    facts=(
        equals("every record of the source is in the target, at its offset", "copy", "equal"),
        equals("the copy is compressed as the source is, batch by batch: codecs", "codecs", sorted(CODECS)),
        at_least("batches travelled in envelopes", "wrapped batches", 20),
    ),
)
