"""The demo from its first broker to its last comparison."""

from __future__ import annotations

import shutil
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from shoal.scenarios.demo.plan import PARTITIONS, TOPIC, Plan, only_node
from shoal.scenarios.demo.report import RUNS, Report
from shoal.scenarios.demo.scene import PHASES_OF_A_RUN, Scene
from shoal.scenarios.demo.segments import Shape, shape
from shoal.scenarios.kafka.broker import Cluster, running_cluster
from shoal.scenarios.kafka.copies import read_copy
from shoal.scenarios.kafka.jars import jars
from shoal.scenarios.kafka.records import orders
from shoal.scenarios.kafka.topics import Topics
from shoal.scenarios.kafka.traffic import Layout, fill

if TYPE_CHECKING:
    from shoal.scenarios.demo.phases import Phase, Phases

__all__ = ["PHASES", "play"]

PHASES = 4 + len(RUNS) * PHASES_OF_A_RUN
_MB, _KB = 1_000_000, 1_000


async def play(plan: Plan, phases: Phases) -> Report:
    """Raises HarnessError when something does not come up, or ends, or stands still. Leaves the logs in `plan.work`."""
    shutil.rmtree(plan.work, ignore_errors=True)
    async with AsyncExitStack() as stack:
        with phases.phase("Kafka") as phase:
            lib = await jars(plan.kafka)
            phase.done(f"{plan.kafka} from Maven Central, {len(list(lib.glob('*.jar')))} jars")
        with phases.phase("source cluster") as phase:
            source = await stack.enter_async_context(running_cluster(plan.work / "source", plan.cluster))
            phase.done(source.bootstrap)
        with phases.phase("fill the source topic") as phase:
            filled = await _filled(plan, source, phase)
        with phases.phase("read the source topic") as phase:
            original = await read_copy(source.bootstrap, TOPIC)
            phase.done(f"{original.records:,} records, a fingerprint of each kept")
        scene = Scene(plan=plan, phases=phases, source=source, original=original)
        runs = {name: await scene.run(name) for name in RUNS}
    shutil.rmtree(only_node(source).data)
    return Report(kafka=plan.kafka, source=filled, runs=runs)


async def _filled(plan: Plan, source: Cluster, phase: Phase) -> Shape:
    await Topics(source.bootstrap).create(TOPIC, PARTITIONS)
    await fill(
        source.bootstrap,
        TOPIC,
        orders(plan.records),
        layout=Layout(partitions=PARTITIONS),
        progress=lambda done: phase.now(f"{done:,} of {plan.records:,} records"),
        compression_type="zstd",
        enable_idempotence=True,
    )
    found = shape(only_node(source).data, TOPIC)
    batches = f"{found.batches:,} batches of {found.batch_size / _KB:.1f} kB"
    phase.done(f"{found.records:,} records, {found.size / _MB:,.1f} MB {', '.join(found.codecs)}, {batches}")
    return found
