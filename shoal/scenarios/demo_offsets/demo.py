"""The demo, from the first broker to the last comparison."""

from __future__ import annotations

import shutil
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from shoal.scenarios.demo_offsets.compare import compare_copies, compare_group, identities
from shoal.scenarios.demo_offsets.log_ends import LogEnds
from shoal.scenarios.demo_offsets.mirroring import Meter, check_running, running_mirroring
from shoal.scenarios.demo_offsets.move import Move, at_target
from shoal.scenarios.demo_offsets.plan import COMPACTED, PARTITIONS, TOPICS, mirrored_name
from shoal.scenarios.demo_offsets.replicas import Replicas, compare_replicas
from shoal.scenarios.demo_offsets.report import Report
from shoal.scenarios.demo_offsets.source_topics import begin_late, compact, fill_source
from shoal.scenarios.kafka.broker import running_cluster
from shoal.scenarios.kafka.content.copies import read_copy
from shoal.scenarios.kafka.content.reading import READ_COMMITTED
from shoal.scenarios.kafka.content.scan import Scanner
from shoal.scenarios.kafka.java.jars import jars
from shoal.scenarios.kafka.process import together

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.scenarios.demo.phases import Phase, Phases
    from shoal.scenarios.demo_offsets.compare import Counts, GroupCounts
    from shoal.scenarios.demo_offsets.mirroring import Measured, Roles
    from shoal.scenarios.demo_offsets.plan import Plan
    from shoal.scenarios.kafka.broker import Cluster
    from shoal.scenarios.kafka.content.copies import Copy

__all__ = ["PHASES", "run_demo"]

PHASES = 12
_NAMES = {topic.name: topic.name for topic in TOPICS}
_COPIES = {topic.name: mirrored_name(topic.name) for topic in TOPICS}


async def run_demo(plan: Plan, phases: Phases) -> Report:
    """Raises HarnessError if a process does not start, ends early or stalls. Leaves the logs in `plan.work`."""
    async with AsyncExitStack() as stack:
        with phases.phase("Kafka") as phase:
            await jars(plan.kafka)
            phase.done(plan.kafka)
        with phases.phase("source brokers") as phase:
            source = await stack.enter_async_context(running_cluster(plan.work / "source", plan.source()))
            phase.done(source.bootstrap)
        with phases.phase("target brokers, with the agent") as phase:
            target = await stack.enter_async_context(running_cluster(plan.work / "target", plan.target()))
            phase.done(target.bootstrap)
        with phases.phase("fill the source") as phase:
            await fill_source(plan, source, phase)
        with phases.phase(f"compact {COMPACTED.name}") as phase:
            await compact(plan, source, phase)
        with phases.phase("delete first records") as phase:
            await begin_late(source, phase)
        async with running_mirroring(plan, source, target) as roles:
            with phases.phase("mirror what is there") as phase:
                backlog, measured = await _mirror_backlog(source, target, roles, phase)
            move = Move(
                plan=plan,
                source=source.bootstrap,
                target=target.bootstrap,
                backlog=backlog,
                check=partial(check_running, roles),
            )
            await _run(move, phases)
        with phases.phase("compare every record") as phase:
            topics, group = await _compare(source, target, move, phase)
        with phases.phase("look for envelopes") as phase:
            envelopes = await _envelopes(target, phase)
        with phases.phase("compare the replicas") as phase:
            await target.stop()
            replicas = _compare_replicas(target, phase)
    report = Report(
        kafka=plan.kafka,
        topics=topics,
        group=group,
        replicas=replicas,
        envelopes=envelopes,
        backlog=backlog,
        measured=measured,
    )
    if report.good:  # otherwise the logs of the brokers are evidence
        for node in (*source.nodes.values(), *target.nodes.values()):
            shutil.rmtree(node.data)
    return report


async def _mirror_backlog(source: Cluster, target: Cluster, roles: Roles, phase: Phase) -> tuple[int, Measured]:
    """The number of records that the mirror finds at its start, and what copying them takes from the first one on."""
    check = partial(check_running, roles)
    wanted = await LogEnds(source.bootstrap, _NAMES).now()
    ends = LogEnds(target.bootstrap, _COPIES.values())
    await ends.until_begun(check)
    meter = Meter(roles)
    await ends.until(at_target(wanted), check, lambda done, total: phase.now(f"{done:,} offsets", done, total))
    measured = meter.read()
    records = sum(copy.records for copy in (await _read(source, _NAMES)).values())
    phase.done(f"{records:,} records in {measured.wall_s:.1f} s")
    return records, measured


async def _run(move: Move, phases: Phases) -> None:
    with phases.phase("more records; the group moves") as phase:
        await move.run(phase.now)
        read = move.at_source.records.total(), move.at_target.records.total()
        phase.done(f"it has read {read[0]:,} records at the source, then {read[1]:,} at the target")
    with phases.phase("mirror the rest") as phase:
        await LogEnds(move.target, _COPIES.values()).until(at_target(move.source_ends), move.check)
        phase.done(f"all of the {len(TOPICS) * PARTITIONS} logs end where those of the source do")


async def _compare(
    source: Cluster, target: Cluster, move: Move, phase: Phase
) -> tuple[Mapping[str, Counts], GroupCounts]:
    ours, theirs = await _read(source, _NAMES), await _read(target, _COPIES)
    topics = {name: compare_copies(copy, theirs[name], compacted=name == COMPACTED.name) for name, copy in ours.items()}
    phase.done(f"{sum(counts.same_offset for counts in topics.values()):,} equal, at the same offset")
    complaints = move.at_source.complaints + move.at_target.complaints
    original = identities(ours.values())
    return topics, compare_group(original, move.at_source.records, move.at_target.records, complaints)


async def _read(cluster: Cluster, names: Mapping[str, str]) -> dict[str, Copy]:
    """All committed records of all topics; `names`: what they are called in this cluster."""
    copies: dict[str, Copy] = {}

    async def read(name: str) -> None:
        topic = names[name]
        copies[name] = await read_copy(cluster.bootstrap, topic, isolation=READ_COMMITTED, timestamp_types=True)

    await together(*(partial(read, name) for name in names))
    return {name: copies[name] for name in names}


async def _envelopes(target: Cluster, phase: Phase) -> int:
    scanner = Scanner(target.bootstrap)
    found = len(await scanner.scan())
    phase.done(f"{found} in {scanner.records:,} records of all topics of the target")
    return found


def _compare_replicas(target: Cluster, phase: Phase) -> Replicas:
    compared = [
        compare_replicas([node.data / f"{name}-{number}" for node in target.nodes.values()])
        for name in _COPIES.values()
        for number in range(PARTITIONS)
    ]
    files = sum(replicas.files for replicas in compared)
    differences = tuple(difference for replicas in compared for difference in replicas.differences)
    phase.done(f"{'NOT EQUAL' if differences else 'equal'}: {files} segment files")
    return Replicas(files, differences)
