"""What a round consists of, as a function of its seed: the same seed is the same plan, and a plan can be written as JSON.

A plan is sound: it asks for nothing that Kafka itself does not survive. Where a partition has no leader while a transaction ends, Kafka
4.3 leaves out the transaction's marker (docs/mirroring.md): so a cluster with transactions has three brokers, and of those one at a time
is taken away. `crowded` holds the faults against that.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

SOURCES = ("A", "C")
TARGET = "B"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SECONDS = 45.0  # of traffic and faults; starting, healing and reading come on top
FIRST_FAULT, LAST_FAULT = 4.0, 40.0
DOWN = ("kill-broker", "stop-broker", "pause-broker")
"""Faults that take a broker away for a while."""
_RECOVERY = (
    12.0  # seconds between two faults that take away brokers of a cluster with transactions: to elect, to come back
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    name: str
    version: str = "4.3.0"
    nodes: int = 3
    agent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    cluster: str
    name: str
    partitions: int
    config: tuple[tuple[str, str], ...] = ()

    @property
    def settings(self) -> dict[str, str]:
        return dict(self.config)

    @property
    def compacted(self) -> bool:
        return self.settings.get("cleanup.policy") == "compact"

    @property
    def keeps_time(self) -> bool:
        """Copies have the time that the producer gave; else the target's brokers give them their own."""
        return self.settings.get("message.timestamp.type") != "LogAppendTime"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerPlan:
    number: int
    cluster: str
    topic: str
    kind: str
    """plain, idempotent, transactional."""
    codec: str
    shape: str
    """Of the records: see `records.SHAPES`."""
    run: int
    """Records for one partition before the next one gets some: about a batch."""
    rate: int
    """Records per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPlan:
    source: str
    version: str = "4.3.0"
    tasks: int = 2
    exactly_once: bool = False
    identity: bool = False
    """IdentityReplicationPolicy: copies have the names of their topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShoalPlan:
    min_batch_bytes: int = 4096
    run_limit: int = 512 * 1024
    multi_batch: str = "auto"
    plain_compression: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    at: float
    """Seconds after the mirrors have begun."""
    kind: str
    where: str
    """A part ("shoal", "mirror:A", "broker:B:2"), a link ("link:B"), a cluster ("B") or a topic ("A/t0")."""
    seconds: float = 0.0
    amount: float = 0.0

    @property
    def end(self) -> float:
        return self.at + self.seconds

    def __str__(self) -> str:
        return f"{self.at:6.2f} {self.kind} {self.where} for {self.seconds:g} s ({self.amount:g})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    seed: int
    seconds: float
    clusters: tuple[ClusterPlan, ...]
    topics: tuple[TopicPlan, ...]
    producers: tuple[ProducerPlan, ...]
    mirrors: tuple[MirrorPlan, ...]
    shoal: ShoalPlan
    faults: tuple[FaultPlan, ...]

    def cluster(self, name: str) -> ClusterPlan:
        return next(one for one in self.clusters if one.name == name)

    def transactional(self, cluster: str) -> bool:
        """Transactions write to this cluster: producers' on a source, a mirror's on the target."""
        if cluster == TARGET:
            return any(mirror.exactly_once for mirror in self.mirrors)
        return any(one.cluster == cluster and one.kind == "transactional" for one in self.producers)

    def with_faults(self, faults: tuple[FaultPlan, ...]) -> "Plan":
        return replace(self, faults=faults)

    def kinds(self) -> frozenset[str]:
        return frozenset(fault.kind for fault in self.faults)


def to_json(plan: Plan) -> bytes:
    return msgspec.json.format(msgspec.json.encode(plan))


def from_json(data: bytes) -> Plan:
    return msgspec.json.decode(data, type=Plan)


def make_plan(seed: int) -> Plan:
    draw = random.Random(seed)
    eos = draw.random() < 0.4
    clusters, mirrors = _clusters_and_mirrors(draw, eos)
    topics = tuple(topic for mirror in mirrors for topic in _topics(draw, mirror.source))
    producers = tuple(_producers(draw, topics, {one.name: one.nodes for one in clusters}))
    plan = Plan(
        seed=seed,
        seconds=SECONDS,
        clusters=clusters,
        topics=topics,
        producers=producers,
        mirrors=mirrors,
        shoal=_shoal(draw),
        faults=(),
    )
    return plan.with_faults(_faults(draw, plan))


def _clusters_and_mirrors(draw: random.Random, eos: bool) -> tuple[tuple[ClusterPlan, ...], tuple[MirrorPlan, ...]]:
    # Few kinds of clusters, so that the pool finds what it needs running.
    source = ClusterPlan(name="A", nodes=draw.choice((1, 1, 3)))
    target = ClusterPlan(name=TARGET, nodes=3 if eos else draw.choice((1, 3, 3)), agent=draw.random() < 0.4)
    mirror = MirrorPlan(
        source="A",
        version=draw.choice(("4.3.0", "4.3.0", "3.9.1")),
        tasks=draw.choice((1, 2, 4)),
        exactly_once=eos,
        identity=draw.random() < 0.3,
    )
    return (source, target), (mirror,)


def _topics(draw: random.Random, cluster: str) -> list[TopicPlan]:
    sizes = draw.choice(((1, 2), (4,), (6, 2, 1), (12, 3)))
    return [
        TopicPlan(cluster=cluster, name=f"t{index}", partitions=size, config=tuple(_topic_config(draw).items()))
        for index, size in enumerate(sizes)
    ]


def _topic_config(draw: random.Random) -> dict[str, str]:
    config: dict[str, str] = {}
    if draw.random() < 0.25:
        config["compression.type"] = draw.choice(("zstd", "lz4", "gzip", "uncompressed"))
    if draw.random() < 0.08:
        config["message.timestamp.type"] = "LogAppendTime"
    return config


def _producers(draw: random.Random, topics: tuple[TopicPlan, ...], nodes: Mapping[str, int]) -> list[ProducerPlan]:
    producers: list[ProducerPlan] = []
    for topic in topics:
        for _ in range(draw.choice((1, 1, 2))):
            kind = draw.choice(("plain", "idempotent", "idempotent", "transactional"))
            if kind == "transactional" and nodes[topic.cluster] < 3:
                kind = "idempotent"
            shape = draw.choice(("orders", "orders", "odd", "tiny", "large"))
            producers.append(
                ProducerPlan(
                    number=len(producers),
                    cluster=topic.cluster,
                    topic=topic.name,
                    kind=kind,
                    codec=draw.choice(("zstd", "zstd", *CODECS)),
                    shape=shape,
                    run=draw.choice((1, 10, 100, 400)) if shape != "large" else draw.choice((1, 4)),
                    rate=draw.choice((100, 300, 800)) if shape != "large" else 15,
                )
            )
    return producers


def _shoal(draw: random.Random) -> ShoalPlan:
    return ShoalPlan(
        min_batch_bytes=draw.choice((0, 0, 512, 4096)),
        run_limit=draw.choice((64, 512, 512)) * 1024,
        multi_batch=draw.choice(("auto", "auto", "never")),
        plain_compression=draw.choice((None, None, "zstd", "lz4")),
    )


def _faults(draw: random.Random, plan: Plan) -> tuple[FaultPlan, ...]:
    menu = [(weight, kind, places) for kind, weight, places in _menu(plan) if places]
    weights = [weight for weight, _, _ in menu]
    faults: list[FaultPlan] = []
    for _ in range(draw.choice((3, 6, 10))):
        (_, kind, places) = draw.choices(menu, weights)[0]
        fault = FaultPlan(
            at=round(draw.uniform(FIRST_FAULT, LAST_FAULT), 2),
            kind=kind,
            where=draw.choice(places),
            seconds=round(draw.uniform(*_LENGTHS.get(kind, (0.0, 0.0))), 2),
            amount=round(draw.random(), 3),
        )
        if not crowded(plan, faults, fault):
            faults.append(fault)
    return tuple(sorted(faults, key=lambda fault: fault.at))


# How long a fault lasts, in seconds; kinds without an entry are over at once.
_LENGTHS: Mapping[str, tuple[float, float]] = {
    "kill-broker": (0.0, 8.0),
    "stop-broker": (0.0, 4.0),
    "pause-broker": (0.5, 12.0),
    "kill-shoal": (0.0, 3.0),
    "stop-shoal": (0.0, 2.0),
    "pause-shoal": (0.2, 12.0),
    "kill-mirror": (0.0, 3.0),
    "stop-mirror": (0.0, 2.0),
    "pause-mirror": (0.5, 20.0),
    "cut-link": (0.0, 4.0),
    "slow-link": (2.0, 15.0),
    "freeze-link": (1.0, 20.0),
}


def _menu(plan: Plan) -> list[tuple[str, float, list[str]]]:
    """(kind, weight, where it may happen)."""
    brokers = [f"broker:{one.name}:{node}" for one in plan.clusters for node in range(1, one.nodes + 1)]
    mirrors = [f"mirror:{mirror.source}" for mirror in plan.mirrors]
    links = [f"link:{one.name}" for one in plan.clusters] + ["link:fetch", "link:produce"]
    wide = [one.name for one in plan.clusters if one.nodes >= 3]
    topics = [f"{topic.cluster}/{topic.name}" for topic in plan.topics]
    return [
        ("kill-broker", 3, brokers),
        ("stop-broker", 1, brokers),
        ("pause-broker", 2, brokers),
        ("kill-shoal", 3, ["shoal"]),
        ("stop-shoal", 2, ["shoal"]),
        ("pause-shoal", 1, ["shoal"]),
        ("kill-mirror", 2, mirrors),
        ("stop-mirror", 1, mirrors),
        ("pause-mirror", 1, mirrors),
        ("move-leaders", 3, wide),
        ("add-partitions", 1, topics),
        ("cut-link", 3, links),
        ("slow-link", 1, links),
        ("freeze-link", 2, links),
    ]


def crowded(plan: Plan, faults: list[FaultPlan], fault: FaultPlan) -> bool:
    """Kafka itself would not survive this one beside the others: see the top of this file."""
    if fault.kind not in DOWN:
        return False
    cluster = fault.where.split(":")[1]
    if not plan.transactional(cluster):
        return False
    if plan.cluster(cluster).nodes < 3:
        return True
    others = [one for one in faults if one.kind in DOWN and one.where.split(":")[1] == cluster]
    return any(one.at < fault.end + _RECOVERY and fault.at < one.end + _RECOVERY for one in others)
