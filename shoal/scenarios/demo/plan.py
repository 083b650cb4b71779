"""The demo's parameters, and MirrorMaker 2's settings: equal in all runs except those that Shoal needs.

`LARGE` has batches as a busy producer makes them. `SMALL` has batches of three records, where mirrors and brokers
are overloaded.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shoal.proxy.cli.mm2_java import BEHIND_SHOAL, KAFKAS, JavaOptions
from shoal.scenarios.demo.report import Ratio
from shoal.scenarios.kafka.broker import Cluster, ClusterSpec, Node
from shoal.scenarios.kafka.content.traffic import Layout
from shoal.scenarios.kafka.mirror import MirrorSpec
from shoal.scenarios.kafka.security.listeners import BrokerTls

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from shoal.proxy.config.settings import Address
    from shoal.scenarios.kafka.security.certificates import Authority
    from shoal.scenarios.running.shoal_mirror import Shoal

__all__ = [
    "ALONE",
    "BROKER_HEAP",
    "LARGE",
    "PARTITIONS",
    "SMALL",
    "TASKS",
    "TOPIC",
    "TUNING",
    "Comparison",
    "Plan",
    "RunPlan",
    "Turn",
    "alone_only",
    "mirror_spec",
    "only_node",
]

TOPIC, PARTITIONS, TASKS = "orders", 4, 4
BROKER_HEAP = "1g"  # -Xmx of kafka-server-start.sh
ALONE = "mm2"  # the run that the others are compared with

# Operators' settings, equal in all runs; B is the target.
TUNING: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """One copy of the topic."""

    title: str
    column: str
    """The heading in the table."""
    shoal: tuple[str, ...] | None
    """Options of `shoal mirror`; None: without Shoal."""
    mirror: Mapping[str, str] = field(default_factory=dict)
    """Additional settings of MirrorMaker 2."""
    java: JavaOptions = KAFKAS
    """How MirrorMaker 2 is started."""
    tasks: int | None = None
    """`tasks.max`; None: that of the plan."""
    agent: bool = False
    """The target broker has Shoal's agent, and so accepts several batches per partition and request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One run of one round."""

    round: int
    """From 1."""
    run: str
    how: RunPlan
    is_second_try: bool = False

    @property
    def alias(self) -> str:
        """The source cluster's name in this mirror: it prefixes the copy and keeps mirrors apart."""
        again = "_again" if self.is_second_try else ""
        return f"{self.run}{again}" if self.round == 1 else f"{self.run}_{self.round}{again}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The topic to mirror, and the runs to compare, by name; the first is ALONE."""

    opening: str
    folder: str
    """Below `build/`."""
    records: int
    warm_up: int
    """Records that a target broker gets before the first run: its compiler has done most of its work by then."""
    codec: str
    layout: Layout
    runs: Mapping[str, RunPlan]
    ratios: tuple[Ratio, ...]
    """The first is the headline."""
    counts_requests: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    comparison: Comparison
    kafka: str
    records: int
    work: Path
    admin: Address
    """Shoal's pages."""
    tasks: int = TASKS
    """`tasks.max` of MirrorMaker 2."""
    rounds: int = 1
    authority: Authority | None = None
    """Issues all certificates; None: no TLS."""

    def turns(self) -> list[list[Turn]]:
        """All runs of each round. Every other round has them backwards, so that none always comes after the same."""
        rounds = [
            [Turn(round=at, run=run, how=how) for run, how in self.comparison.runs.items()]
            for at in range(1, self.rounds + 1)
        ]
        return [turns[::-1] if at % 2 else turns for at, turns in enumerate(rounds)]

    def cluster(self, *, agent: bool = False) -> ClusterSpec:
        counts = self.comparison.counts_requests
        tls = None if self.authority is None else BrokerTls(authority=self.authority, only=True)
        return ClusterSpec(version=self.kafka, heap=BROKER_HEAP, quick=False, jmx=counts, agent=agent, tls=tls)

    def shoal_options(self) -> tuple[str, ...]:
        """Options of `shoal mirror` in all runs. With TLS, Shoal encrypts to clients and to brokers."""
        admin = ("--admin", str(self.admin))
        if self.authority is None:
            return admin
        own, ca = self.authority.server(name="shoal"), str(self.authority.certificate)
        listen = ("--listen-tls-cert", str(own.certificate), "--listen-tls-key", str(own.key))
        return ("--source-tls-ca", ca, "--target-tls-ca", ca, *listen, *admin)


# Found by measuring: alone, with more tasks than cores it fills Kafka's heap of 2 GiB and takes twice the time; with
# fewer tasks, the first compiler alone, another collector or another heap it is not faster. Through Shoal fewer tasks
# need less CPU, as `shoal mirror` says.
_A_TASK_FOR_EACH_CORE = min(PARTITIONS, os.cpu_count() or 1)
# The first records are not wrapped, until the mirror's wiring is proven: Shoal compresses those.
_LARGE_OPTIONS = ("--plain-compression", "zstd")
LARGE = Comparison(
    opening=(
        "by a stock MirrorMaker 2 alone, and by the same MirrorMaker 2 through `shoal mirror`;\n"
        "each as Kafka's script starts it with four tasks, and tuned."
    ),
    folder="demo",
    records=6_000_000,  # JIT compilation of a mirror takes a fixed 4 s of CPU
    warm_up=4_000_000,
    codec="zstd",
    layout=Layout(partitions=PARTITIONS),
    runs={
        ALONE: RunPlan(title="MirrorMaker 2 alone", column="A: MM2 alone", shoal=None),
        "mm2_tuned": RunPlan(
            title="alone, a task for each core", column="B: tuned", shoal=None, tasks=_A_TASK_FOR_EACH_CORE
        ),
        "shoal": RunPlan(title="MirrorMaker 2 through Shoal", column="C: through Shoal", shoal=_LARGE_OPTIONS),
        "shoal_tuned": RunPlan(
            title="as it prints",
            column="D: tuned",
            shoal=_LARGE_OPTIONS,
            java=BEHIND_SHOAL,
            tasks=_A_TASK_FOR_EACH_CORE,
        ),
    },
    ratios=(Ratio("A/C", ALONE, "shoal"), Ratio("B/D", "mm2_tuned", "shoal_tuned"), Ratio("A/D", ALONE, "shoal_tuned")),
)

_LZ4 = ("--plain-compression", "lz4")
_STOCK = (*_LZ4, "--multi-batch", "never")
SMALL = Comparison(
    opening=(
        "in batches of three records: by a stock MirrorMaker 2 alone, then through `shoal mirror`,\nto a stock broker "
        "(MirrorMaker 2 re-batches; then each batch unchanged, in a request of its own)\nand to a broker with Shoal's "
        "agent (each batch unchanged, many in a request)."
    ),
    folder="demo-small",
    records=2_000_000,  # JIT compilation is half of the cost of 1,000,000
    warm_up=300_000,
    codec="lz4",
    layout=Layout(partitions=PARTITIONS, run=3),
    runs={
        ALONE: RunPlan(title="MirrorMaker 2 alone", column="MM2 alone", shoal=None),
        "shoal_rebatched": RunPlan(title="through Shoal, re-batched", column="re-batched", shoal=_STOCK),
        "shoal_single": RunPlan(
            title="through Shoal, one by one", column="one by one", shoal=(*_STOCK, "--min-batch-bytes", "0")
        ),
        "shoal_multi": RunPlan(title="through Shoal, many at once", column="many at once", shoal=_LZ4, agent=True),
        "shoal_multi_tuned": RunPlan(
            title="the JVM options that it prints", column="tuned", shoal=_LZ4, java=BEHIND_SHOAL, agent=True
        ),
    },
    ratios=(Ratio("times less", ALONE, "shoal_multi"), Ratio("tuned", ALONE, "shoal_multi_tuned")),
    counts_requests=True,
)


def alone_only(comparison: Comparison) -> Mapping[str, str]:
    """Alone, MM2 has to recompress records with the source's codec. Through Shoal its producer does not compress:
    envelopes carry compressed batches."""
    return {"B.producer.compression.type": comparison.codec}


def mirror_spec(plan: Plan, turn: Turn, source: Cluster, target: Cluster, shoal: Shoal | None) -> MirrorSpec:
    how, alias = turn.how, turn.alias
    return MirrorSpec(
        source_alias=alias,
        source=source.bootstrap,
        target=target.bootstrap,
        consumer=shoal.consumer if shoal else None,
        producer=shoal.producer if shoal else None,
        topics=TOPIC,
        tasks=how.tasks or plan.tasks,
        version=plan.kafka,
        java=how.java.argv(),
        quick=False,
        extra={
            **TUNING,
            **how.mirror,
            **({} if shoal else alone_only(plan.comparison)),
            **(source.login.java(f"{alias}.") if plan.authority else {}),
            **(target.login.java("B.") if plan.authority else {}),
        },
    )


def only_node(cluster: Cluster) -> Node:
    (node,) = cluster.nodes.values()
    return node
