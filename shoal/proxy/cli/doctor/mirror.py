"""A MirrorMaker 2 configuration: the effective values of each client of a replication flow.

A value may be set in several places. The orders below are those of MirrorMakerConfig (clusterProps, workerConfig,
connectorBaseConfig), MirrorConnectorConfig.sourceConsumerConfig and Worker.baseProducerConfigs; first found wins. In
the templates `{s}` and `{t}` are the aliases, `{flow}` is `{s}->{t}` and `{k}` the key as the client knows it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from shoal.proxy.cli.doctor.properties import Entry, Unreadable, read_connector, read_properties

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Mirror", "MirrorForm", "ReplicationFlow", "read_mirror"]


class KeyTemplate(NamedTuple):
    """A key that may hold a value. `inherited`: only for settings of every client (bootstrap, security, sasl, ssl)."""

    key: str
    inherited: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorForm:
    """The keys of one form of MM2: for each client, the keys that may hold a value and the key to write."""

    name: str
    is_connect: bool = False
    templates: Mapping[str, tuple[KeyTemplate, ...]]
    per_cluster: Mapping[str, str]  # shorter, but applies to every flow of the cluster
    per_flow: Mapping[str, str]


DEDICATED = MirrorForm(
    name="dedicated MirrorMaker 2",
    templates={
        "consumer": (
            KeyTemplate("{flow}.source.consumer.{k}"),
            KeyTemplate("{s}.consumer.{k}"),
            KeyTemplate("{s}.{k}", inherited=True),
            KeyTemplate("{k}", inherited=True),
            KeyTemplate("{flow}.consumer.{k}"),
        ),
        "producer": (
            KeyTemplate("{flow}.producer.override.{k}"),
            KeyTemplate("{t}.producer.{k}"),
            KeyTemplate("{t}.{k}", inherited=True),
            KeyTemplate("{k}", inherited=True),
        ),
        "connector": (KeyTemplate("{flow}.{k}"), KeyTemplate("{k}")),
        "worker": (KeyTemplate("{t}.{k}"),),
        "source": (KeyTemplate("{s}.{k}"), KeyTemplate("{k}")),
        "target": (KeyTemplate("{t}.{k}"), KeyTemplate("{k}")),
    },
    per_cluster={
        "consumer": "{s}.consumer.{k}",
        "producer": "{t}.producer.{k}",
        "connector": "{k}",
        "worker": "{t}.{k}",
        "source": "{s}.{k}",
        "target": "{t}.{k}",
    },
    per_flow={
        "consumer": "{flow}.source.consumer.{k}",
        "producer": "{flow}.producer.override.{k}",
        "connector": "{flow}.{k}",
        "worker": "{t}.{k}",
        "source": "{s}.{k}",
        "target": "{t}.{k}",
    },
)
_CONNECT_KEYS = {
    "consumer": "source.consumer.{k}",
    "producer": "producer.override.{k}",
    "connector": "{k}",
    "worker": "{k}",
    "source": "source.cluster.{k}",
    "target": "target.cluster.{k}",
}
CONNECT = MirrorForm(
    name="MirrorMaker 2 on Kafka Connect",
    is_connect=True,
    templates={
        "consumer": (
            KeyTemplate("source.consumer.{k}"),
            KeyTemplate("consumer.{k}"),
            KeyTemplate("source.cluster.{k}", inherited=True),
        ),
        "producer": (KeyTemplate("producer.override.{k}"),),
        "connector": (KeyTemplate("{k}"),),
        "worker": (),
        "source": (KeyTemplate("source.cluster.{k}"),),
        "target": (KeyTemplate("target.cluster.{k}"),),
    },
    per_cluster=_CONNECT_KEYS,
    per_flow=_CONNECT_KEYS,
)

_OF_EVERY_CLIENT = re.compile(r"(bootstrap\.servers|security\.protocol|sasl\..*|ssl\..*)\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationFlow:
    """One replication flow, source -> target."""

    source: str
    target: str
    form: MirrorForm
    entries: Mapping[str, Entry]
    alone: bool = True  # neither alias is used by another flow, so settings may be per cluster

    @property
    def name(self) -> str:
        return f"{self.source}->{self.target}"

    def find(self, client: str, key: str) -> Entry | None:
        """The entry that `client` (a key of `MirrorForm.templates`) gets for `key`; None = MM2's default."""
        for template in self.form.templates[client]:
            if template.inherited and not _OF_EVERY_CLIENT.match(key):
                continue
            if (entry := self.entries.get(self._named(template.key, key))) is not None:
                return entry
        return None

    def key(self, client: str, key: str) -> str:
        """The key to write so that it takes effect for `client`, overriding any that is already set."""
        keys = self.form.per_cluster if self.alone else self.form.per_flow
        present = self.find(client, key)
        per_flow = self._named(self.form.per_flow[client], key)
        return per_flow if present is not None and present.key == per_flow else self._named(keys[client], key)

    def own(self, client: str) -> Iterator[tuple[str, Entry]]:
        """Every line for this client only, with the key as the client knows it."""
        for prefix in {
            self._named(template.key, "") for template in self.form.templates[client] if not template.inherited
        }:
            for entry in self.entries.values():
                if entry.key.startswith(prefix):
                    yield entry.key.removeprefix(prefix), entry

    def _named(self, template: str, key: str) -> str:
        return template.format(flow=self.name, s=self.source, t=self.target, k=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    form: MirrorForm
    flows: tuple[ReplicationFlow, ...]
    entries: Mapping[str, Entry]
    repeated: tuple[tuple[Entry, Entry], ...] = ()  # duplicate keys: (ignored, used)


# Files given to `shoal check` by mistake: their content -> the advice.
_OTHER_FILES = (
    (re.compile(r"^\s*\[\[(cluster|listener)\]\]", re.MULTILINE), "is a configuration of Shoal: give it with -c"),
    (
        re.compile(r"^kind:\s*KafkaMirrorMaker2\b", re.MULTILINE),
        "is a Strimzi resource, which is not supported: give the content of sourceConnector.config as JSON, with "
        "connector.class org.apache.kafka.connect.mirror.MirrorSourceConnector",
    ),
)


def read_mirror(text: str) -> Mirror:
    """Reads mm2.properties, or a connector as JSON if the text begins with a brace. Raises `Unreadable`."""
    for sign, advice in _OTHER_FILES:
        if sign.search(text):
            raise Unreadable(advice)
    is_json = text.lstrip().startswith(("{", "["))
    return _connect(read_connector(text)) if is_json else _dedicated(read_properties(text))


def _by_key(entries: list[Entry]) -> tuple[dict[str, Entry], tuple[tuple[Entry, Entry], ...]]:
    taken: dict[str, Entry] = {}
    repeated = []
    for entry in entries:
        if entry.key in taken:
            repeated.append((taken[entry.key], entry))
        taken[entry.key] = entry
    return taken, tuple(repeated)


def _dedicated(entries: list[Entry]) -> Mirror:
    """Raises `Unreadable` if this is not the configuration of a dedicated MM2."""
    taken, repeated = _by_key(entries)
    if "clusters" not in taken:
        raise Unreadable("is not a MirrorMaker 2 configuration: it has no line such as clusters = A, B")
    clusters = tuple(name.strip() for name in taken["clusters"].value.split(",") if name.strip())
    pairs = [pair for pair in _pairs(clusters) if _is_true(taken.get(f"{pair[0]}->{pair[1]}.enabled"))]
    if not pairs:
        flow = f"{clusters[0]}->{clusters[-1]}" if len(clusters) > 1 else "A->B"
        raise Unreadable(f"enables no replication flow: it has no line such as {flow}.enabled = true")
    flows = tuple(
        ReplicationFlow(
            source=source, target=target, form=DEDICATED, entries=taken, alone=_is_alone((source, target), pairs)
        )
        for source, target in pairs
    )
    return Mirror(form=DEDICATED, flows=flows, entries=taken, repeated=repeated)


def _pairs(clusters: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    return ((source, target) for source in clusters for target in clusters if source != target)


def _is_alone(pair: tuple[str, str], pairs: list[tuple[str, str]]) -> bool:
    """`S.consumer.` applies to flows from S and, as target.consumer, to flows to S; `T.producer.` likewise."""
    return all(sum(alias in other for other in pairs) == 1 for alias in pair)


def _is_true(entry: Entry | None) -> bool:
    return entry is not None and entry.value.lower() == "true"


def _connect(entries: list[Entry]) -> Mirror:
    """Raises `Unreadable` if the connector is not MM2's source connector."""
    taken, repeated = _by_key(entries)
    connector = taken.get("connector.class")
    if connector is None or not connector.value.endswith("MirrorSourceConnector"):
        found = "no connector.class" if connector is None else f"connector.class {connector.value}"
        raise Unreadable(f"has {found}: only a MirrorSourceConnector carries data, the other connectors need no change")
    names = (taken.get(f"{side}.cluster.alias") for side in ("source", "target"))
    source, target = (
        name.value if name else default for name, default in zip(names, ("source", "target"), strict=True)
    )
    flow = ReplicationFlow(source=source, target=target, form=CONNECT, entries=taken)
    return Mirror(form=CONNECT, flows=(flow,), entries=taken, repeated=repeated)
