"""The server.properties of a combined or broker-only KRaft node, for a cluster on one machine."""

import base64
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .ports import LOOPBACK, free_ports
from .security.listeners import SCRAM_MECHANISMS, SECURITY_PROTOCOLS, BrokerSecurity

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

# An idle broker takes 2 % of a core with these, 4 % without. Not where CPU or throughput is measured.
_QUIET: Mapping[str, str] = {
    "metadata.max.idle.interval.ms": "0",
    "log.cleaner.backoff.ms": "2000",
    "num.io.threads": "3",
    "num.network.threads": "2",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    plaintext: int
    controller: int
    secured: Mapping[str, int]
    """Ports of `BrokerSecurity.listeners`."""
    proxied: int
    jmx: int
    relayed: Mapping[str, int]
    """Ports of the listeners that `ClusterSpec.relayed_as` names."""

    @classmethod
    def draw(cls, relayed: Iterable[str] = ()) -> "Ports":
        names = list(relayed)
        plaintext, controller, proxied, jmx, *others = free_ports(4 + len(SECURITY_PROTOCOLS) + len(names), keep=True)
        ports = dict(zip((*SECURITY_PROTOCOLS, *names), others, strict=True))
        return cls(
            plaintext=plaintext,
            controller=controller,
            secured={name: ports[name] for name in SECURITY_PROTOCOLS},
            proxied=proxied,
            jmx=jmx,
            relayed={name: ports[name] for name in names},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    node_id: int
    ports: Ports
    voters: Mapping[int, int]
    """Controller port by node id; other nodes are brokers only."""
    data: Path
    replication: int
    security: BrokerSecurity
    proxied_as: str | None
    """The host, `{}` for the node id, that PROXIED and the secured listeners advertise; None: no PROXIED, the others
    on loopback."""
    relayed_as: Mapping[str, str]
    """More listeners, and the host that each advertises."""
    quick: bool
    """See `Jvm.quick`."""
    overrides: Mapping[str, str]

    def properties(self) -> dict[str, str]:
        return {
            **self._identity(),
            **self._listeners(),
            **_SMALL,
            **(_QUIET if self.quick else {}),
            **self._replication(),
            **self.security.properties(),
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
            "inter.broker.listener.name": "SSL" if self.security.only_tls else "PLAINTEXT",
            "log.dirs": str(self.data),
        }

    @property
    def proxied_host(self) -> str:
        return self.security.host if self.proxied_as is None else self.proxied_as.format(self.node_id)

    def _listeners(self) -> dict[str, str]:
        only_tls = self.security.only_tls
        outer = {name: self.ports.secured[name] for name in self.security.listeners}
        if self.proxied_as is not None and not only_tls:
            outer["PROXIED"] = self.ports.proxied
        inner = {} if only_tls else {"PLAINTEXT": self.ports.plaintext}
        controller = {"CONTROLLER": self.ports.controller} if self.is_controller else {}
        relayed = [(name, {name: port}) for name, port in self.ports.relayed.items()]
        advertised = [
            _endpoints(inner),
            _endpoints(outer, self.proxied_host),
            *(_endpoints(listener, self.relayed_as[name]) for name, listener in relayed),
        ]
        protocols = {
            "CONTROLLER": "SSL" if only_tls else "PLAINTEXT",
            **dict.fromkeys(("PLAINTEXT", "PROXIED", *self.relayed_as), "PLAINTEXT"),
            **SECURITY_PROTOCOLS,
        }
        return {
            "listeners": _endpoints({**inner, **outer, **self.ports.relayed, **controller}),
            "advertised.listeners": ",".join(filter(None, advertised)),
            "listener.security.protocol.map": ",".join(f"{name}:{value}" for name, value in protocols.items()),
        }

    def _replication(self) -> dict[str, str]:
        topics = ("default", "offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        minima = ("transaction.state.log.min.isr", "share.coordinator.state.topic.min.isr")
        return {
            **{f"{topic}.replication.factor": str(self.replication) for topic in topics},
            **dict.fromkeys(minima, "1"),
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
