"""The table of fault kinds. Each changes the world, waits `fault.seconds`, and undoes its change; they can overlap."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import trio

from shoal.scenarios.kafka.errors import HarnessError
from tests.support.kafka_python import KafkaAdminClient, KafkaError, TopicPartition
from tests.torture.environment.disk import fill
from tests.torture.environment.mirrors import Worker

from .plan import TARGET

if TYPE_CHECKING:
    from tests.torture.environment.world import World

    from .plan import FaultPlan

Injection = Callable[["World", "FaultPlan"], Awaitable[None]]
_SLOWEST, _FASTEST = 20_000, 400_000  # bytes per second of a slow link
_SHORTEST_S = 0.05  # between two resets of a flapping link
_ADMIN_MS = 10_000
_STEP_S = 36 * 3600.0
"""The largest step of Shoal's clock, back or forth."""
_STEP_OF_JAVA_S = 20.0
"""The largest step of a mirror's clock: Kafka's clients reconnect and refresh by the time of day, so after a step back
by hours they wait for hours, with or without Shoal."""
_NOT_MADE = (HarnessError, KafkaError, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A fault that has happened: seconds on the round's clock."""

    kind: str
    where: str
    begin: float
    end: float
    failed: str | None = None


async def inject(world: World, fault: FaultPlan) -> None:
    await INJECTIONS[fault.kind](world, fault)


async def _kill(world: World, fault: FaultPlan) -> None:
    await world.parts[fault.where].down(fault.seconds, orderly=False)


async def _stop(world: World, fault: FaultPlan) -> None:
    if not await world.parts[fault.where].down(fault.seconds, orderly=True):
        world.said(f"{fault.where} did not end in time after SIGTERM")
        world.slow_ends.append(fault.where)


async def _pause(world: World, fault: FaultPlan) -> None:
    await world.parts[fault.where].frozen(fault.seconds)


async def _cut(world: World, fault: FaultPlan) -> None:
    await world.links[fault.where].cut(fault.seconds)


async def _slow(world: World, fault: FaultPlan) -> None:
    await world.links[fault.where].slow(fault.seconds, _SLOWEST + fault.amount * (_FASTEST - _SLOWEST))


async def _flap(world: World, fault: FaultPlan) -> None:
    await world.links[fault.where].flap(fault.seconds, _SHORTEST_S + fault.amount, _FASTEST)


async def _freeze(world: World, fault: FaultPlan) -> None:
    await world.links[fault.where].freeze(fault.seconds, drop=fault.amount < 0.5)


async def _add_partitions(world: World, fault: FaultPlan) -> None:
    topic = world.plan.topic_at(fault.where)
    total = world.partitions[topic.key] + 1 + round(fault.amount * 2)
    await world.topics(topic.cluster).add_partitions(world.source_name(topic), total)
    world.partitions[topic.key] = total


async def _recreate(world: World, fault: FaultPlan) -> None:
    """The source's topic is deleted and recreated, while producers write and the mirror copies."""
    topic = world.plan.topic_at(fault.where)
    topics, name = world.topics(topic.cluster), world.source_name(topic)
    world.recreated.add(topic.key)
    world.partitions[topic.key] = topic.partitions
    await topics.delete(name)
    await trio.sleep(fault.seconds)
    await topics.create(name, topic.partitions, config=topic.settings)


async def _swap_agent(world: World, fault: FaultPlan) -> None:
    """A broker restarts with the agent if it had none, and without it if it had one."""
    _, cluster, number = fault.where.split(":")
    node = world.clusters[cluster].nodes[int(number)]
    node.agent = not node.agent
    await world.parts[fault.where].down(fault.seconds, orderly=fault.amount < 0.5)


async def _fail_disk(world: World, fault: FaultPlan) -> None:
    await world.parts[fault.where].starved(fault.seconds)


async def _step_clock(world: World, fault: FaultPlan) -> None:
    if fault.where not in world.clocks:
        raise HarnessError("there is no C compiler")
    clock = world.clocks[fault.where]
    clock.set((fault.amount - 0.5) * 2 * (_STEP_S if fault.where == "shoal" else _STEP_OF_JAVA_S))
    try:
        await trio.sleep(fault.seconds)
    finally:
        clock.set(0)


async def _full_disk(world: World, fault: FaultPlan) -> None:
    if not world.state.is_mount():
        raise HarnessError("no small disk without root")
    filler = fill(world.state)
    try:
        await trio.sleep(fault.seconds)
    finally:
        filler.unlink(missing_ok=True)


async def _pause_connector(world: World, fault: FaultPlan) -> None:
    worker = world.mirrors[fault.where.partition(":")[2]]
    assert isinstance(worker, Worker)
    await worker.paused(True)
    try:
        await trio.sleep(fault.seconds)
    finally:
        await _resumed(worker)


async def _resumed(worker: Worker) -> None:
    """Resume, whatever happens to the worker meanwhile. Raises HarnessError when it can't be reached."""
    for last in (*(False,) * 60, True):
        try:
            await worker.paused(False)
        except (HarnessError, OSError):
            if last:
                raise
            await trio.sleep(1.0)
        else:
            return


async def _move_leaders(world: World, fault: FaultPlan) -> None:
    """For every partition of the round's topics in this cluster: reorder the replicas; the first becomes the leader."""
    cluster = world.clusters[fault.where]
    names = [
        world.target_name(topic) if fault.where == TARGET else world.source_name(topic)
        for topic in world.plan.topics
        if fault.where in (TARGET, topic.cluster)
    ]
    nodes = sorted(cluster.nodes)
    turn = 1 + round(fault.amount * (len(nodes) - 2))
    await trio.to_thread.run_sync(
        partial(_reassign, cluster.bootstrap, list(dict.fromkeys(names)), nodes, turn), abandon_on_cancel=True
    )


def _reassign(bootstrap: str, names: list[str], nodes: list[int], turn: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap.split(","), request_timeout_ms=_ADMIN_MS)
    try:
        moves = {}
        for topic in admin.describe_topics(names):
            for partition in topic["partitions"]:
                first = (nodes.index(partition["leader_id"]) if partition["leader_id"] in nodes else 0) + turn
                order = [nodes[(first + step) % len(nodes)] for step in range(len(nodes))]
                moves[topic["name"], partition["partition_index"]] = order
        _apply(admin, moves)
    finally:
        admin.close()


def _apply(admin: KafkaAdminClient, moves: Mapping[tuple[str, int], list[int]]) -> None:
    places = {TopicPartition(*place): order for place, order in moves.items()}
    admin.alter_partition_reassignments(places)
    partitions: dict[str, list[int]] = {}
    for name, partition in moves:
        partitions.setdefault(name, []).append(partition)
    admin.elect_leaders(0, partitions, raise_errors=False)


INJECTIONS: Mapping[str, Injection] = {
    "kill-broker": _kill,
    "stop-broker": _stop,
    "pause-broker": _pause,
    "fail-disk": _fail_disk,
    "kill-shoal": _kill,
    "stop-shoal": _stop,
    "pause-shoal": _pause,
    "kill-mirror": _kill,
    "stop-mirror": _stop,
    "pause-mirror": _pause,
    "move-leaders": _move_leaders,
    "add-partitions": _add_partitions,
    "recreate-topic": _recreate,
    "swap-agent": _swap_agent,
    "step-clock": _step_clock,
    "full-disk": _full_disk,
    "pause-connector": _pause_connector,
    "cut-link": _cut,
    "slow-link": _slow,
    "flap-link": _flap,
    "freeze-link": _freeze,
}


async def run_schedule(world: World, faults: tuple[FaultPlan, ...], clock: Callable[[], float]) -> list[Done]:
    """All faults at their times; returns after the last. A fault that could not happen is logged, and is no error."""
    done: list[Done] = []

    async def run_fault(fault: FaultPlan) -> None:
        await trio.sleep(max(0.0, fault.at - clock()))
        begin, failed = clock(), None
        world.said(f"{begin:6.1f} begins: {fault}")
        try:
            await inject(world, fault)
        except _NOT_MADE as error:
            failed = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            world.said(f"{fault} could not be made: {failed}")
        done.append(Done(kind=fault.kind, where=fault.where, begin=begin, end=clock(), failed=failed))

    async with trio.open_nursery() as nursery:
        for fault in faults:
            nursery.start_soon(run_fault, fault)
    return sorted(done, key=lambda fault: fault.begin)
