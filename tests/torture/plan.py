"""A round's plan: set-up and faults. It can be written as JSON; `draw.py` makes one from a seed.

A plan is sound: Kafka itself survives it. If a partition has no leader while a transaction ends, Kafka 4.3 omits the
transaction's marker (docs/mirroring.md): so a cluster with transactions has three brokers, and only one of them is down
at a time. `crowded` checks the faults for that.
"""

from dataclasses import dataclass, replace

import msgspec

TARGET = "B"
INSIDE = "inside:"
"""Prefix of a cluster's name: the link between its brokers."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DOWN = ("kill-broker", "stop-broker", "pause-broker", "swap-agent", "fail-disk")
"""Faults that take a broker down for a while."""
_RECOVERY = 12.0  # seconds between faults that remove brokers of a cluster with transactions


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
    filtered: bool = False
    """A transform of the mirror drops some of its records: it is among Shoal's deep topics."""

    @property
    def key(self) -> tuple[str, str]:
        return self.cluster, self.name

    @property
    def settings(self) -> dict[str, str]:
        return dict(self.config)

    @property
    def compacted(self) -> bool:
        return self.settings.get("cleanup.policy") == "compact"

    @property
    def shortened(self) -> bool:
        """Retention deletes old records while the round runs."""
        return "retention.ms" in self.settings

    @property
    def keeps_time(self) -> bool:
        """Copies keep the producer's timestamps; otherwise the target's brokers set their own."""
        return self.settings.get("message.timestamp.type") != "LogAppendTime"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerPlan:
    number: int
    cluster: str
    topic: str
    client: str = "librdkafka"
    """librdkafka, kafka-python, java."""
    kind: str
    """plain, idempotent, transactional."""
    codec: str
    shape: str
    """Shape of the records: see `records.SHAPES`."""
    run: int
    """Consecutive records for one partition: about a batch."""
    rate: int
    """Records per second."""
    coalesced: bool = False
    """It writes through a listener of Shoal's that joins requests; otherwise to the brokers."""
    age_s: int = 0
    """Age of the records' timestamps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPlan:
    source: str
    version: str = "4.3.0"
    tasks: int = 2
    exactly_once: bool = False
    long_transactions: bool = False
    identity: bool = False
    """IdentityReplicationPolicy: copies keep the topics' names."""
    connect: bool = False
    """A connector on a Kafka Connect worker, which can be paused; otherwise dedicated."""
    relayed: bool = False
    """Its own cluster connections (admin, groups, internal topics) go through the relay, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShoalPlan:
    min_batch_bytes: int = 4096
    run_limit: int = 512 * 1024
    multi_batch: str = "auto"
    plain_compression: str | None = None
    one_unwrap: bool = False
    """All mirrors produce through one listener; otherwise each has its own."""
    capture: bool = False
    """It writes a capture index."""
    same_offsets: bool = False
    """All copies are mirror topics: each committed record is at its source's offset, once, whatever happens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    at: float
    """Seconds after the mirrors have started."""
    kind: str
    where: str
    """A process ("shoal", "mirror:A", "broker:B:2"), a link ("link:B", "link:inside:B"), a cluster ("B") or a topic
    ("A/t0")."""
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
    secured: bool = False
    """TLS and logins between Shoal and the brokers, and between Shoal and its clients: `environment/security.py`."""

    def cluster(self, name: str) -> ClusterPlan:
        return next(cluster for cluster in self.clusters if cluster.name == name)

    def mirror_of(self, topic: TopicPlan) -> MirrorPlan:
        return next(mirror for mirror in self.mirrors if mirror.source == topic.cluster)

    def topic_at(self, where: str) -> TopicPlan:
        """Parses a fault's place: "A/t0"."""
        cluster, _, name = where.partition("/")
        return next(topic for topic in self.topics if topic.key == (cluster, name))

    def transactional(self, cluster: str) -> bool:
        """Transactions write to this cluster: producers' on a source, a mirror's on the target."""
        if cluster == TARGET:
            return any(mirror.exactly_once for mirror in self.mirrors)
        return any(producer.cluster == cluster and producer.kind == "transactional" for producer in self.producers)

    def with_faults(self, faults: tuple[FaultPlan, ...]) -> "Plan":
        return replace(self, faults=faults)

    def kinds(self) -> frozenset[str]:
        return frozenset(fault.kind for fault in self.faults)

    def has(self, kind: str, where: str) -> bool:
        return any((fault.kind, fault.where) == (kind, where) for fault in self.faults)


def link_names(plan: Plan) -> list[str]:
    """Names of the plan's relays; see `world.py`."""
    names = [*(cluster.name for cluster in plan.clusters), "fetch", "produce", "producers"]
    names += [f"{INSIDE}{cluster.name}" for cluster in plan.clusters if cluster.nodes >= 3]
    return names + ["coalesce"] * any(producer.coalesced for producer in plan.producers)


def to_json(plan: Plan) -> bytes:
    return msgspec.json.format(msgspec.json.encode(plan))


def from_json(data: bytes) -> Plan:
    return msgspec.json.decode(data, type=Plan)


def crowded(plan: Plan, faults: list[FaultPlan], fault: FaultPlan) -> bool:
    """Kafka itself would not survive this fault together with the others: see the top of this file."""
    cluster = _weakened(fault)
    if cluster is None or not plan.transactional(cluster):
        return False
    if plan.cluster(cluster).nodes < 3:
        return True
    others = [other for other in faults if _weakened(other) == cluster]
    return any(other.at < fault.end + _RECOVERY and fault.at < other.end + _RECOVERY for other in others)


def _weakened(fault: FaultPlan) -> str | None:
    """The cluster that lacks a broker, or whose brokers cannot reach each other: replicas leave the ISR."""
    kind, _, place = fault.where.partition(":")
    if fault.kind in DOWN:
        return place.partition(":")[0]
    return place.removeprefix(INSIDE) if kind == "link" and place.startswith(INSIDE) else None
