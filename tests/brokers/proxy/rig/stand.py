"""A cluster behind a Shoal: all addresses, and those that clients may see."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.scenarios.kafka.ports import LOOPBACK
from tests.support.shoal_process import ShoalProcess, free_port_block, write_toml

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.scenarios.kafka.broker import Cluster

USER, PASSWORD = "alice", "alice-secret"
SIDE_USERS = {"d": "eq-d-user", "s": "eq-s-user"}  # of the two sides of the equivalence test
RESOLVER = Path(__file__).with_name("resolver")
NODE_PORTS = 8  # per listener: more brokers than any test has
ALL_MAPPED = range(1, NODE_PORTS + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """`plain` and `sasl` are the bootstrap ports of two listeners; their brokers' ports follow."""

    cluster: Cluster
    shoal: ShoalProcess
    plain: int
    sasl: int

    @property
    def bootstrap(self) -> str:
        return f"{LOOPBACK}:{self.plain}"

    @property
    def sasl_bootstrap(self) -> str:
        return f"{LOOPBACK}:{self.sasl}"

    def broker(self, node_id: int) -> tuple[str, int]:
        """Shoal's address of a broker; fixed if ports are mapped, which they are unless `ranged`."""
        return LOOPBACK, self.plain + node_id

    def sasl_broker(self, node_id: int) -> tuple[str, int]:
        return LOOPBACK, self.sasl + node_id

    def is_ours(self, host: str, port: int) -> bool:
        """Whether an address received by a client is Shoal's."""
        return host == LOOPBACK and any(first < port <= first + NODE_PORTS for first in (self.plain, self.sasl))


def own_shoal(
    cluster: Cluster, work: Path, *, ranged: bool = False, mapped: Sequence[int] = ALL_MAPPED, **options: Any
) -> Stand:
    """A Shoal (not started) with a plain and a SASL listener.

    `ranged` brokers get the next port of a range when first seen; otherwise the `mapped` node n has the n-th port after
    the bootstrap port. Other options: the tables `limits`, `log`, `capture`; `coalescing` (then the plain listener
    coalesces); `legacy` (whether the plain listener serves old clients); `access` of the plain listener; and
    `state_dir`.
    """
    plain = free_port_block(2 * (NODE_PORTS + 1))
    sasl = plain + NODE_PORTS + 1
    document = {
        **({"state-dir": str(options["state_dir"])} if "state_dir" in options else {}),
        "cluster": [
            {"name": "plain", "bootstrap": [node.proxied_address for node in cluster.nodes.values()]},
            {"name": "sasl", "bootstrap": [node.sasl_address for node in cluster.nodes.values()]},
        ],
        "listener": [
            _listener("plain", plain, () if ranged else mapped)
            | ({"coalesce": True, "coalescing": options["coalescing"]} if "coalescing" in options else {})
            | ({"legacy": True} if options.get("legacy") else {})
            | ({"access": options["access"]} if "access" in options else {}),
            _listener("sasl", sasl, () if ranged else mapped),
        ],
        "limits": dict(options.get("limits", {})),
        "log": dict(options.get("log", {})),
        **({"capture": options["capture"]} if "capture" in options else {}),
    }
    config = write_toml(work / "shoal.toml", document)
    environment = {"PYTHONPATH": str(RESOLVER)}
    shoal = ShoalProcess(["run", "-c", str(config)], work=work, ports=[plain, sasl], env=environment)
    return Stand(cluster=cluster, shoal=shoal, plain=plain, sasl=sasl)


def _listener(name: str, port: int, mapped: Sequence[int]) -> dict[str, object]:
    ports = {node_id: port + node_id for node_id in mapped} or f"{port + 1}-{port + NODE_PORTS}"
    return {"name": name, "cluster": name, "listen": f"{LOOPBACK}:{port}", "ports": ports}
