"""One round: the world of a plan, its faults, healing, convergence, and the verdict."""

from __future__ import annotations

import json
import os
import signal
import time
import traceback
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import trio
from confluent_kafka.admin import AdminClient

from shoal.scenarios.kafka.content.clients import client_config, in_thread
from shoal.scenarios.kafka.errors import HarnessError, TrafficFailed
from tests.support.kafka.tasks import FAILED, task_statuses
from tests.torture.environment.shoal_side import index_directory
from tests.torture.environment.world import World, ends_of, running_world
from tests.torture.judge.comparison import Comparison, patiently
from tests.torture.judge.index import damaged
from tests.torture.judge.logs import unexplained
from tests.torture.judge.verdict import Verdict
from tests.torture.judge.watch import Watch

from .faults import run_schedule
from .plan import TARGET

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.torture.environment.pool import Pool
    from tests.torture.judge.judge import Findings

    from .plan import Plan

_CONVERGE_S = 180.0
STILL_S = 75.0  # if no record arrives for this long, none will
_HEAL_S = 90.0
_FLUSH_S = 100.0
_ANSWER_S = 15.0
_STOP_S = 30.0
_DUMP_S = 2.0  # for stacks to be written
_COUNTED = (
    "wrapped_records",
    "unwrapped_records",
    "claim_checks",
    "read_again",
    "retries_suppressed",
    "reconciled_envelopes",
)


class Journal:
    """Lines with the time since its start, in a file beside the logs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start = time.monotonic()

    def __call__(self, text: str) -> None:
        with self._path.open("a") as file:
            print(f"{time.monotonic() - self._start:7.1f} {text}", file=file)


async def nothing(world: World) -> None:
    """Tests plant an error here."""


async def run_round(
    pool: Pool,
    plan: Plan,
    run: str,
    work: Path,
    *,
    before_judging: Callable[[World], Awaitable[None]] = nothing,
    still_s: float = STILL_S,
) -> Verdict:
    """Never raises for findings, nor for a round that could not run: `broken` has the reason.

    `before_judging` is called when all producers have ended and their records have arrived or been lost; `still_s`: the
    longest time without an arriving record.
    """
    verdict = Verdict(seed=plan.seed, run=run)
    said = Journal(work / "journal")
    began = time.monotonic()
    try:
        async with running_world(pool, plan, run, work, said) as world:
            await _Round(world, verdict, before_judging, still_s).play()
    except Exception as group:  # or a fault of the harness: continue with the next seed
        said("".join(traceback.format_exception(group)))
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        verdict.broken = f"{type(error).__name__}: {error}"[:2000]
    verdict.seconds = time.monotonic() - began
    for failure in verdict.failures:
        said(failure)
    return verdict


class _Round:
    def __init__(
        self, world: World, verdict: Verdict, before_judging: Callable[[World], Awaitable[None]], still_s: float
    ) -> None:
        self._world = world
        self._before_judging = before_judging
        self._still_s = still_s
        self._verdict = verdict
        self._start = trio.current_time()
        self._watch = Watch(self._clock)
        self._seen_failures: set[tuple[int, int]] = set()

    def _clock(self) -> float:
        return trio.current_time() - self._start

    async def play(self) -> None:
        world = self._world
        async with trio.open_nursery() as watching:
            watching.start_soon(self._watch.run, world)
            async with trio.open_nursery() as traffic:
                for writer in world.writers:
                    traffic.start_soon(writer.work)
                self._verdict.faults = await run_schedule(world, world.plan.faults, self._clock)
                await trio.sleep(max(0.0, world.plan.seconds - self._clock()))
                world.said("faults are over")
                await self._heal()
                for writer in world.writers:
                    writer.stop()
                traffic.cancel_scope.deadline = trio.current_time() + _FLUSH_S
            world.said("producers are done")
            await self._before_judging(world)
            await self._converge()
            watching.cancel_scope.cancel()
        self._verdict.peak_mib = self._watch.peak_mib
        await self._stop_shoal()
        self._read_log()
        for name in world.clusters:
            await self._scan(name)

    async def _heal(self) -> None:
        """Start everything again. Raises HarnessError if that fails."""
        with trio.move_on_after(_HEAL_S):
            while True:
                results = [await part.heal() for part in self._world.parts.values()]
                if all(results) and not self._world.processes_ended():
                    break
                await trio.sleep(0.5)
            for cluster in self._world.clusters.values():
                await cluster.wait_whole()
        if ended := self._world.processes_ended():
            raise HarnessError(f"does not run: {', '.join(ended)}")
        self._world.said("all parts run")
        for source, ports in self._world.ports.items():
            for side, port in ports.items():
                if not await self._answers(port):
                    self._hangs(f"Shoal's {side} listener for {source} does not answer within {_ANSWER_S:g} s")

    def _hangs(self, what: str) -> None:
        """Write the stacks of Shoal and of the mirrors to their logs first."""
        self._verdict.hangs.append(what)
        self._world.said(what)
        world = self._world
        stacks = [(world.shoal.process, signal.SIGUSR1), (world.shoal.process, signal.SIGUSR2)]
        stacks += [(mirror.process, signal.SIGQUIT) for mirror in world.mirrors.values()]
        for process, number in stacks:
            if process.running:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, number)

    async def _answers(self, port: int) -> bool:
        def ask() -> None:
            AdminClient(client_config(f"127.0.0.1:{port}", self._world.login)).list_topics(timeout=_ANSWER_S)

        try:
            await in_thread(ask)
        except TrafficFailed:
            return False
        return True

    # -- comparison ----------------------------------------------------------------------------------------------------

    async def _converge(self) -> None:
        """Wait until no record is missing, or none has arrived for long; then report the findings."""
        world, verdict = self._world, self._verdict
        comparisons = [Comparison(world, topic) for topic in world.plan.topics]
        for comparison in comparisons:
            in_source = await comparison.prepare()
            verdict.records += comparison.records
            found = (*in_source.lost, *in_source.altered, *in_source.reordered, *map(str, in_source.doubled))
            verdict.source += [f"{comparison.name}/{text}" for text in found]
        complete = await self._wait(comparisons)
        world.said(f"converged: {complete}")
        await trio.sleep(1.0)
        for comparison in comparisons:
            self._note(comparison, await patiently(comparison.compare))
        if verdict.hangs:
            await trio.sleep(_DUMP_S)

    async def _wait(self, comparisons: list[Comparison]) -> bool:
        names = [comparison.target for comparison in comparisons]
        begin = still = trio.current_time()
        ends: dict[tuple[str, int], int] = {}
        missing = comparisons
        while True:
            now = trio.current_time()
            latest = await ends_of(self._world, TARGET, names)
            if latest != ends:
                still, ends = now, latest
            missing = [one for one in missing if await self._is_missing(one)]
            if not missing:
                return True
            if now > begin + _CONVERGE_S or now > still + self._still_s:
                return False
            await self._restart_failed_tasks()
            await trio.sleep(1.5)

    async def _is_missing(self, one: Comparison) -> bool:
        try:
            return bool((await one.compare()).lost)
        except TrafficFailed:
            return True

    def _note(self, one: Comparison, findings: Findings) -> None:
        verdict = self._verdict
        if findings.lost and findings.tail == len(findings.lost):
            self._hangs(f"{one.name}: {findings.tail} records at the end have not arrived: {findings.lost[:3]}")
        else:
            verdict.lost += [f"{one.name}/{text}" for text in findings.lost]
        verdict.altered += [f"{one.name}/{text}" for text in findings.altered]
        verdict.reordered += [f"{one.name}/{text}" for text in findings.reordered]
        for cause, places in one.attributed(findings, verdict, self._watch).items():
            verdict.doubled.setdefault(cause, []).extend(places)

    async def _scan(self, name: str) -> None:
        findings = await patiently(self._world.scanners[name].scan)
        names = {self._world.target_name(topic) for topic in self._world.plan.topics}
        for found in findings:
            if found.topic in names or self._world.run in found.topic:
                self._verdict.envelopes.append(
                    f"{name}: {found.topic}-{found.partition}@{found.offset} ({found.where})"
                )

    # -- processes and logs --------------------------------------------------------------------------------------------

    async def _restart_failed_tasks(self) -> None:
        """Kafka Connect never restarts a failed task: that is left to operators (docs/mirroring.md)."""
        world = self._world
        for name, mirror in world.mirrors.items():
            failed = {}
            with suppress(TrafficFailed):
                statuses = await task_statuses(world.clusters[TARGET].bootstrap, mirror.spec, within=5)
                failed = {
                    status.place: f"{task}: {status.causes}"
                    for task, status in statuses.items()
                    if status.state == FAILED and status.place not in self._seen_failures
                }
            if failed:
                self._seen_failures |= failed.keys()
                self._verdict.failed_tasks += failed.values()
                world.said(f"tasks of mirror:{name} failed: {list(failed.values())}"[:2000])
                await world.parts[f"mirror:{name}"].down(0.0, orderly=False)

    async def _stop_shoal(self) -> None:
        process = self._world.shoal.process
        if not await process.stop(_STOP_S):
            self._verdict.hangs.append(f"Shoal does not end within {_STOP_S:g} s after SIGTERM")
        elif process.exit_code != 0:
            self._verdict.loud.append(f"Shoal ended with {process.exit_code}")
        for exit_code in self._world.parts["shoal"].deaths:
            self._verdict.loud.append(f"Shoal ended by itself with {exit_code}, in the middle of the round")
        if "shoal" in self._world.slow_ends:
            self._verdict.hangs.append("Shoal did not end in time after SIGTERM, in the middle of the round")

    def _read_log(self) -> None:
        world, verdict = self._world, self._verdict
        log = world.shoal.log.read_text(errors="replace")
        traits = {name for name, holds in _traits(world.plan).items() if holds}
        if not verdict.hangs:  # with hangs the log has stacks in it
            verdict.loud += unexplained(log, world.plan.kinds() | traits)
        verdict.flow = _flow(log)
        verdict.loud += damaged(index_directory(world.work))


def _traits(plan: Plan) -> dict[str, bool]:
    """Traits of a plan that explain a log line, besides faults."""
    return {
        "exactly-once": any(mirror.exactly_once for mirror in plan.mirrors),
        "merged": len(plan.mirrors) > 1 and plan.mirrors[0].identity,
        "retention": any(topic.shortened for topic in plan.topics),
    }


def _flow(log: str) -> dict[str, int]:
    """Counters of Shoal's listeners, summed over all its processes."""
    counts: Counter[str] = Counter()
    for line in log.splitlines():
        with suppress(ValueError, AttributeError):
            entry = json.loads(line)
            if entry.get("event") == "flow":
                counts.update({name: value for name, value in entry.items() if name in _COUNTED and value})
    return dict(counts)
