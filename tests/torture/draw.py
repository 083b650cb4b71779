"""seed -> plan. Everything is drawn from one generator, in one order: the same seed is the same plan."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from .plan import (
    CODECS,
    TARGET,
    ClusterPlan,
    FaultPlan,
    MirrorPlan,
    Plan,
    ProducerPlan,
    ShoalPlan,
    TopicPlan,
    crowded,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

SECONDS = 45.0  # of traffic and faults; starting, healing and reading come on top
FIRST_FAULT, LAST_FAULT = 4.0, 40.0
_NEAR, _SOON_S = 0.5, 2.0  # so often a fault follows the one before within so many seconds: what recovers is hit again
_DAYS = 3 * 24 * 3600  # older than producer.id.expiration.ms
_SHORT_SEGMENTS = ("segment.ms", "3000")


def make_plan(seed: int) -> Plan:
    draw = random.Random(seed)
    clusters, mirrors = _clusters_and_mirrors(draw)
    topics = tuple(topic for mirror in mirrors for topic in _topics(draw, mirror, len(mirrors)))
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


def _clusters_and_mirrors(draw: random.Random) -> tuple[tuple[ClusterPlan, ...], tuple[MirrorPlan, ...]]:
    # Few kinds of clusters, so that the pool finds what it needs running.
    exactly_once = draw.random() < 0.4
    sources = ("A", "C") if draw.random() < 0.15 else ("A",)
    clusters = [ClusterPlan(name="A", nodes=draw.choice((1, 1, 1, 3)) if len(sources) == 1 else 1)]
    clusters += [ClusterPlan(name=name, nodes=1) for name in sources[1:]]
    nodes = 3 if exactly_once else draw.choice((1, 3, 3))
    version = draw.choices(("4.3.0", "3.9.1"), (6, 1))[0]
    clusters.append(ClusterPlan(name=TARGET, version=version, nodes=nodes, agent=draw.random() < 0.4))
    identity = draw.random() < 0.3
    mirrors = [
        MirrorPlan(
            source=source,
            version=draw.choice(("4.3.0", "4.3.0", "3.9.1")),
            tasks=draw.choice((1, 2, 4)),
            exactly_once=exactly_once,
            long_transactions=draw.random() < 0.5,
            identity=identity,
            connect=not exactly_once and draw.random() < 0.2,
            relayed=draw.random() < 0.4,
        )
        for source in sources
    ]
    return tuple(clusters), tuple(mirrors)


def _topics(draw: random.Random, mirror: MirrorPlan, mirrors: int) -> list[TopicPlan]:
    sizes = draw.choice(((1, 2), (4,), (6, 2, 1), (12, 3), (2, 2, 2), (60,), (200,)))
    if mirrors > 1:
        sizes = (4, 2)  # equal on both sources: with IdentityReplicationPolicy they meet in the target's topics
    return [
        TopicPlan(
            cluster=mirror.source,
            name=f"t{index}",
            partitions=size,
            config=tuple(_topic_config(draw).items()) if mirrors == 1 else (),
            filtered=not mirror.connect and draw.random() < 0.08,
        )
        for index, size in enumerate(sizes)
    ]


def _topic_config(draw: random.Random) -> dict[str, str]:
    config: dict[str, str] = {}
    if draw.random() < 0.25:
        config["compression.type"] = draw.choice(("zstd", "lz4", "gzip", "uncompressed"))
    special = draw.random()
    if special < 0.08:
        config["message.timestamp.type"] = "LogAppendTime"
    elif special < 0.16:
        config |= dict([("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.01"), _SHORT_SEGMENTS])
    elif special < 0.24:
        config |= dict([("retention.ms", "15000"), _SHORT_SEGMENTS])
    return config


def _producers(draw: random.Random, topics: tuple[TopicPlan, ...], nodes: Mapping[str, int]) -> list[ProducerPlan]:
    producers: list[ProducerPlan] = []
    for topic in topics:
        for _ in range(draw.choice((1, 1, 2))):
            producers.append(_producer(draw, len(producers), topic, nodes[topic.cluster]))
    return producers


def _producer(draw: random.Random, number: int, topic: TopicPlan, nodes: int) -> ProducerPlan:
    kind = draw.choice(("plain", "idempotent", "idempotent", "transactional"))
    if kind == "transactional" and nodes < 3:
        kind = "idempotent"
    shape = "keyed" if topic.compacted else draw.choice(("orders", "orders", "odd", "tiny", "large"))
    client = draw.choices(("librdkafka", "kafka-python", "java"), (8, 1, 1))[0]
    if (
        topic.compacted or topic.shortened
    ):  # what was there and is gone is known from acknowledgements, each of one record
        client, kind = "librdkafka", "idempotent"
    if client == "java":
        # VerifiableProducer: plain values, a partition by its own choice.
        kind, shape = "plain", "verifiable"
    elif client == "kafka-python":
        kind = "idempotent" if kind == "transactional" else kind
    large = shape == "large"
    return ProducerPlan(
        number=number,
        cluster=topic.cluster,
        topic=topic.name,
        client=client,
        kind=kind,
        codec=draw.choice(("zstd", "zstd", *CODECS)),
        shape=shape,
        run=draw.choice((1, 4)) if large else draw.choice((1, 10, 100, 400)),
        rate=15 if large else draw.choice((100, 300, 800, 2500)),
        age_s=0 if topic.shortened or draw.random() < 0.85 else _DAYS,
    )


def _shoal(draw: random.Random) -> ShoalPlan:
    return ShoalPlan(
        min_batch_bytes=draw.choice((0, 0, 0, 512, 4096)),
        run_limit=draw.choice((64, 512, 512)) * 1024,
        multi_batch=draw.choice(("auto", "auto", "never")),
        plain_compression=draw.choice((None, None, "zstd", "lz4")),
    )


# How long a fault lasts, in seconds; kinds without an entry are over at once.
_LENGTHS: Mapping[str, tuple[float, float]] = {
    "kill-broker": (0.0, 8.0),
    "stop-broker": (0.0, 4.0),
    "pause-broker": (0.5, 12.0),
    "swap-agent": (0.0, 2.0),
    "kill-shoal": (0.0, 3.0),
    "stop-shoal": (0.0, 2.0),
    "pause-shoal": (0.2, 12.0),
    "kill-mirror": (0.0, 3.0),
    "stop-mirror": (0.0, 2.0),
    "pause-mirror": (0.5, 20.0),
    "pause-connector": (1.0, 12.0),
    "recreate-topic": (0.0, 3.0),
    "cut-link": (0.0, 4.0),
    "slow-link": (2.0, 15.0),
    "flap-link": (3.0, 15.0),
    "freeze-link": (1.0, 20.0),
    "step-clock": (2.0, 15.0),
    "full-disk": (3.0, 15.0),
}


def _menu(plan: Plan) -> list[tuple[str, float, list[str]]]:
    """(kind, weight, where it may happen)."""
    brokers = [f"broker:{one.name}:{node}" for one in plan.clusters for node in range(1, one.nodes + 1)]
    mirrors = [f"mirror:{mirror.source}" for mirror in plan.mirrors]
    connectors = [f"mirror:{mirror.source}" for mirror in plan.mirrors if mirror.connect]
    links = [f"link:{one.name}" for one in plan.clusters] + ["link:fetch", "link:produce"]
    wide = [one.name for one in plan.clusters if one.nodes >= 3]
    topics = [f"{topic.cluster}/{topic.name}" for topic in plan.topics]
    small = [f"{topic.cluster}/{topic.name}" for topic in plan.topics if topic.partitions < 50]
    return [
        ("kill-broker", 3, brokers),
        ("stop-broker", 1, brokers),
        ("pause-broker", 2, brokers),
        ("swap-agent", 1, [name for name in brokers if name.startswith(f"broker:{TARGET}")]),
        ("kill-shoal", 3, ["shoal"]),
        ("stop-shoal", 2, ["shoal"]),
        ("pause-shoal", 1, ["shoal"]),
        ("kill-mirror", 2, mirrors),
        ("stop-mirror", 1, mirrors),
        ("pause-mirror", 1, mirrors),
        ("pause-connector", 4, connectors),
        ("move-leaders", 3, wide),
        ("add-partitions", 1, topics),
        ("recreate-topic", 0.5, small),
        ("cut-link", 3, links),
        ("slow-link", 1, links),
        ("flap-link", 2, links),
        ("freeze-link", 2, links),
        ("step-clock", 1, ["shoal", *mirrors]),
        ("full-disk", 0.7, ["shoal"]),
    ]


def _faults(draw: random.Random, plan: Plan) -> tuple[FaultPlan, ...]:
    menu = [(weight, kind, places) for kind, weight, places in _menu(plan) if places]
    weights = [weight for weight, _, _ in menu]
    faults: list[FaultPlan] = []
    at = FIRST_FAULT
    for _ in range(draw.choice((4, 8, 14))):
        (_, kind, places) = draw.choices(menu, weights)[0]
        near = bool(faults) and draw.random() < _NEAR
        at = min(at + draw.uniform(0, _SOON_S), LAST_FAULT) if near else draw.uniform(FIRST_FAULT, LAST_FAULT)
        fault = FaultPlan(
            at=round(at, 2),
            kind=kind,
            where=draw.choice(places),
            seconds=round(draw.uniform(*_LENGTHS.get(kind, (0.0, 0.0))), 2),
            amount=round(draw.random(), 3),
        )
        if not crowded(plan, faults, fault):
            faults.append(fault)
    return tuple(sorted(faults, key=lambda fault: fault.at))
