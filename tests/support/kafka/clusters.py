"""Real clusters that a whole test session shares; each starts when a test first needs it.

Tests use unique names: new topics, new aliases of mirrors. A test may kill and restart brokers; dead ones are restarted
for the next test. If there are many, the least recently used ones are killed, and so is one that no test has used for a
while: idle brokers need CPU, too, and a dozen of them both cores. The next test that needs them gets them back with
their records and addresses.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import trio

from shoal.scenarios.kafka.broker import Cluster, ClusterSpec
from shoal.scenarios.kafka.content.scan import EnvelopeFound, Scanner
from tests.support.kafka.relay import RELAY_HOST

_MOST_NODES = 5  # that run at a time, in each of two workers: an idle one takes 2 to 15 % of a core
_MOST_TESTS = 10  # since the last one that has used a cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A source and a target cluster of one broker each. `proxied_address` is for clients behind a relay."""

    source: Cluster
    target: Cluster
    scanners: tuple[Scanner, Scanner]

    async def envelopes(self) -> list[EnvelopeFound]:
        """Envelopes in any topic of both clusters since the last call."""
        return [finding for scanner in self.scanners for finding in await scanner.scan()]


class _Use(NamedTuple):
    test: str  # node id
    number: int  # of the test


class SharedClusters:
    def __init__(self, work: Path) -> None:
        self._work = work
        self._clusters: dict[str, Cluster] = {}  # the last used one at the end
        self._uses: dict[str, _Use] = {}  # the last ones
        self._tests = 0
        self._scanners: dict[str, Scanner] = {}

    def next_test(self, test: str) -> None:
        """To be called before each test, whatever it uses. A cluster may belong to a fixture of its whole file."""
        self._tests += 1
        for name, cluster in self._clusters.items():
            use = self._uses[name]
            if use.number < self._tests - _MOST_TESTS and _file(use.test) != _file(test):
                cluster.kill_all()

    def pair(self, version: str) -> Pair:
        names = [f"{role}-{version}" for role in ("source", "target")]
        source, target = (self.cluster(name, ClusterSpec(version=version, proxied_as=RELAY_HOST)) for name in names)
        return Pair(source=source, target=target, scanners=(self._scanner(names[0]), self._scanner(names[1])))

    def cluster(self, name: str, spec: ClusterSpec) -> Cluster:
        """The cluster of this name, all nodes running; `spec` counts at the first call."""
        self._make_room(name, spec)
        cluster = self._clusters.pop(name, None) or trio.run(Cluster.start, self._work / name, spec)
        self._clusters[name] = cluster
        trio.run(cluster.revive)
        return cluster

    def _make_room(self, name: str, spec: ClusterSpec) -> None:
        test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]  # without "(setup)"
        self._uses[name] = _Use(test, self._tests)
        wanted = len(self._clusters[name].nodes) if name in self._clusters else spec.nodes
        for other, cluster in self._clusters.items():
            running = sum(node.running for one in self._clusters.values() for node in one.nodes.values())
            if running + wanted > _MOST_NODES and self._uses[other].test != test:
                cluster.kill_all()

    def end(self) -> None:
        for cluster in self._clusters.values():
            cluster.kill_all()

    def _scanner(self, name: str) -> Scanner:
        return self._scanners.setdefault(name, Scanner(self._clusters[name].bootstrap))


def _file(test: str) -> str:
    return test.partition("::")[0]
