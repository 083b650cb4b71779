"""One round: the world of a plan, its faults, healing, convergence, and the verdict."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio
from confluent_kafka.admin import AdminClient

from shoal.scenarios.kafka.clients import client_config, in_thread
from shoal.scenarios.kafka.errors import HarnessError, TrafficFailed
from shoal.scenarios.kafka.tasks import FAILED, task_statuses

from .attribution import NONE, Doubled, attribute
from .faults import Done, run_schedule
from .judge import Findings, Terms, judge_partition, judge_source
from .logs import unexplained
from .plan import TARGET, Plan, TopicPlan
from .reading import Held, read_topic
from .watch import Watch
from .world import Pool, World, ends_of, running_world

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

T = TypeVar("T")
_CONVERGE_S = 150.0
_STILL_S = 60.0  # nothing has arrived for so long: it will not
_HEAL_S = 90.0
_FLUSH_S = 100.0
_ANSWER_S = 15.0
_STOP_S = 30.0
_PEAK_MIB = 400.0  # a Shoal that does nothing takes 45 MiB; its buffers are bounded by 32 MiB and 8 MiB for each of few connections


@dataclass(slots=True)
class Verdict:
    """What a round has found; `report` writes it."""

    seed: int
    run: str
    faults: list[Done] = field(default_factory=list)
    seconds: float = 0.0
    records: int = 0
    lost: list[str] = field(default_factory=list)
    altered: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    doubled: dict[str, list[str]] = field(default_factory=dict)
    """By cause."""
    envelopes: list[str] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)
    loud: list[str] = field(default_factory=list)
    failed_tasks: list[str] = field(default_factory=list)
    peak_mib: float = 0.0
    flow: dict[str, int] = field(default_factory=dict)
    """What Shoal counted: wrapped and raw."""
    broken: str | None = None
    """The round could not be run to its end: no verdict."""

    @property
    def doubled_unexplained(self) -> list[str]:
        return self.doubled.get(NONE, [])

    @property
    def failures(self) -> list[str]:
        """What makes the round fail, in words."""
        parts = {
            "lost": self.lost,
            "altered": self.altered,
            "reordered": self.reordered,
            "doubled without a cause": self.doubled_unexplained,
            "envelopes left": self.envelopes,
            "hangs": self.hangs,
            "unexpected log lines": self.loud,
        }
        found = [f"{len(items)} {name}: {'; '.join(items[:3])}" for name, items in parts.items() if items]
        if self.peak_mib > _PEAK_MIB:
            found.append(f"{self.peak_mib:.0f} MiB of memory, more than {_PEAK_MIB:g}")
        return found + ([f"broken: {self.broken}"] if self.broken else [])


class Journal:
    """Lines with the time of the round, in a file beside the logs."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a")
        self._start = time.monotonic()

    def __call__(self, text: str) -> None:
        print(f"{time.monotonic() - self._start:7.1f} {text}", file=self._file, flush=True)


async def run_round(pool: Pool, plan: Plan, run: str, work: Path) -> Verdict:
    """Never raises for what it finds, nor for a round that could not be run: `broken` says why."""
    verdict = Verdict(seed=plan.seed, run=run)
    said = Journal(work / "journal")
    began = time.monotonic()
    try:
        base_ms = int(time.time() * 1000)
        async with running_world(pool, plan, run, work, said, base_ms) as world:
            await _Round(world, verdict).play()
    except* (HarnessError, TrafficFailed, OSError) as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        verdict.broken = f"{type(error).__name__}: {error}"[:2000]
    verdict.seconds = time.monotonic() - began
    return verdict


class _Round:
    def __init__(self, world: World, verdict: Verdict) -> None:
        self._world = world
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
            await self._judge()
            watching.cancel_scope.cancel()
        self._verdict.peak_mib = self._watch.peak_mib
        await self._stop_shoal()
        await self._logs()
        for name in world.clusters:
            found = await pool_scan(world, name)
            self._verdict.envelopes += found

    async def _heal(self) -> None:
        """Everything runs again. What does not start in time is the harness's trouble, but for Shoal."""
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
        for name, port in self._world.ports.items():
            if not await self._answers(port):
                self._verdict.hangs.append(f"Shoal's listener {name} does not answer within {_ANSWER_S:g} s")

    async def _answers(self, port: int) -> bool:
        def ask() -> None:
            AdminClient(client_config(f"127.0.0.1:{port}")).list_topics(timeout=_ANSWER_S)

        try:
            await in_thread(ask)
        except TrafficFailed:
            return False
        return True

    # -- comparison ---------------------------------------------------------------------------------------------------

    async def _judge(self) -> None:
        world, verdict = self._world, self._verdict
        sources = {}
        for topic in world.plan.topics:
            sources[topic] = source = await self._source(topic)
            verdict.records += sum(map(len, source.values()))
            found = judge_source(
                topic.cluster, topic.name, await self._committed(topic, source), world.ledger, complete=True
            )
            self._note("source ", topic, found)
        await self._converge(sources)

    async def _source(self, topic: TopicPlan) -> Held:
        world = self._world
        mirror = next(one for one in world.plan.mirrors if one.source == topic.cluster)
        bootstrap = world.clusters[topic.cluster].bootstrap
        return await _patiently(partial(read_topic, bootstrap, world.source_name(topic), committed=mirror.exactly_once))

    async def _committed(self, topic: TopicPlan, source: Held) -> Held:
        world = self._world
        if not world.plan.transactional(topic.cluster):
            return source
        bootstrap = world.clusters[topic.cluster].bootstrap
        return await _patiently(partial(read_topic, bootstrap, world.source_name(topic), committed=True))

    async def _converge(self, sources: dict[TopicPlan, Held]) -> None:
        """Until nothing is missing, or nothing has arrived for long. Then what was found counts."""
        world = self._world
        names = [world.target_name(topic) for topic in sources]
        deadline, still = trio.current_time() + _CONVERGE_S, trio.current_time()
        ends: dict[tuple[str, int], int] = {}
        found: dict[TopicPlan, Findings] = {}
        while True:
            now = trio.current_time()
            latest = await ends_of(world, TARGET, names)
            if latest != ends or not found:
                still, ends = now, latest
                for topic, source in sources.items():
                    if topic not in found or not found[topic].faithful or found[topic].target == 0:
                        with suppress(TrafficFailed):
                            found[topic] = await self._compare(topic, source)
            complete = len(found) == len(sources) and not any(one.lost for one in found.values())
            if complete or now > deadline or now > still + _STILL_S:
                break
            await self._restart_failed_tasks()
            await trio.sleep(1.0)
        world.said(f"converged: {complete}")
        # A record that was still to come may have come twice: the last look counts.
        await trio.sleep(1.0)
        for topic, source in sources.items():
            self._note("", topic, await _patiently(partial(self._compare, topic, source)))

    async def _compare(self, topic: TopicPlan, source: Held) -> Findings:
        world = self._world
        mirror = next(one for one in world.plan.mirrors if one.source == topic.cluster)
        target = await read_topic(
            world.clusters[TARGET].bootstrap, world.target_name(topic), committed=mirror.exactly_once
        )
        terms = Terms(committed=mirror.exactly_once, keeps_time=topic.keeps_time)
        findings = Findings()
        for partition in sorted(source.keys() | target.keys()):
            findings.add(
                judge_partition(partition, source.get(partition, []), target.get(partition, []), world.ledger, terms)
            )
        return findings

    def _note(self, side: str, topic: TopicPlan, findings: Findings) -> None:
        verdict, name = self._verdict, f"{side}{topic.cluster}/{topic.name}"
        if findings.lost and findings.tail == len(findings.lost):
            verdict.hangs.append(f"{name}: {findings.tail} records at the end have not arrived")
        else:
            verdict.lost += [f"{name}/{one}" for one in findings.lost]
        verdict.altered += [f"{name}/{one}" for one in findings.altered]
        verdict.reordered += [f"{name}/{one}" for one in findings.reordered]
        self._attribute(side, name, topic, findings)

    def _attribute(self, side: str, name: str, topic: TopicPlan, findings: Findings) -> None:
        if not findings.doubled:
            return
        world, verdict = self._world, self._verdict
        mirror = next(one for one in world.plan.mirrors if one.source == topic.cluster)
        if side or mirror.exactly_once:
            causes = {NONE: [f"{name}/{partition}@{offset}" for partition, offset in findings.doubled]}
        else:
            target = world.target_name(topic)
            doubled = [
                Doubled(where=f"{name}/{partition}@{offset}", when=self._watch.when(target, partition, offset))
                for partition, offset in findings.doubled
            ]
            causes = attribute(doubled, verdict.faults, self._watch.tasks_began)
        for cause, places in causes.items():
            verdict.doubled.setdefault(cause, []).extend(places)

    # -- processes and logs -------------------------------------------------------------------------------------------

    async def _restart_failed_tasks(self) -> None:
        """Kafka Connect never starts a failed task again: that is for an operator to do (docs/mirroring.md)."""
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
        if "shoal" in self._world.slow_ends:
            self._verdict.hangs.append("Shoal did not end in time after SIGTERM, in the middle of the round")

    async def _logs(self) -> None:
        world, verdict = self._world, self._verdict
        log = world.shoal.log.read_text(errors="replace")
        verdict.loud += unexplained(log, world.plan.kinds())
        verdict.flow = _flow(log)


async def pool_scan(world: World, name: str) -> list[str]:
    findings = await _patiently(world.scanners[name].scan)
    return [f"{name}: {finding.topic}-{finding.partition}@{finding.offset} ({finding.where})" for finding in findings]


async def _patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Again and again for a while: brokers that have just come back may not know their leaders."""
    for _ in range(8):
        try:
            return await call()
        except TrafficFailed:
            await trio.sleep(2.0)
    return await call()


def _flow(log: str) -> dict[str, int]:
    import json

    counts: Counter[str] = Counter()
    for line in log.splitlines():
        if line.startswith('{"') and '"event": "flow"' in line:
            with suppress(ValueError):
                counts.update({name: value for name, value in json.loads(line).items() if isinstance(value, int)})
    wanted = ("wrapped_records", "unwrapped_records", "envelopes", "retries_suppressed")
    return {name: counts[name] for name in counts if name in wanted or name.endswith("_envelopes")}
