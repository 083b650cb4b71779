"""Clusters that are kept between rounds while their plans are equal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.scenarios.kafka.broker import Cluster, ClusterSpec
from shoal.scenarios.kafka.content.scan import Scanner
from shoal.scenarios.kafka.process import together
from shoal.scenarios.kafka.security.certificates import Authority
from shoal.scenarios.kafka.security.listeners import SCRAM_MECHANISMS, BrokerTls

from .security import SESSION_MS, USERS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.torture.plan import ClusterPlan

RELAY = "127.0.0.2"
"""The host that brokers advertise to clients of the relay."""
FOR_PRODUCERS, BETWEEN_BROKERS = "PRODUCERS", "BROKERS"
RELAYED_AS = {FOR_PRODUCERS: "127.0.0.4", BETWEEN_BROKERS: "127.0.0.5"}
"""Listeners with their own relays."""
MIRROR_TOPICS = "-Dshoal.mirror.topics=(.*[.])?so-.*"
"""Counts where a broker has the agent."""
_HEAP = "320m"
_PROPERTIES = {
    "log.cleaner.backoff.ms": "2000",
    "log.retention.check.interval.ms": "3000",
    "log.segment.delete.delay.ms": "1000",
}
_THREE = {
    "min.insync.replicas": "2",
    "transaction.state.log.min.isr": "2",
    "inter.broker.listener.name": BETWEEN_BROKERS,  # between rounds no relay runs: replicas catch up at the start
}
_ROUNDS = 12  # topics of old rounds, and the mirrors' own, make a cluster slower


class Pool:
    """`end` kills the remaining clusters."""

    def __init__(self, work: Path, *, secured: bool = False) -> None:
        self._work = work
        self.authority = Authority.create(work / "ca") if secured else None
        """With it, brokers also have the listeners SSL and SASL_SSL."""
        self._started = 0
        self._clusters: dict[str, tuple[ClusterPlan, Cluster]] = {}
        self._scanners: dict[str, Scanner] = {}
        self._rounds: dict[str, int] = {}

    async def cluster(self, plan: ClusterPlan) -> Cluster:
        """All nodes running, with or without the agent as planned. Raises NotReady."""
        self._rounds[plan.name] = self._rounds.get(plan.name, 0) + 1
        if plan.name in self._clusters:
            was, cluster = self._clusters[plan.name]
            if (was.version, was.nodes) == (plan.version, plan.nodes) and self._rounds[plan.name] <= _ROUNDS:
                await self._healed(cluster, plan)
                self._clusters[plan.name] = plan, cluster
                return cluster
            self.drop(plan.name)
        self._started += 1
        self._rounds[plan.name] = 1
        spec = ClusterSpec(
            version=plan.version,
            nodes=plan.nodes,
            heap=_HEAP,
            proxied_as=RELAY,
            relayed_as=RELAYED_AS,
            agent=plan.agent,
            jvm_options=(MIRROR_TOPICS,),
            properties={**_PROPERTIES, **(_THREE if plan.nodes >= 3 else {})},
            tls=None if self.authority is None else BrokerTls(authority=self.authority),
            users={} if self.authority is None else USERS,
            reauthenticate_ms=dict.fromkeys(("PLAIN", *SCRAM_MECHANISMS), SESSION_MS),
        )
        cluster = await Cluster.start(self._work / f"{plan.name}-{self._started}", spec)
        self._clusters[plan.name] = plan, cluster
        self._scanners[plan.name] = Scanner(cluster.bootstrap)
        return cluster

    def scanner(self, name: str) -> Scanner:
        return self._scanners[name]

    def keep_only(self, names: set[str]) -> None:
        """End all other clusters, to save memory."""
        for name in self._clusters.keys() - names:
            self.drop(name)

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
