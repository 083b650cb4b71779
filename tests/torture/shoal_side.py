"""Shoal in a round: its configuration, its process, its disk and its clock.

For each mirror there is a wrap listener and an unwrap listener of its own; brokers are found through the relay.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.shoal_process import ShoalProcess, free_port_block, write_toml

from .mirrors import SHOAL
from .plan import TARGET
from .pool import RELAY

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster

    from .plan import Plan

PORTS = 6
"""Of one listener: bootstrap and up to five brokers."""


@dataclass(frozen=True, slots=True)
class Ports:
    wrap: int
    unwrap: int

    @classmethod
    def draw(cls) -> Ports:
        return cls(free_port_block(PORTS), free_port_block(PORTS))

    def by_side(self) -> dict[str, int]:
        return {"wrap": self.wrap, "unwrap": self.unwrap}


def shoal_process(
    plan: Plan,
    run: str,
    clusters: Mapping[str, Cluster],
    ports: Mapping[str, Ports],
    work: Path,
    environment: Mapping[str, str],
) -> ShoalProcess:
    """`ports` by the source of the mirror."""
    config = write_toml(work / "shoal.toml", _document(plan, run, clusters, ports, work))
    argv = ["run", "-c", str(config), "--log-format", "json", "--report-every", "1"]
    every = [port for one in ports.values() for port in one.by_side().values()]
    shoal = ShoalProcess(argv, work=work, ports=every, env=environment)
    shoal.argv = [sys.executable, "-m", "tests.torture.shoal_main", *argv]
    return shoal


def _document(
    plan: Plan, run: str, clusters: Mapping[str, Cluster], ports: Mapping[str, Ports], work: Path
) -> dict[str, object]:
    listeners = [
        listener for mirror in plan.mirrors for listener in _pair(plan, run, mirror.source, ports[mirror.source])
    ]
    return {
        "state-dir": str(work / "state"),
        "cluster": [_cluster(plan, name, cluster) for name, cluster in clusters.items()],
        "listener": listeners,
    }


def _cluster(plan: Plan, name: str, cluster: Cluster) -> dict[str, object]:
    bootstrap = [f"{RELAY}:{node.settings.ports.proxied}" for node in cluster.nodes.values()]
    return {"name": name, "bootstrap": bootstrap, **({"multi-batch": plan.shoal.multi_batch} if name == TARGET else {})}


def _pair(plan: Plan, run: str, source: str, ports: Ports) -> list[dict[str, object]]:
    shoal = plan.shoal
    wrap: dict[str, object] = {"run-limit": shoal.run_limit, "min-batch-bytes": shoal.min_batch_bytes}
    deep = [f"^{topic.name}-{run}$" for topic in plan.topics if topic.cluster == source and topic.filtered]
    if deep:
        wrap["deep-topics"] = deep
    unwrap: dict[str, object] = {"plain-compression": shoal.plain_compression} if shoal.plain_compression else {}
    return [
        {
            **_listener(f"{source}-wrap", source, ports.wrap),
            "mode": "wrap",
            "pair": f"{source}-unwrap",
            "shallow": wrap,
        },
        {
            **_listener(f"{source}-unwrap", TARGET, ports.unwrap),
            "mode": "unwrap",
            **({"shallow": unwrap} if unwrap else {}),
        },
    ]


def _listener(name: str, cluster: str, port: int) -> dict[str, object]:
    return {
        "name": name,
        "cluster": cluster,
        "listen": f"127.0.0.1:{port}",
        "advertise": SHOAL,
        "ports": f"{port + 1}-{port + PORTS - 1}",
    }
