"""seed -> plan. All random values come from one generator, in one order: the same seed gives the same plan."""

from __future__ import annotations

import random
from dataclasses import replace
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
    link_names,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

SECONDS = 45.0  # of traffic and faults; start, healing and reading take additional time
FIRST_FAULT, LAST_FAULT = 4.0, 40.0
_NEAR, _SOON_S = 0.5, 2.0  # share of faults that follow the previous one within this time: they hit a recovery
_HANDS = 5  # seeds that share all kinds of faults
_TRIES = 20  # attempts to find a place and a time within the fault limit
_SMALL = 50  # partitions: only smaller topics are recreated
_DAYS = 3 * 24 * 3600  # older than producer.id.expiration.ms
_COALESCED = 0.7  # share of the producers, in rounds with coalescing
_SAME_OFFSETS = 0.5  # share of the rounds in which it is possible
_NOT_WITH_OFFSETS = frozenset({"recreate-topic", "swap-agent"})  # a partition waits for an operator, or for the agent
_SHORT_SEGMENTS = ("segment.ms", "3000")


def make_plan(seed: int) -> Plan:
    draw = random.Random(seed)
    hand = hand_of(seed)
    clusters, mirrors = _clusters_and_mirrors(draw, hand)
    topics = tuple(topic for mirror in mirrors for topic in _topics(draw, mirror, len(mirrors), hand))
    coalesced = _COALESCED if draw.random() < 0.3 else 0.0
    nodes = {cluster.name: cluster.nodes for cluster in clusters}
    producers = tuple(
        replace(producer, coalesced=draw.random() < coalesced) for producer in _producers(draw, topics, nodes)
    )
    plan = Plan(
        seed=seed,
        seconds=SECONDS,
        clusters=clusters,
        topics=topics,
        producers=producers,
        mirrors=mirrors,
        shoal=_shoal(draw, len(mirrors)),
        faults=(),
    )
    plan = plan.with_faults(_faults(draw, plan))
    may_keep = draw.random() < _SAME_OFFSETS and not plan.kinds() & _NOT_WITH_OFFSETS
    return keeping_offsets(plan) if may_keep else plan


def keeping_offsets(plan: Plan) -> Plan:
    """The same round with mirror topics, if it has one source: two can't have their offsets in one topic."""
    if len(plan.mirrors) > 1:
        return plan
    return replace(
        plan,
        clusters=tuple(replace(cluster, agent=cluster.agent or cluster.name == TARGET) for cluster in plan.clusters),
        topics=tuple(replace(topic, filtered=False) for topic in plan.topics),
        shoal=replace(plan.shoal, same_offsets=True),
        faults=tuple(fault for fault in plan.faults if fault.kind not in _NOT_WITH_OFFSETS),
    )


def _clusters_and_mirrors(
    draw: random.Random, hand: frozenset[str]
) -> tuple[tuple[ClusterPlan, ...], tuple[MirrorPlan, ...]]:
    # Few kinds of clusters, so that the pool usually has a running one.
    exactly_once = draw.random() < 0.45 and "pause-connector" not in hand
    sources = ("A", "C") if draw.random() < 0.2 else ("A",)
    clusters = [ClusterPlan(name="A", nodes=draw.choice((1, 1, 1, 3)) if len(sources) == 1 else 1)]
    clusters += [ClusterPlan(name=name, nodes=1) for name in sources[1:]]
    nodes = 3 if exactly_once or "move-leaders" in hand else draw.choice((1, 3, 3))
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
            connect=not exactly_once and (draw.random() < 0.2 or "pause-connector" in hand),
            relayed=draw.random() < 0.4,
        )
        for source in sources
    ]
    return tuple(clusters), tuple(mirrors)


def _topics(draw: random.Random, mirror: MirrorPlan, mirrors: int, hand: frozenset[str]) -> list[TopicPlan]:
    sizes: tuple[int, ...] = draw.choice(((1, 2), (4,), (6, 2, 1), (12, 3), (2, 2, 2), (60,), (200,)))
    if "recreate-topic" in hand:
        sizes = tuple(min(size, _SMALL // 2) for size in sizes)
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
    if topic.compacted or topic.shortened:  # removed records are known from acknowledgements, one record each
        client, kind = "librdkafka", "idempotent"
    if client == "java":
        # VerifiableProducer: plain values; it chooses the partition.
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


def _shoal(draw: random.Random, mirrors: int) -> ShoalPlan:
    return ShoalPlan(
        min_batch_bytes=draw.choice((0, 0, 0, 512, 4096)),
        run_limit=draw.choice((64, 512, 512)) * 1024,
        multi_batch=draw.choice(("auto", "auto", "never")),
        plain_compression=draw.choice((None, None, "zstd", "lz4")),
        one_unwrap=mirrors > 1 and draw.random() < 0.6,
        capture=draw.random() < 0.4,
    )


# Duration of a fault of each kind, in seconds.
_LENGTHS: Mapping[str, tuple[float, float]] = {
    "kill-broker": (0.0, 8.0),
    "stop-broker": (0.0, 4.0),
    "pause-broker": (0.5, 12.0),
    "fail-disk": (2.0, 8.0),
    "swap-agent": (0.0, 2.0),
    "kill-shoal": (0.0, 3.0),
    "stop-shoal": (0.0, 2.0),
    "pause-shoal": (0.2, 12.0),
    "kill-mirror": (0.0, 3.0),
    "stop-mirror": (0.0, 2.0),
    "pause-mirror": (0.5, 20.0),
    "pause-connector": (1.0, 12.0),
    "move-leaders": (0.0, 0.0),
    "add-partitions": (0.0, 0.0),
    "recreate-topic": (0.0, 3.0),
    "cut-link": (0.0, 4.0),
    "slow-link": (2.0, 15.0),
    "flap-link": (3.0, 15.0),
    "freeze-link": (1.0, 20.0),
    "step-clock": (2.0, 15.0),
    "full-disk": (3.0, 15.0),
}


def hand_of(seed: int) -> frozenset[str]:
    """The kinds of fault that this seed always has: five seeds cover all kinds, each time in another order."""
    kinds = list(_LENGTHS)
    random.Random(seed // _HANDS).shuffle(kinds)
    return frozenset(kinds[seed % _HANDS :: _HANDS])


def _places(plan: Plan) -> dict[str, list[str]]:
    """Where each kind can happen; not every plan has all kinds."""
    brokers = [f"broker:{cluster.name}:{node}" for cluster in plan.clusters for node in range(1, cluster.nodes + 1)]
    mirrors = [f"mirror:{mirror.source}" for mirror in plan.mirrors]
    wide = [cluster.name for cluster in plan.clusters if cluster.nodes >= 3]
    links = [f"link:{name}" for name in link_names(plan)]
    topics = [f"{topic.cluster}/{topic.name}" for topic in plan.topics]
    places = {
        **dict.fromkeys(("kill-broker", "stop-broker", "pause-broker", "fail-disk"), brokers),
        "swap-agent": [name for name in brokers if name.startswith(f"broker:{TARGET}")],
        **{kind: ["shoal"] for kind in ("kill-shoal", "stop-shoal", "pause-shoal", "full-disk")},
        **dict.fromkeys(("kill-mirror", "stop-mirror", "pause-mirror"), mirrors),
        "pause-connector": [f"mirror:{mirror.source}" for mirror in plan.mirrors if mirror.connect],
        "move-leaders": wide,
        "add-partitions": topics,
        "recreate-topic": [f"{topic.cluster}/{topic.name}" for topic in plan.topics if topic.partitions < _SMALL],
        **dict.fromkeys(("cut-link", "slow-link", "flap-link", "freeze-link"), links),
        "step-clock": ["shoal", *mirrors],
    }
    return {kind: where for kind, where in places.items() if where}


def _faults(draw: random.Random, plan: Plan) -> tuple[FaultPlan, ...]:
    places = _places(plan)
    # The copy of such a topic may lack any record, so their share is limited.
    more = sorted(places.keys() - {"recreate-topic"})
    kinds = sorted(hand_of(plan.seed) & places.keys()) + draw.choices(more, k=draw.choice((0, 4, 10)))
    draw.shuffle(kinds)
    faults: list[FaultPlan] = []
    at = FIRST_FAULT
    for kind in kinds:
        for _ in range(_TRIES):
            near = bool(faults) and draw.random() < _NEAR
            at = min(at + draw.uniform(0, _SOON_S), LAST_FAULT) if near else draw.uniform(FIRST_FAULT, LAST_FAULT)
            fault = FaultPlan(
                at=round(at, 2),
                kind=kind,
                where=draw.choice(places[kind]),
                seconds=round(draw.uniform(*_LENGTHS[kind]), 2),
                amount=round(draw.random(), 3),
            )
            if not crowded(plan, faults, fault):
                faults.append(fault)
                break
    return tuple(sorted(faults, key=lambda fault: fault.at))
