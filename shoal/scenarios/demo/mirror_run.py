"""One run: a fresh mirror, with or without Shoal, into a new topic, and the comparison of the copy."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shoal.scenarios.demo.ends import EndOffsets
from shoal.scenarios.demo.measure import Cast, Measured, measure
from shoal.scenarios.demo.plan import PARTITIONS, TOPIC, Plan, Turn, mirror_spec, only_node
from shoal.scenarios.demo.report import MIRROR, PROXY, SOURCE, TARGET, DemoRun
from shoal.scenarios.kafka.content.compare import first_difference
from shoal.scenarios.kafka.content.copies import Copy, read_copy
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.errors import NotReady
from shoal.scenarios.kafka.metrics import requests
from shoal.scenarios.kafka.mirror import Mirror, running_mirror
from shoal.scenarios.kafka.segments import segment_contents

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.scenarios.demo.phases import Phase, Phases
    from shoal.scenarios.demo.proxies import Proxies
    from shoal.scenarios.kafka.broker import Cluster
    from shoal.scenarios.running.shoal_mirror import Shoal

__all__ = ["PHASES_OF_A_RUN", "MirrorRun"]

PHASES_OF_A_RUN = 2
_OUT_OF_MEMORY = "java.lang.OutOfMemoryError"  # MirrorMaker 2 alone fills its heap; then Java 17's G1 may give up


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorRun:
    """The common parts of all runs."""

    plan: Plan
    phases: Phases
    source: Cluster
    targets: Mapping[bool, Cluster]  # without and, where a run asks for it, with the agent
    original: Copy
    proxies: Proxies

    async def run(self, turn: Turn) -> DemoRun:
        """Raises HarnessError when a process does not start, ends, or stalls."""
        target = self.targets[turn.how.agent]
        with self.phases.phase(self._title(turn)) as phase:
            topic, measured, before = await self.mirrored(turn, phase)
            after = await self._requests(target)
        with self.phases.phase("compare every record") as phase:
            difference = await self._compared(target, topic, phase)
        found = segment_contents(only_node(target).data, topic)
        if difference is None and turn.round < self.plan.rounds:
            await Topics(target.bootstrap, login=target.login).delete(topic)
        return DemoRun(
            column=turn.how.column,
            wall_s=measured.wall_s,
            cpu_s=measured.cpu_s,
            peak_mib=measured.peak_mib,
            samples=measured.samples,
            difference=difference,
            copy=found,
            requests=None if before is None or after is None else after - before,
        )

    async def mirrored(self, turn: Turn, phase: Phase) -> tuple[str, Measured, int | None]:
        """The name of the copy, the measurements, and the target's produce requests before. A mirror without Shoal that
        runs out of memory starts once more.
        """
        target = self.targets[turn.how.agent]
        before = await self._requests(target)
        try:
            return *(await self._mirrored(turn, phase)), before
        except NotReady as error:
            if turn.how.shoal is not None or turn.is_second_try or _OUT_OF_MEMORY not in str(error):
                raise
        phase.note(f"{_OUT_OF_MEMORY} (MirrorMaker 2 alone, {self.plan.work / turn.alias}): once more")
        return await self.mirrored(replace(turn, is_second_try=True), phase)

    async def _requests(self, target: Cluster) -> int | None:
        """Produce requests to the target, those for the mirror's own topics included."""
        return await requests(only_node(target), "Produce") if self.plan.comparison.counts_requests else None

    def _title(self, turn: Turn) -> str:
        return turn.how.title if self.plan.rounds == 1 else f"round {turn.round}, {turn.how.column}"

    async def _mirrored(self, turn: Turn, phase: Phase) -> tuple[str, Measured]:
        """The name of the copy, and the measurements."""
        work, target = self.plan.work / turn.alias, self.targets[turn.how.agent]
        async with AsyncExitStack() as stack:
            shoal = await self.proxies.of(turn)
            spec = mirror_spec(self.plan, turn, self.source, target, shoal)
            topic = spec.remote_topic(TOPIC)
            mirror = await stack.enter_async_context(running_mirror(work, spec))
            ends = stack.enter_context(EndOffsets(target.bootstrap, topic, PARTITIONS, target.login.ssl_context()))
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
            phase.now(f"{records:,} of {self.original.records:,} records, {doing}", records, self.original.records)

        return show

    async def _compared(self, target: Cluster, topic: str, phase: Phase) -> str | None:
        """The first difference, in words."""
        copy = await read_copy(target.bootstrap, topic, login=target.login)
        difference = await first_difference(self.original, copy, offsets=True)
        phase.done("NOT EQUAL" if difference else f"{copy.records:,} records equal, at equal offsets")
        return difference
