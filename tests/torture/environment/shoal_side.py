"""Shoal in a round: its configuration, its process, its disk and its clock.

Each mirror has a wrap listener, and its own or a common unwrap listener; some rounds also have a listener that joins
the requests of a source's producers. Brokers are reached through the relay.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.support.shoal_process import ShoalProcess, free_port_block, write_toml
from tests.torture.plan import TARGET

from .mirrors import SHOAL
from .pool import RELAY

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster
    from shoal.scenarios.kafka.settings import Ports as BrokerPorts
    from tests.torture.plan import Plan

    from .security import Security

PORTS = 6
"""Ports of one listener: bootstrap and up to five brokers."""


Ports = Mapping[str, int]
"""Bootstrap ports of the listeners for one source, by side: wrap, unwrap and perhaps coalesce."""


def draw_ports(plan: Plan) -> dict[str, Ports]:
    """By source."""
    unwrap = free_port_block(PORTS)
    ports: dict[str, Ports] = {}
    for name in (mirror.source for mirror in plan.mirrors):
        sides = {"wrap": free_port_block(PORTS)}
        sides["unwrap"] = unwrap if plan.shoal.one_unwrap else free_port_block(PORTS)
        if any(producer.coalesced for producer in plan.producers if producer.cluster == name):
            sides["coalesce"] = free_port_block(PORTS)
        ports[name] = sides
    return ports


def shoal_process(
    plan: Plan,
    run: str,
    clusters: Mapping[str, Cluster],
    ports: Mapping[str, Ports],
    work: Path,
    environment: Mapping[str, str],
    security: Security | None = None,
) -> ShoalProcess:
    """`ports` by the source of the mirror."""
    config = write_toml(work / "shoal.toml", _document(plan, run, clusters, ports, work, security))
    argv = ["run", "-c", str(config), "--log-format", "json", "--report-every", "1"]
    every = [port for one in ports.values() for port in one.values()]
    shoal = ShoalProcess(argv, work=work, ports=every, env=environment)
    shoal.argv = [sys.executable, "-m", "tests.torture.environment.shoal_main", *argv]
    return shoal


def _document(
    plan: Plan,
    run: str,
    clusters: Mapping[str, Cluster],
    ports: Mapping[str, Ports],
    work: Path,
    security: Security | None,
) -> dict[str, object]:
    listeners = {
        listener["name"]: listener
        for mirror in plan.mirrors
        for listener in _listeners(plan, run, mirror.source, ports[mirror.source])
    }
    if plan.shoal.capture:
        index_directory(work).mkdir(exist_ok=True)
    return {
        "state-dir": str(work / "state"),
        "cluster": [_cluster(plan, name, cluster, security) for name, cluster in clusters.items()],
        "listener": [{**listener, **(security.listener() if security else {})} for listener in listeners.values()],
        **({"capture": {"directory": str(index_directory(work))}} if plan.shoal.capture else {}),
    }


def index_directory(work: Path) -> Path:
    return work / "index"


def _cluster(plan: Plan, name: str, cluster: Cluster, security: Security | None) -> dict[str, object]:
    bootstrap = [f"{RELAY}:{port_of(node.settings.ports, security)}" for node in cluster.nodes.values()]
    more = security.cluster() if security else {}
    return {
        "name": name,
        "bootstrap": bootstrap,
        **more,
        **({"multi-batch": plan.shoal.multi_batch} if name == TARGET else {}),
    }


def port_of(ports: BrokerPorts, security: Security | None) -> int:
    """Where Shoal reaches a broker."""
    return ports.secured[security.broker_listener] if security else ports.proxied


def _listeners(plan: Plan, run: str, source: str, ports: Ports) -> list[dict[str, object]]:
    shoal = plan.shoal
    wrap: dict[str, object] = {"run-limit": shoal.run_limit, "min-batch-bytes": shoal.min_batch_bytes}
    deep = [f"^{topic.name}-{run}$" for topic in plan.topics if topic.cluster == source and topic.filtered]
    if deep:
        wrap["deep-topics"] = deep
    if shoal.same_offsets:
        wrap["same-offsets"] = "so-.*"
    unwrap_name = "unwrap" if shoal.one_unwrap else f"{source}-unwrap"
    unwrap: dict[str, object] = {"plain-compression": shoal.plain_compression} if shoal.plain_compression else {}
    listeners: list[dict[str, object]] = [
        {
            **_listener(f"{source}-wrap", source, ports["wrap"]),
            "mode": "wrap",
            "pair": unwrap_name,
            "shallow": wrap,
        },
        {
            **_listener(unwrap_name, TARGET, ports["unwrap"]),
            "mode": "unwrap",
            **({"shallow": unwrap} if unwrap else {}),
        },
    ]
    if "coalesce" in ports:
        joined = {"coalesce": True, "coalescing": {"linger": 0.005, "ignore-client-ids": True}}
        listeners.append({**_listener(f"{source}-coalesce", source, ports["coalesce"]), **joined})
    return listeners


def _listener(name: str, cluster: str, port: int) -> dict[str, object]:
    return {
        "name": name,
        "cluster": cluster,
        "listen": f"127.0.0.1:{port}",
        "advertise": SHOAL,
        "ports": f"{port + 1}-{port + PORTS - 1}",
    }
