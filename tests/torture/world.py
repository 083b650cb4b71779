"""The world of one round: topics on clusters of the pool, Shoal, mirrors, producers, and a relay in every link.

    producers -> brokers of A <- link:A <- Shoal <- link:fetch <- mirror -> link:produce -> Shoal -> link:B -> brokers of B

Brokers advertise RELAY to those who come through the relay, Shoal advertises SHOAL. Names of topics and aliases are new in every round, so
that rounds may share clusters.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import trio

from shoal.scenarios.kafka.broker import Cluster, ClusterSpec, Node
from shoal.scenarios.kafka.errors import TrafficFailed
from shoal.scenarios.kafka.mirror import Mirror, MirrorSpec
from shoal.scenarios.kafka.process import Process, together
from shoal.scenarios.kafka.scan import Scanner
from shoal.scenarios.kafka.topics import Topics
from tests.shoal_process import ShoalProcess, free_port_block, write_toml

from .ledger import Ledger
from .links import Link, relaying
from .parts import Part
from .plan import TARGET, ClusterPlan, MirrorPlan, Plan, TopicPlan
from .traffic import Writer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

RELAY, SHOAL = "127.0.0.2", "127.0.0.3"
_PORTS = 6  # of one listener: bootstrap and up to five brokers
_HEAP = "320m"
_IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
_ASKED_S = 5.0
_REPLICATED = (
    "replication.factor",
    "offset-syncs.topic.replication.factor",
    "checkpoints.topic.replication.factor",
    "offset.storage.replication.factor",
    "status.storage.replication.factor",
    "config.storage.replication.factor",
)


class Pool:
    """Clusters that live from round to round while their plans are equal. `end` kills what is left."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._started = 0
        self._clusters: dict[str, tuple[ClusterPlan, Cluster]] = {}
        self._scanners: dict[str, Scanner] = {}

    async def cluster(self, plan: ClusterPlan) -> Cluster:
        """All nodes running, with or without the agent as planned. Raises NotReady."""
        if plan.name in self._clusters:
            was, cluster = self._clusters[plan.name]
            if (was.version, was.nodes) == (plan.version, plan.nodes):
                await self._healed(cluster, plan)
                self._clusters[plan.name] = plan, cluster
                return cluster
            self.drop(plan.name)
        self._started += 1
        properties = {"min.insync.replicas": "2", "transaction.state.log.min.isr": "2"} if plan.nodes >= 3 else {}
        spec = ClusterSpec(
            version=plan.version,
            nodes=plan.nodes,
            heap=_HEAP,
            proxied_as=RELAY,
            agent=plan.agent,
            properties={**properties, "log.cleaner.backoff.ms": "2000"},
        )
        cluster = await Cluster.start(self._work / f"{plan.name}-{self._started}", spec)
        self._clusters[plan.name] = plan, cluster
        self._scanners[plan.name] = Scanner(cluster.bootstrap)
        return cluster

    def scanner(self, name: str) -> Scanner:
        return self._scanners[name]

    def logs(self) -> list[tuple[Path, str]]:
        """The brokers' logs, and a name for each."""
        return [
            (node.log, f"broker-{name}-{number}.log")
            for name, (_, cluster) in self._clusters.items()
            for number, node in cluster.nodes.items()
            if node.log.exists()
        ]

    def drop(self, name: str) -> None:
        _, cluster = self._clusters.pop(name)
        cluster.kill_all()

    def end(self) -> None:
        for name in list(self._clusters):
            self.drop(name)

    async def _healed(self, cluster: Cluster, plan: ClusterPlan) -> None:
        for node in cluster.nodes.values():
            if node.agent != plan.agent:
                node.agent = plan.agent
                if node.running:
                    await node.stop()
        await together(*(node.start for node in cluster.nodes.values() if not node.running))
        await cluster.wait_whole()


@dataclass(slots=True)
class World:
    """Use `running_world`."""

    plan: Plan
    run: str
    """In all names of this round."""
    work: Path
    clusters: Mapping[str, Cluster]
    scanners: Mapping[str, Scanner]
    shoal: ShoalProcess
    ports: Mapping[str, int]
    """Of Shoal's listeners, by cluster."""
    said: Callable[[str], None]
    links: dict[str, Link] = field(default_factory=dict)
    mirrors: dict[str, Mirror] = field(default_factory=dict)
    parts: dict[str, Part] = field(default_factory=dict)
    writers: list[Writer] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    partitions: dict[tuple[str, str], int] = field(default_factory=dict)
    """Of topics, by cluster and name in the plan."""
    recreated: set[tuple[str, str]] = field(default_factory=set)
    slow_ends: list[str] = field(default_factory=list)
    """Parts that did not end in time after SIGTERM."""

    def source_name(self, topic: TopicPlan) -> str:
        return f"{topic.name}-{self.run}"

    def target_name(self, topic: TopicPlan) -> str:
        mirror = self._mirror_of(topic.cluster)
        name = self.source_name(topic)
        return name if mirror.identity else f"{_alias(topic.cluster, self.run)}.{name}"

    def _mirror_of(self, cluster: str) -> MirrorPlan:
        return next(one for one in self.plan.mirrors if one.source == cluster)

    def topics(self, cluster: str) -> Topics:
        return Topics(self.clusters[cluster].bootstrap, within=_ASKED_S)

    def processes_ended(self) -> list[str]:
        """Parts that do not run though nobody holds them down."""
        return [name for name, part in self.parts.items() if not part.running]


def _alias(cluster: str, run: str) -> str:
    return f"{cluster.lower()}{run}"


def _mirror_spec(plan: Plan, mirror: MirrorPlan, run: str, world: World) -> MirrorSpec:
    target = _alias(TARGET, run)
    replicas = str(min(plan.cluster(TARGET).nodes, 3))
    extra: dict[str, str | None] = {
        **dict.fromkeys(_REPLICATED, replicas),
        "offset-syncs.topic.replication.factor": str(min(plan.cluster(mirror.source).nodes, 3)),
        "refresh.topics.interval.seconds": "2",
        f"{target}.offset.flush.interval.ms": "2000",
    }
    if mirror.identity:
        extra["replication.policy.class"] = _IDENTITY
    topics = ",".join(world.source_name(topic) for topic in plan.topics if topic.cluster == mirror.source)
    return MirrorSpec(
        source=world.clusters[mirror.source].bootstrap,
        target=world.clusters[TARGET].bootstrap,
        consumer=f"{SHOAL}:{world.ports[mirror.source]}",
        producer=f"{SHOAL}:{world.ports[TARGET]}",
        topics=topics,
        tasks=mirror.tasks,
        version=mirror.version,
        heap="512m",
        source_alias=_alias(mirror.source, run),
        target_alias=target,
        exactly_once=mirror.exactly_once,
        extra=extra,
    )


def _shoal_toml(plan: Plan, clusters: Mapping[str, Cluster], ports: Mapping[str, int], work: Path) -> Path:
    def listener(name: str) -> dict[str, object]:
        port = ports[name]
        shallow: dict[str, object] = {"run-limit": plan.shoal.run_limit, "min-batch-bytes": plan.shoal.min_batch_bytes}
        side: dict[str, object] = {"mode": "wrap", "pair": TARGET}
        if name == TARGET:
            side = {"mode": "unwrap"}
            shallow = {"plain-compression": plan.shoal.plain_compression} if plan.shoal.plain_compression else {}
        return {
            "name": name,
            "cluster": name,
            "listen": f"127.0.0.1:{port}",
            "advertise": SHOAL,
            "ports": f"{port + 1}-{port + _PORTS - 1}",
            **side,
            **({"shallow": shallow} if shallow else {}),
        }

    def bootstrap(name: str) -> list[str]:
        return [f"{RELAY}:{node.settings.ports.proxied}" for node in clusters[name].nodes.values()]

    document: dict[str, object] = {
        "state-dir": str(work / "state"),
        "cluster": [
            {
                "name": name,
                "bootstrap": bootstrap(name),
                **({"multi-batch": plan.shoal.multi_batch} if name == TARGET else {}),
            }
            for name in clusters
        ],
        "listener": [listener(name) for name in clusters],
    }
    return write_toml(work / "shoal.toml", document)


@asynccontextmanager
async def running_world(
    pool: Pool, plan: Plan, run: str, work: Path, said: Callable[[str], None], base_ms: int
) -> AsyncIterator[World]:
    """Everything runs but the producers, and each mirror copies. Nothing but the pool's clusters is left afterwards. Raises NotReady."""
    clusters = {one.name: await pool.cluster(one) for one in plan.clusters}
    ports = {name: free_port_block(_PORTS) for name in clusters}
    config = _shoal_toml(plan, clusters, ports, work)
    argv = ["run", "-c", str(config), "--log-format", "json", "--report-every", "1"]
    shoal = ShoalProcess(argv, work=work, ports=list(ports.values()))
    scanners = {name: pool.scanner(name) for name in clusters}
    world = World(
        plan=plan, run=run, work=work, clusters=clusters, scanners=scanners, shoal=shoal, ports=ports, said=said
    )
    for topic in plan.topics:
        await Topics(clusters[topic.cluster].bootstrap).create(
            world.source_name(topic), topic.partitions, config=topic.settings
        )
        world.partitions[topic.cluster, topic.name] = topic.partitions
    world.links = {f"link:{name}": Link(name) for name in (*clusters, "fetch", "produce")}
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(relaying(_links(world)))
        stack.callback(_end, world)
        await shoal.start()
        for mirror in plan.mirrors:
            spec = _mirror_spec(plan, mirror, run, world)
            world.mirrors[mirror.source] = await Mirror.start(work / f"mirror-{mirror.source}", spec)
        world.parts = dict(_parts(world))
        world.writers = list(_writers(world, base_ms))
        for one in world.mirrors.values():
            await one.until_replicating()
        yield world


def _links(world: World) -> list[tuple[Link, str, list[int]]]:
    links = []
    for name, cluster in world.clusters.items():
        proxied = [node.settings.ports.proxied for node in cluster.nodes.values()]
        links.append((world.links[f"link:{name}"], RELAY, proxied))
        first = world.ports[name]
        side = "produce" if name == TARGET else "fetch"
        links.append((world.links[f"link:{side}"], SHOAL, list(range(first, first + _PORTS))))
    return links


def _parts(world: World) -> list[tuple[str, Part]]:
    async def restart(mirror: Mirror) -> None:
        mirror.restart()

    parts = [Part("shoal", world.shoal.start, lambda: world.shoal.process, world.said)]
    for name, mirror in world.mirrors.items():
        parts.append(Part(f"mirror:{name}", partial(restart, mirror), partial(_process, mirror), world.said))
    for name, cluster in world.clusters.items():
        for number, node in cluster.nodes.items():
            parts.append(Part(f"broker:{name}:{number}", node.start, partial(_process, node), world.said))
    return [(part.name, part) for part in parts]


def _process(owner: Mirror | Node) -> Process:
    return owner.process


def _writers(world: World, base_ms: int) -> list[Writer]:
    topics = {(topic.cluster, topic.name): topic for topic in world.plan.topics}
    return [
        Writer(
            plan=plan,
            bootstrap=world.clusters[plan.cluster].bootstrap,
            topic=world.source_name(topics[plan.cluster, plan.topic]),
            partitions=partial(world.partitions.__getitem__, (plan.cluster, plan.topic)),
            ledger=world.ledger,
            base_ms=base_ms,
            said=world.said,
        )
        for plan in world.plan.producers
    ]


def _end(world: World) -> None:
    for writer in world.writers:
        writer.stop()
    for mirror in world.mirrors.values():
        if mirror.running:
            mirror.kill()
    if world.shoal.running:
        world.shoal.kill()


async def ends_of(world: World, cluster: str, names: list[str]) -> dict[tuple[str, int], int]:
    """End offsets of what can be asked for now."""
    topics = world.topics(cluster)
    ends: dict[tuple[str, int], int] = {}
    for name in names:
        with suppress(TrafficFailed, trio.TooSlowError):
            spans = await topics.spans(name)
            ends |= {(name, partition): span.end for partition, span in spans.items()}
    return ends
