"""The server.properties of a combined or broker-only KRaft node, for a cluster on one machine."""

import base64
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .ports import LOOPBACK, free_ports

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")

# Broker defaults are for production clusters; these differ for one small machine.
_SMALL: Mapping[str, str] = {
    "num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    # The traffic has fixed, old timestamps: with the default retention its topics would be emptied.
    "log.retention.ms": "-1",
    # A killed broker can register again only when its old session expires: 9 s by default, at every restart.
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    # By default the cleaner looks for work every 15 s.
    "log.cleaner.backoff.ms": "500",
    # A consumer that starts too early must fail, not create the topic with the wrong partitions.
    "auto.create.topics.enable": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    plaintext: int
    controller: int
    sasl: int
    proxied: int
    jmx: int
    relayed: Mapping[str, int]
    """Ports of the listeners that `ClusterSpec.relayed_as` names."""

    @classmethod
    def draw(cls, relayed: Iterable[str] = ()) -> "Ports":
        names = list(relayed)
        plaintext, controller, sasl, proxied, jmx, *others = free_ports(5 + len(names))
        return cls(
            plaintext=plaintext,
            controller=controller,
            sasl=sasl,
            proxied=proxied,
            jmx=jmx,
            relayed=dict(zip(names, others, strict=True)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    node_id: int
    ports: Ports
    voters: Mapping[int, int]
    """Controller port by node id; other nodes are brokers only."""
    data: Path
    replication: int
    users: Mapping[str, str]
    """Passwords by name; with any, a second listener accepts SASL PLAIN and SCRAM."""
    proxied_as: str | None
    """The host, `{}` for the node id, that PROXIED and SASL advertise; None: no PROXIED, SASL on loopback."""
    relayed_as: Mapping[str, str]
    """More listeners, and the host that each advertises."""
    overrides: Mapping[str, str]

    def properties(self) -> dict[str, str]:
        return {
            **self._identity(),
            **self._listeners(),
            **_SMALL,
            **self._replication(),
            **self._sasl(),
            **self.overrides,
        }

    @property
    def is_controller(self) -> bool:
        return self.node_id in self.voters

    def _identity(self) -> dict[str, str]:
        return {
            "node.id": str(self.node_id),
            "process.roles": "broker,controller" if self.is_controller else "broker",
            "controller.quorum.voters": ",".join(f"{i}@{LOOPBACK}:{port}" for i, port in self.voters.items()),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.data),
        }

    def _listeners(self) -> dict[str, str]:
        outer = {"SASL": self.ports.sasl} if self.users else {}
        if self.proxied_as is not None:
            outer["PROXIED"] = self.ports.proxied
        inner = {"PLAINTEXT": self.ports.plaintext}
        controller = {"CONTROLLER": self.ports.controller} if self.is_controller else {}
        host = LOOPBACK if self.proxied_as is None else self.proxied_as.format(self.node_id)
        relayed = [(name, {name: port}) for name, port in self.ports.relayed.items()]
        advertised = [
            _endpoints(inner),
            _endpoints(outer, host),
            *(_endpoints(listener, self.relayed_as[name]) for name, listener in relayed),
        ]
        protocols = ["CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT", "PROXIED:PLAINTEXT", "SASL:SASL_PLAINTEXT"]
        return {
            "listeners": _endpoints({**inner, **outer, **self.ports.relayed, **controller}),
            "advertised.listeners": ",".join(filter(None, advertised)),
            "listener.security.protocol.map": ",".join(
                [*protocols, *(f"{name}:PLAINTEXT" for name in self.relayed_as)]
            ),
        }

    def _replication(self) -> dict[str, str]:
        topics = ("default", "offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        minima = ("transaction.state.log.min.isr", "share.coordinator.state.topic.min.isr")
        return {
            **{f"{topic}.replication.factor": str(self.replication) for topic in topics},
            **dict.fromkeys(minima, "1"),
        }

    def _sasl(self) -> dict[str, str]:
        if not self.users:
            return {}
        plain = " ".join(f'user_{name}="{password}"' for name, password in self.users.items())
        jaas = {"plain": f"{_PLAIN} required {plain};"}
        jaas |= {mechanism.lower(): f"{_SCRAM} required;" for mechanism in SCRAM_MECHANISMS}
        return {
            "sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAM_MECHANISMS)),
            **{f"listener.name.sasl.{mechanism}.sasl.jaas.config": config for mechanism, config in jaas.items()},
        }


def _endpoints(ports: Mapping[str, int], host: str = LOOPBACK) -> str:
    return ",".join(f"{name}://{host}:{port}" for name, port in ports.items())


def scram_arguments(users: Mapping[str, str]) -> list[str]:
    """Arguments of `kafka-storage format` that create the users' SCRAM credentials."""
    return [
        argument
        for name, password in users.items()
        for mechanism in SCRAM_MECHANISMS
        for argument in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
    ]


def new_cluster_id() -> str:
    """A base64 UUID without a leading dash, which `kafka-storage` would read as an option."""
    while (cluster_id := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return cluster_id
