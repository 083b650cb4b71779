"""The world of one round: topics on clusters of the pool, Shoal, mirrors, producers, and a relay in every link.

    producers -> link:producers -> brokers of A <- link:A <- Shoal <- link:fetch <- mirror -> link:produce -> Shoal ->
    link:B -> brokers of B

and in some rounds producers -> link:coalesce -> Shoal -> link:A. In a cluster of three, brokers reach each other by
link:inside:B (requests to the controllers go directly).

Names of topics and aliases are new in every round, so that rounds can share clusters.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import trio

from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.errors import TrafficFailed
from shoal.scenarios.kafka.security.clients import ANYBODY, ClientSecurity
from tests.torture.clients.ledger import Ledger
from tests.torture.clients.librdkafka import Librdkafka
from tests.torture.clients.other_clients import Java, KafkaPython
from tests.torture.plan import INSIDE, TARGET, link_names

from .clock import Clock
from .disk import small_disk, unmount
from .links import Link, relaying
from .mirrors import SHOAL, alias, mirror_spec, start_mirror
from .parts import Part
from .pool import BETWEEN_BROKERS, FOR_PRODUCERS, RELAY, RELAYED_AS, Pool
from .security import Security
from .shoal_side import PORTS, draw_ports, port_of, shoal_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster, Node
    from shoal.scenarios.kafka.content.scan import Scanner
    from shoal.scenarios.kafka.mirror import Mirror
    from shoal.scenarios.kafka.process import Process
    from tests.support.shoal_process import ShoalProcess
    from tests.torture.clients.writer import Writer
    from tests.torture.plan import Plan, ProducerPlan, TopicPlan

    from .shoal_side import Ports

_WRITERS: Mapping[str, type[Writer]] = {"librdkafka": Librdkafka, "kafka-python": KafkaPython, "java": Java}
_LINK_OF = {"wrap": "fetch", "unwrap": "produce", "coalesce": "coalesce"}
_ASKED_S = 5.0
_REPLICATING_S = 300.0


@dataclass(slots=True)
class World:
    """Use `running_world`."""

    plan: Plan
    run: str
    """Part of all names of this round."""
    work: Path
    clusters: Mapping[str, Cluster]
    scanners: Mapping[str, Scanner]
    shoal: ShoalProcess
    ports: Mapping[str, Ports]
    """Ports of Shoal's listeners, by the mirror's source."""
    said: Callable[[str], None]
    links: dict[str, Link] = field(default_factory=dict)
    mirrors: dict[str, Mirror] = field(default_factory=dict)
    parts: dict[str, Part] = field(default_factory=dict)
    clocks: dict[str, Clock] = field(default_factory=dict)
    """Disks of parts that have one of their own."""
    writers: list[Writer] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    partitions: dict[tuple[str, str], int] = field(default_factory=dict)
    """Topics, by cluster and name in the plan."""
    recreated: set[tuple[str, str]] = field(default_factory=set)
    security: Security | None = None
    slow_ends: list[str] = field(default_factory=list)
    """Parts that did not end in time after SIGTERM."""

    @property
    def login(self) -> ClientSecurity:
        """How clients connect to Shoal."""
        return self.security.client if self.security else ANYBODY

    def source_name(self, topic: TopicPlan) -> str:
        prefix = "so-" if self.plan.shoal.same_offsets else ""
        return f"{prefix}{topic.name}-{self.run}"

    def target_name(self, topic: TopicPlan) -> str:
        name = self.source_name(topic)
        return name if self.plan.mirror_of(topic).identity else f"{alias(topic.cluster, self.run)}.{name}"

    def topics(self, cluster: str) -> Topics:
        return Topics(self.clusters[cluster].bootstrap, within=_ASKED_S)

    def processes_ended(self) -> list[str]:
        """Parts that have ended although no fault holds them down."""
        return [name for name, part in self.parts.items() if not part.running]

    @property
    def state(self) -> Path:
        return self.work / "state"


@asynccontextmanager
async def running_world(
    pool: Pool, plan: Plan, run: str, work: Path, said: Callable[[str], None]
) -> AsyncIterator[World]:
    """Everything but the producers runs, and each mirror copies. Only the pool's clusters remain afterwards.
    Raises HarnessError."""
    pool.keep_only({cluster.name for cluster in plan.clusters})
    clusters = {cluster.name: await pool.cluster(cluster) for cluster in plan.clusters}
    ports = draw_ports(plan)
    clocks = {
        fault.where: Clock(work / "clocks" / fault.where.replace(":", "-"))
        for fault in plan.faults
        if fault.kind == "step-clock"
    }
    environments = {name: environment for name, clock in clocks.items() if (environment := clock.environment())}
    security = Security(plan.seed, pool.authority, work / "security") if plan.secured and pool.authority else None
    world = World(
        plan=plan,
        run=run,
        work=work,
        clusters=clusters,
        scanners={name: pool.scanner(name) for name in clusters},
        shoal=shoal_process(plan, run, clusters, ports, work, environments.get("shoal", {}), security),
        security=security,
        ports=ports,
        said=said,
        clocks={name: clocks[name] for name in environments},
    )
    world.links = {f"link:{name}": Link(name) for name in link_names(plan)}
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        if "full-disk" in plan.kinds() and small_disk(world.state):
            stack.callback(unmount, world.state)
        await stack.enter_async_context(relaying(_links(world)))
        for topic in plan.topics:
            bootstrap = clusters[topic.cluster].bootstrap
            await Topics(bootstrap).create(world.source_name(topic), topic.partitions, config=topic.settings)
            world.partitions[topic.key] = topic.partitions
        stack.callback(_end, world)
        await world.shoal.start()
        for mirror in plan.mirrors:
            brokers = {name: _bootstrap(cluster, mirror.relayed) for name, cluster in clusters.items()}
            spec = mirror_spec(plan, mirror, run, brokers, ports[mirror.source], work, world.login)
            environment = environments.get(f"mirror:{mirror.source}", {})
            world.mirrors[mirror.source] = await start_mirror(
                work / f"mirror-{mirror.source}", mirror, spec, environment, world.login
            )
        world.parts = dict(_parts(world))
        world.writers = list(_writers(world))
        for started in world.mirrors.values():
            await started.until_replicating(within=_REPLICATING_S)
        if security:
            nursery.start_soon(security.keep_renewing)
        yield world


def _bootstrap(cluster: Cluster, relayed: bool) -> str:
    if not relayed:
        return cluster.bootstrap
    return ",".join(f"{RELAY}:{node.settings.ports.proxied}" for node in cluster.nodes.values())


def _links(world: World) -> list[tuple[Link, str, list[int]]]:
    links = []
    for name, cluster in world.clusters.items():
        every = [node.settings.ports for node in cluster.nodes.values()]
        links.append(
            (
                world.links[f"link:{name}"],
                RELAY,
                sorted({one for ports in every for one in (ports.proxied, port_of(ports, world.security))}),
            )
        )
        for listener, link in ((FOR_PRODUCERS, "producers"), (BETWEEN_BROKERS, f"{INSIDE}{name}")):
            if f"link:{link}" in world.links and (listener == BETWEEN_BROKERS or name != TARGET):
                found = [ports.relayed[listener] for ports in every]
                links.append((world.links[f"link:{link}"], RELAYED_AS[listener], found))
    for side, port in {(side, port) for sides in world.ports.values() for side, port in sides.items()}:
        links.append((world.links[f"link:{_LINK_OF[side]}"], SHOAL, list(range(port, port + PORTS))))
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


def _writers(world: World) -> list[Writer]:
    topics = {topic.key: topic for topic in world.plan.topics}
    writers = []
    for plan in world.plan.producers:
        topic = topics[plan.cluster, plan.topic]
        writers.append(
            _WRITERS[plan.client](
                plan=plan,
                bootstrap=_for_producer(world, plan),
                login=world.login if plan.coalesced else ANYBODY,
                topic=world.source_name(topic),
                partitions=partial(world.partitions.__getitem__, topic.key),
                filtered=topic.filtered,
                ledger=world.ledger,
                said=world.said,
            )
        )
    return writers


def _for_producer(world: World, plan: ProducerPlan) -> str:
    if plan.coalesced:
        return f"{SHOAL}:{world.ports[plan.cluster]['coalesce']}"
    host, nodes = RELAYED_AS[FOR_PRODUCERS], world.clusters[plan.cluster].nodes.values()
    return ",".join(f"{host}:{node.settings.ports.relayed[FOR_PRODUCERS]}" for node in nodes)


def _end(world: World) -> None:
    for writer in world.writers:
        writer.stop()
    for mirror in world.mirrors.values():
        if mirror.running:
            mirror.kill()
    if world.shoal.running:
        world.shoal.kill()


async def ends_of(world: World, cluster: str, names: list[str]) -> dict[tuple[str, int], int]:
    """End offsets of the topics that are available now."""
    topics = world.topics(cluster)
    ends: dict[tuple[str, int], int] = {}
    for name in dict.fromkeys(names):
        with suppress(TrafficFailed, trio.TooSlowError):
            ends |= {(name, partition): end for partition, end in (await topics.ends(name)).items()}
    return ends
