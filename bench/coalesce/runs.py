"""One setup at one load."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from bench.coalesce.crowd import start_crowd
from bench.coalesce.verify import verify
from bench.runs import percentile
from shoal.scenarios.kafka import metrics
from shoal.scenarios.kafka.content.topics import Topics

if TYPE_CHECKING:
    from pathlib import Path

    from bench.coalesce.crowd import Load, Told
    from bench.coalesce.verify import Verified
    from shoal.scenarios.kafka.broker import Cluster
    from shoal.scenarios.kafka.process import Process

__all__ = ["Measured", "Way", "check", "run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    name: str
    bootstrap: str
    shoal: Process | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Figures of the records after the warm-up. Latency of a record is from send to callback."""

    records: int
    seconds: float
    broker_requests: int
    broker_cpu_s: float
    shoal_cpu_s: float | None
    p50_ms: float
    p99_ms: float

    def as_json(self) -> dict[str, object]:
        return asdict(self)


async def run(way: Way, load: Load, cluster: Cluster, topic: str, work: Path) -> Measured:
    """`work` must not exist. Raises RuntimeError for a missing, doubled, reordered or unacknowledged record."""
    node = cluster.nodes[1]
    before = await Topics(cluster.bootstrap).spans(topic)
    kafka = cluster.spec.version
    crowd = await start_crowd(
        load, bootstrap=way.bootstrap, topic=topic, partitions=len(before), work=work, kafka=kafka
    )
    try:
        await crowd.ready()
        requests = await metrics.requests(node, "Produce")
        broker, shoal = node.process.usage(), way.shoal and way.shoal.usage()
        results = await crowd.run()
        broker_cpu = node.process.usage().since(broker).cpu_s
        shoal_cpu = way.shoal.usage().since(shoal).cpu_s if way.shoal and shoal else None
        requests = await metrics.requests(node, "Produce") - requests
    finally:
        crowd.end()
    check(await verify(cluster.bootstrap, topic, before), results)
    return Measured(
        records=len(results.latencies),
        seconds=round(results.seconds, 3),
        broker_requests=requests,
        broker_cpu_s=round(broker_cpu, 2),
        shoal_cpu_s=None if shoal_cpu is None else round(shoal_cpu, 2),
        p50_ms=percentile(results.latencies, 50) / 1000,
        p99_ms=percentile(results.latencies, 99) / 1000,
    )


def check(found: Verified, results: Told) -> None:
    wrong = found.duplicates, found.out_of_order, found.missing(), results.failed, results.sent - found.records
    if any(wrong):
        names = "duplicates", "out of order", "missing", "not acknowledged", "not there"
        what = ", ".join(f"{count} {name}" for name, count in zip(names, wrong, strict=True))
        raise RuntimeError(f"{found.records:,} of {results.sent:,} records: {what}")
