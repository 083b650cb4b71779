"""Real clusters that a whole session of tests shares; each starts when a test first asks for it.

Tests keep out of each other's way by names: fresh topics, fresh aliases of mirrors. A test may kill and restart brokers; what it
leaves dead is alive again for the next one.
"""

from dataclasses import dataclass
from pathlib import Path

import trio

from shoal.scenarios.kafka.broker import Cluster, ClusterSpec
from shoal.scenarios.kafka.scan import Finding, Scanner
from tests.mirror.relay import RELAY_HOST


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A source and a target cluster of one broker each. Their `proxied_address` is for those who come through a relay."""

    source: Cluster
    target: Cluster
    scanners: tuple[Scanner, Scanner]

    async def envelopes(self) -> list[Finding]:
        """Envelopes in any topic of both clusters; each call reads what came since the last."""
        return [finding for scanner in self.scanners for finding in await scanner.scan()]


class SharedClusters:
    def __init__(self, work: Path) -> None:
        self._work = work
        self._clusters: dict[str, Cluster] = {}
        self._scanners: dict[str, Scanner] = {}

    def pair(self, version: str) -> Pair:
        names = [f"{role}-{version}" for role in ("source", "target")]
        source, target = (self.cluster(name, ClusterSpec(version=version, proxied_as=RELAY_HOST)) for name in names)
        return Pair(source=source, target=target, scanners=(self._scanner(names[0]), self._scanner(names[1])))

    def cluster(self, name: str, spec: ClusterSpec) -> Cluster:
        """The cluster of this name, all nodes running; `spec` counts at the first call."""
        if name not in self._clusters:
            self._clusters[name] = trio.run(Cluster.start, self._work / name, spec)
        cluster = self._clusters[name]
        for node in cluster.nodes.values():
            if not node.running:
                trio.run(node.start)
        return cluster

    def end(self) -> None:
        for cluster in self._clusters.values():
            cluster.kill_all()

    def _scanner(self, name: str) -> Scanner:
        return self._scanners.setdefault(name, Scanner(self._clusters[name].bootstrap))
