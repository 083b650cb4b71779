"""The settings that make a MirrorMaker 2 mirror through Shoal, for each of the three ways to run it.

Only the two data clients change (the replication consumer and the connector's producer). Admin clients, offset syncs
and the worker's own topics stay direct. In a dedicated MM2 `A.consumer.` becomes the connector's `source.consumer.` and
`B.producer.` the worker's `producer.` (MirrorMakerConfig.clusterProps, connectorBaseConfig); on Connect the connector's
`producer.override.` does the same (KIP-458, allowed by default since Kafka 3.0). Strimzi passes
`sourceConnector.config` on unchanged; its resource is `kafka.strimzi.io/v1` since 0.49 (the only one since 1.0), and
the path is the same in v1beta2.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.proxy.cli.doctor.mirror import CONNECT, DEDICATED
from shoal.proxy.config.parse import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.proxy.cli.doctor import Needed
    from shoal.proxy.config.settings import Address

__all__ = ["FORMS", "Wiring", "wiring_lines"]

_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """Shoal's addresses for the mirror, and the mirror's names of the clusters."""

    source: Address  # of the wrap listener, as clients reach it
    target: Address  # of the unwrap listener
    source_alias: str = "A"
    target_alias: str = "B"
    needed: tuple[Needed, ...] = ()  # sizes, if the clients' defaults do not suffice

    @property
    def is_local(self) -> bool:
        return self.source.host in LOOPBACK or self.target.host in LOOPBACK


def dedicated(wiring: Wiring) -> str:
    """Lines of mm2.properties."""
    a, b = wiring.source_alias, wiring.target_alias
    sizes = "".join(
        f"{DEDICATED.per_cluster[one.client].format(s=a, t=b, k=one.key)} = {one.value}\n" for one in wiring.needed
    )
    return f"""\
# Add to mm2.properties; {a}.bootstrap.servers and {b}.bootstrap.servers stay as they are.
# (Exactly-once mode also needs {b}.bootstrap.servers = {wiring.target}; see `shoal check`.)
{a}.consumer.bootstrap.servers = {wiring.source}
{b}.producer.bootstrap.servers = {wiring.target}
{b}.producer.compression.type = none
{sizes}\
# Otherwise MM2 also runs a worker for {b}->{a} (alternative: start MM2 with --clusters {b}).
emit.heartbeats.enabled = false
"""


def _connector_settings(wiring: Wiring) -> dict[str, str]:
    return {
        "source.consumer.bootstrap.servers": str(wiring.source),
        "producer.override.bootstrap.servers": str(wiring.target),
        "producer.override.compression.type": "none",
        **{CONNECT.per_cluster[one.client].format(k=one.key): one.value for one in wiring.needed},
    }


def connect(wiring: Wiring) -> str:
    """Keys of the connector's configuration (`PUT /connectors/NAME/config`)."""
    converters = dict.fromkeys(("key.converter", "value.converter", "header.converter"), _BYTES)
    return json.dumps(_connector_settings(wiring) | converters, indent=2) + "\n"


def strimzi(wiring: Wiring) -> str:
    """A fragment of a KafkaMirrorMaker2 resource. Strimzi sets the converters itself."""
    settings = "".join(f"          {key}: {json.dumps(value)}\n" for key, value in _connector_settings(wiring).items())
    local = "# 127.0.0.1 reaches Shoal only inside the same pod: run Shoal as a Service, named by --advertise.\n"
    return f"""\
{local if wiring.is_local else ""}\
apiVersion: kafka.strimzi.io/v1
kind: KafkaMirrorMaker2
spec:
  target:
    alias: {wiring.target_alias}
  mirrors:
    - source:
        alias: {wiring.source_alias}
      sourceConnector:
        config:
{settings}"""


FORMS: Mapping[str, tuple[str, Callable[[Wiring], str]]] = {
    "dedicated": ("Dedicated MirrorMaker 2 (connect-mirror-maker.sh)", dedicated),
    "connect": ("Kafka Connect: keys of the MirrorSourceConnector's configuration", connect),
    "strimzi": ("Strimzi: KafkaMirrorMaker2 resource", strimzi),
}


def wiring_lines(wiring: Wiring, form: str = "all") -> str:
    """One form, ready for a file, or all forms with titles."""
    if form != "all":
        return FORMS[form][1](wiring)
    return "\n".join(f"--- {title}\n\n{write(wiring)}" for title, write in FORMS.values())
