"""One run: fresh brokers, a fresh mirror, with or without Shoal; then the copy beside the original.

Both runs begin alike: the target cluster is new and empty, and the source broker was just restarted, so that no Java
process has been warmed up by the run before.
"""

from __future__ import annotations

import shutil
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.scenarios.demo.ends import EndOffsets
from shoal.scenarios.demo.measure import Cast, Measured, measure
from shoal.scenarios.demo.plan import PARTITIONS, SHOAL_OPTIONS, TOPIC, Plan, mirror_spec, only_node
from shoal.scenarios.demo.report import ALONE, MIRROR, PROXY, RUNS, SOURCE, TARGET, THROUGH, Run
from shoal.scenarios.demo.segments import shape
from shoal.scenarios.demo.shoal_mirror import Shoal, running_shoal
from shoal.scenarios.kafka.broker import Cluster
from shoal.scenarios.kafka.compare import first_difference
from shoal.scenarios.kafka.copies import Copy, read_copy
from shoal.scenarios.kafka.mirror import Mirror, running_mirror
from shoal.scenarios.kafka.process import together
from shoal.scenarios.kafka.scan import Scanner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shoal.scenarios.demo.phases import Phase, Phases

__all__ = ["PHASES_OF_A_RUN", "Scene"]

TITLES = {ALONE: "MirrorMaker 2 alone", THROUGH: "MirrorMaker 2 through Shoal"}
NAMES = ("the target", "the source")
PHASES_OF_A_RUN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What both runs share."""

    plan: Plan
    phases: Phases
    source: Cluster
    original: Copy

    async def run(self, name: str) -> Run:
        """`name`: ALONE or THROUGH. Raises HarnessError when something does not come up, or ends, or stands still."""
        work = self.plan.work / name
        async with AsyncExitStack() as stack:
            with self.phases.phase("fresh brokers") as phase:
                target = await self._fresh_brokers(work, stack)
                phase.done(f"source restarted; new target {target.bootstrap}")
            with self.phases.phase(TITLES[name]) as phase:
                topic, measured = await self._mirrored(name, work, target, phase)
            with self.phases.phase("compare every record") as phase:
                difference = await self._compared(target, topic, phase)
            with self.phases.phase("look for envelopes") as phase:
                # A run changes nothing in the source but MM2's own topics: after the last is early enough.
                left = await self._envelopes([target, self.source] if name == RUNS[-1] else [target], phase)
            copy = shape(only_node(target).data, topic)
        shutil.rmtree(only_node(target).data)
        return Run(
            wall_s=measured.wall_s,
            cpu_s=measured.cpu_s,
            peak_mib=measured.peak_mib,
            difference=difference,
            copy=copy,
            envelopes_left=left,
        )

    async def _fresh_brokers(self, work: Path, stack: AsyncExitStack) -> Cluster:
        """Both at once; the target is ended with the `stack`."""
        targets: list[Cluster] = []

        async def start_target() -> None:
            targets.append(await Cluster.start(work / "target", self.plan.cluster))
            stack.push_async_callback(targets[0].stop)

        async def restart_source() -> None:
            await only_node(self.source).stop()
            await only_node(self.source).start()

        await together(start_target, restart_source)
        return targets[0]

    async def _mirrored(self, name: str, work: Path, target: Cluster, phase: Phase) -> tuple[str, Measured]:
        """The name of the copy, and what it took to make it."""
        async with AsyncExitStack() as stack:
            shoal = None
            if name == THROUGH:
                starting = running_shoal(work, self.source.bootstrap, target.bootstrap, SHOAL_OPTIONS)
                shoal = await stack.enter_async_context(starting)
            spec = mirror_spec(self.plan, self.source, target, shoal)
            topic = spec.remote_topic(TOPIC)
            mirror = await stack.enter_async_context(running_mirror(work, spec))
            ends = stack.enter_context(EndOffsets(target.bootstrap, topic, PARTITIONS))
            cast = self._cast(mirror, target, shoal)
            measured = await measure(cast, ends.total, self.original.records, self._show(phase))
        rate = self.original.records / measured.wall_s
        phase.done(f"{self.original.records:,} records in {measured.wall_s:.1f} s: {rate:,.0f} a second")
        return topic, measured

    def _cast(self, mirror: Mirror, target: Cluster, shoal: Shoal | None) -> Cast:
        brokers = {SOURCE: only_node(self.source).process, TARGET: only_node(target).process}
        return {MIRROR: mirror.process, **({PROXY: shoal.process} if shoal else {}), **brokers}

    def _show(self, phase: Phase) -> Callable[[int, float], None]:
        def show(records: int, seconds: float) -> None:
            doing = f"{records / seconds:,.0f} a second" if seconds else "waiting for the first"
            phase.now(f"{records:,} of {self.original.records:,} records, {doing}")

        return show

    async def _compared(self, target: Cluster, topic: str, phase: Phase) -> str | None:
        """The first difference, in words."""
        copy = await read_copy(target.bootstrap, topic)
        difference = await first_difference(self.original, copy, offsets=True)
        phase.done("NOT EQUAL" if difference else f"{copy.records:,} records equal, at equal offsets")
        return difference

    async def _envelopes(self, clusters: list[Cluster], phase: Phase) -> int:
        """In all their topics."""
        scanners = [Scanner(cluster.bootstrap) for cluster in clusters]
        found = [finding for scanner in scanners for finding in await scanner.scan()]
        looked_at = sum(scanner.records for scanner in scanners)
        phase.done(f"{len(found)} in {looked_at:,} records of all topics of {' and '.join(NAMES[: len(clusters)])}")
        return len(found)
