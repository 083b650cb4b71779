"""The mirrors of a round: dedicated MirrorMaker 2, or a connector on a Kafka Connect worker, which can be paused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shoal.proxy.cli.doctor.value_rules import RAW_BATCH_SIZE
from shoal.scenarios.kafka.mirror import Mirror, MirrorSpec
from shoal.scenarios.kafka.security.clients import ANYBODY, ClientSecurity
from tests.support.kafka.connect import ConnectMirror, connector_config
from tests.torture.plan import TARGET

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.torture.plan import MirrorPlan, Plan

SHOAL = "127.0.0.3"
"""What Shoal advertises: the relay forwards from there."""
DROPPED = "drop"
"""Records with this header are dropped by the transform of a filtered topic."""
CONNECTOR = "mirror"
_IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
# A worker that was away for longer than its session has no tasks for this time: 5 minutes by default, which looks like
# a hang.
_REBALANCE_MS = "2000"
_REPLICATED = (
    "replication.factor",
    "checkpoints.topic.replication.factor",
    "offset.storage.replication.factor",
    "status.storage.replication.factor",
    "config.storage.replication.factor",
)
# MirrorMaker 2's own exclusions, and retention: the copies are compared at the end.
_NOT_SYNCED = (
    r"follower\.replication\.throttled\.replicas,leader\.replication\.throttled\.replicas,message\.timestamp\.difference\.max\.ms,"
    r"message\.timestamp\.before\.max\.ms,message\.timestamp\.after\.max\.ms,unclean\.leader\.election\.enable,min\.insync\.replicas,"
    r"retention\..*,segment\..*"
)
_REQUEST_BYTES = "1052684"  # as `shoal mirror` prints it
_FILTER = {
    "transforms": "drop",
    "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
    "transforms.drop.predicate": "marked",
    "predicates": "marked",
    "predicates.marked.type": "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
    "predicates.marked.name": DROPPED,
}
_CONVERTERS = {
    f"{part}.converter": "org.apache.kafka.connect.converters.ByteArrayConverter" for part in ("key", "value", "header")
}


def alias(cluster: str, run: str) -> str:
    """An alias for this round: a mirror with no past."""
    return f"{cluster.lower()}{run}"


def mirror_spec(
    plan: Plan,
    mirror: MirrorPlan,
    run: str,
    brokers: Mapping[str, str],
    ports: Mapping[str, int],
    work: Path,
    login: ClientSecurity = ANYBODY,
) -> MirrorSpec:
    """`brokers`: bootstrap servers by cluster; `ports`: of Shoal's listeners for this mirror, by side."""
    source, target = alias(mirror.source, run), alias(TARGET, run)
    topics = [topic for topic in plan.topics if topic.cluster == mirror.source]
    extra: dict[str, str | None] = {
        **dict.fromkeys(_REPLICATED, str(min(plan.cluster(TARGET).nodes, 3))),
        "offset-syncs.topic.replication.factor": str(min(plan.cluster(mirror.source).nodes, 3)),
        "refresh.topics.interval.seconds": "2",
        "config.properties.exclude": _NOT_SYNCED,
        f"{target}.offset.flush.interval.ms": "2000",
        f"{target}.scheduled.rebalance.max.delay.ms": _REBALANCE_MS,
    }
    if mirror.identity:
        extra["replication.policy.class"] = _IDENTITY
    if mirror.long_transactions:
        flow = f"{source}->{target}"
        extra |= {f"{flow}.transaction.boundary": "interval", f"{flow}.transaction.boundary.interval.ms": "1500"}
    if plan.shoal.same_offsets:
        producer = "producer.override." if mirror.connect else f"{target}.producer."
        extra[f"{producer}max.request.size"] = _REQUEST_BYTES
    if any(topic.filtered for topic in topics):
        extra |= {f"{source}->{target}.{name}": value for name, value in _FILTER.items()}
    if login != ANYBODY and not mirror.connect:
        producer = f"{target}." if mirror.exactly_once else f"{target}.producer."
        extra |= {**login.java(f"{source}.consumer."), **login.java(producer)}
    return MirrorSpec(
        source=brokers[mirror.source],
        target=brokers[TARGET],
        consumer=f"{SHOAL}:{ports['wrap']}",
        producer=f"{SHOAL}:{ports['unwrap']}",
        topics=",".join(f"{'so-' if plan.shoal.same_offsets else ''}{topic.name}-{run}" for topic in topics),
        tasks=mirror.tasks,
        version=mirror.version,
        heap="512m",
        source_alias=source,
        target_alias=target,
        exactly_once=mirror.exactly_once,
        extra=extra,
    )


class Worker(ConnectMirror):
    """The connector that `spec` describes, on its own worker. `connected` creates it, once."""

    login: ClientSecurity = ANYBODY

    def worker_properties(self) -> dict[str, str]:
        factor = self.spec.extra.get("replication.factor") or "1"
        stores = {f"{store}.storage.replication.factor": factor for store in ("config", "offset", "status")}
        quick = {"offset.flush.interval.ms": "2000", "scheduled.rebalance.max.delay.ms": _REBALANCE_MS}
        return {**super().worker_properties(), **stores, **quick}

    async def connected(self) -> None:
        spec = self.spec
        wiring = {
            "source.consumer.bootstrap.servers": spec.consumer or "",
            "producer.override.bootstrap.servers": spec.producer or "",
            "producer.override.compression.type": "none",
            "producer.override.batch.size": str(RAW_BATCH_SIZE),
        }
        if self.login != ANYBODY:
            wiring |= {**self.login.java("source.consumer."), **self.login.java("producer.override.")}
        plain = {name: value for name, value in spec.extra.items() if value is not None and "->" not in name}
        named = {name: value for name, value in plain.items() if not name.startswith(f"{spec.target_alias}.")}
        await self.configure(CONNECTOR, {**connector_config(spec), **wiring, **_CONVERTERS, **named})

    async def paused(self, paused: bool) -> None:
        await self.put(f"/connectors/{CONNECTOR}/{'pause' if paused else 'resume'}")


async def start_mirror(
    work: Path, plan: MirrorPlan, spec: MirrorSpec, environment: Mapping[str, str], login: ClientSecurity = ANYBODY
) -> Mirror:
    """Returns once its tasks copy. Raises NotReady."""
    spec = replace(spec, environment=environment)
    if not plan.connect:
        return await Mirror.start(work, spec)
    worker = await Worker.start(work, spec)
    worker.login = login
    await worker.connected()
    return worker
