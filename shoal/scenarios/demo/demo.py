"""The demo, from the first broker to the last comparison.

The brokers serve all runs, and are warm before the first: the source has been filled and read, a target has taken
records of the same kind. JIT compilation in brokers, which run for months, is not a cost of mirroring. The mirror,
which is what is compared, is a fresh process in each run.
"""

from __future__ import annotations

import shutil
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from shoal.scenarios.demo.mirror_run import PHASES_OF_A_RUN, MirrorRun
from shoal.scenarios.demo.plan import PARTITIONS, TOPIC, Plan, only_node
from shoal.scenarios.demo.proxies import Proxies
from shoal.scenarios.demo.report import Report
from shoal.scenarios.kafka.broker import Cluster, running_cluster
from shoal.scenarios.kafka.content.copies import read_copy
from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.scan import Scanner
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import fill
from shoal.scenarios.kafka.java.jars import jars
from shoal.scenarios.kafka.segments import SegmentContents, segment_contents

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shoal.scenarios.demo.phases import Phase, Phases
    from shoal.scenarios.demo.plan import Comparison, Turn
    from shoal.scenarios.demo.report import DemoRun

__all__ = ["phases_of", "run_demo"]

_MB, _KB = 1_000_000, 1_000


def phases_of(plan: Plan) -> int:
    return 7 + sum(map(len, plan.turns())) * PHASES_OF_A_RUN


async def run_demo(plan: Plan, phases: Phases) -> Report:
    """Raises HarnessError if a process does not start, ends early or stalls. Leaves the logs in `plan.work`."""
    shutil.rmtree(plan.work, ignore_errors=True)
    async with AsyncExitStack() as stack:
        with phases.phase("Kafka") as phase:
            lib = await jars(plan.kafka)
            phase.done(f"{plan.kafka} from Maven Central, {len(list(lib.glob('*.jar')))} jars")
        with phases.phase("clusters") as phase:
            source = await stack.enter_async_context(running_cluster(plan.work / "source", plan.cluster()))
            targets = await _targets(plan, stack)
            phase.done(f"source {source.bootstrap}, {_named(targets)}")
        proxies = Proxies(plan, source, targets)
        stack.push_async_callback(proxies.end)
        with phases.phase("Shoal") as phase:
            await proxies.start_first()
            phase.done(f"see http://{plan.admin}/status and /metrics, idle until its run")
        with phases.phase("warm the target") as phase:
            for target in targets.values():
                await _warmed(plan, target, phase)
        with phases.phase("fill the source topic") as phase:
            filled = await _filled(plan, source, phase)
        with phases.phase("read the source topic") as phase:
            original = await read_copy(source.bootstrap, TOPIC, login=source.login)
            phase.done(f"{original.records:,} records, a fingerprint of each kept")
        mirror = MirrorRun(plan=plan, phases=phases, source=source, targets=targets, original=original, proxies=proxies)
        rounds = [await _round(mirror, turns) for turns in plan.turns()]
        clusters = [source, *targets.values()]
        with phases.phase("look for envelopes") as phase:
            left = await _envelopes(clusters, phase)
    for cluster in clusters:
        shutil.rmtree(only_node(cluster).data)
    ratios = plan.comparison.ratios
    return Report(kafka=plan.kafka, source=filled, rounds=rounds, ratios=ratios, envelopes_left=left)


async def _round(mirror: MirrorRun, turns: Sequence[Turn]) -> Mapping[str, DemoRun]:
    """By run, in the order of the plan."""
    found = {turn.run: await mirror.run(turn) for turn in turns}
    return {run: found[run] for run in mirror.plan.comparison.runs}


async def _targets(plan: Plan, stack: AsyncExitStack) -> dict[bool, Cluster]:
    """Target clusters, by whether they have the agent."""
    targets = {}
    for agent in sorted({run.agent for run in plan.comparison.runs.values()}):
        work = plan.work / ("target-agent" if agent else "target")
        targets[agent] = await stack.enter_async_context(running_cluster(work, plan.cluster(agent=agent)))
    return targets


def _named(targets: dict[bool, Cluster]) -> str:
    return ", ".join(
        f"target {cluster.bootstrap}{' with the agent' if agent else ''}" for agent, cluster in targets.items()
    )


async def _warmed(plan: Plan, target: Cluster, phase: Phase) -> None:
    topics, topic, count = (
        Topics(target.bootstrap, login=target.login),
        "warm-up",
        min(plan.records, plan.comparison.warm_up),
    )
    await topics.create(topic, PARTITIONS)
    await _fill(plan.comparison, target, topic, count, phase)
    await topics.delete(topic)
    phase.done(f"{count:,} records, deleted again")


async def _envelopes(clusters: list[Cluster], phase: Phase) -> int:
    scanners = [Scanner(cluster.bootstrap, login=cluster.login) for cluster in clusters]
    found = [finding for scanner in scanners for finding in await scanner.scan()]
    looked_at = sum(scanner.records for scanner in scanners)
    phase.done(f"{len(found)} in {looked_at:,} records of all topics of all clusters")
    return len(found)


async def _fill(comparison: Comparison, cluster: Cluster, topic: str, count: int, phase: Phase) -> None:
    await fill(
        cluster.bootstrap,
        topic,
        orders(count),
        layout=comparison.layout,
        login=cluster.login,
        progress=lambda done: phase.now(f"{done:,} of {count:,} records", done, count),
        compression_type=comparison.codec,
        enable_idempotence=True,
    )


async def _filled(plan: Plan, source: Cluster, phase: Phase) -> SegmentContents:
    await Topics(source.bootstrap, login=source.login).create(TOPIC, PARTITIONS)
    await _fill(plan.comparison, source, TOPIC, plan.records, phase)
    found = segment_contents(only_node(source).data, TOPIC)
    batches = f"{found.batches:,} batches of {found.batch_size / _KB:,.1f} kB"
    phase.done(f"{found.records:,} records, {found.size / _MB:,.1f} MB {', '.join(found.codecs)}, {batches}")
    return found
