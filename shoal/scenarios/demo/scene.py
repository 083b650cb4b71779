"""One run: a fresh mirror, with or without Shoal, into a topic of its own; then the copy beside the original."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.scenarios.demo.ends import EndOffsets
from shoal.scenarios.demo.measure import Cast, Measured, measure
from shoal.scenarios.demo.plan import PARTITIONS, SHOAL_OPTIONS, TOPIC, Plan, mirror_spec, only_node
from shoal.scenarios.demo.report import ALONE, MIRROR, PROXY, SOURCE, TARGET, THROUGH, Run
from shoal.scenarios.demo.segments import shape
from shoal.scenarios.demo.shoal_mirror import Shoal, running_shoal
from shoal.scenarios.kafka.compare import first_difference
from shoal.scenarios.kafka.copies import Copy, read_copy
from shoal.scenarios.kafka.mirror import Mirror, running_mirror

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.scenarios.demo.phases import Phase, Phases
    from shoal.scenarios.kafka.broker import Cluster

__all__ = ["PHASES_OF_A_RUN", "Scene"]

TITLES = {ALONE: "MirrorMaker 2 alone", THROUGH: "MirrorMaker 2 through Shoal"}
PHASES_OF_A_RUN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What both runs share."""

    plan: Plan
    phases: Phases
    source: Cluster
    target: Cluster
    original: Copy

    async def run(self, name: str) -> Run:
        """`name`: ALONE or THROUGH. Raises HarnessError when something does not come up, or ends, or stands still."""
        with self.phases.phase(TITLES[name]) as phase:
            topic, measured = await self._mirrored(name, phase)
        with self.phases.phase("compare every record") as phase:
            difference = await self._compared(topic, phase)
        return Run(
            wall_s=measured.wall_s,
            cpu_s=measured.cpu_s,
            peak_mib=measured.peak_mib,
            difference=difference,
            copy=shape(only_node(self.target).data, topic),
        )

    async def _mirrored(self, name: str, phase: Phase) -> tuple[str, Measured]:
        """The name of the copy, and what it took to make it."""
        work = self.plan.work / name
        async with AsyncExitStack() as stack:
            shoal = None
            if name == THROUGH:
                starting = running_shoal(work, self.source.bootstrap, self.target.bootstrap, SHOAL_OPTIONS)
                shoal = await stack.enter_async_context(starting)
            spec = mirror_spec(self.plan, self.source, self.target, name, shoal)
            topic = spec.remote_topic(TOPIC)
            mirror = await stack.enter_async_context(running_mirror(work, spec))
            ends = stack.enter_context(EndOffsets(self.target.bootstrap, topic, PARTITIONS))
            cast = self._cast(mirror, shoal)
            measured = await measure(cast, ends.total, self.original.records, self._show(phase))
        rate = self.original.records / measured.wall_s
        phase.done(f"{self.original.records:,} records in {measured.wall_s:.1f} s: {rate:,.0f} a second")
        return topic, measured

    def _cast(self, mirror: Mirror, shoal: Shoal | None) -> Cast:
        brokers = {SOURCE: only_node(self.source).process, TARGET: only_node(self.target).process}
        return {MIRROR: mirror.process, **({PROXY: shoal.process} if shoal else {}), **brokers}

    def _show(self, phase: Phase) -> Callable[[int, float], None]:
        def show(records: int, seconds: float) -> None:
            doing = f"{records / seconds:,.0f} a second" if seconds else "waiting for the first"
            phase.now(f"{records:,} of {self.original.records:,} records, {doing}")

        return show

    async def _compared(self, topic: str, phase: Phase) -> str | None:
        """The first difference, in words."""
        copy = await read_copy(self.target.bootstrap, topic)
        difference = await first_difference(self.original, copy, offsets=True)
        phase.done("NOT EQUAL" if difference else f"{copy.records:,} records equal, at equal offsets")
        return difference
