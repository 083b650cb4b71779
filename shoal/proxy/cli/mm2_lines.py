"""What makes a MirrorMaker 2 mirror through Shoal: settings, for each of the three ways to run it, and JVM options.

Only the two data clients change (the replication consumer and the connector's producer). Admin clients, offset syncs
and the worker's own topics stay direct. In a dedicated MM2 `A.consumer.` becomes the connector's `source.consumer.` and
`B.producer.` the worker's `producer.` (MirrorMakerConfig.clusterProps, connectorBaseConfig); on Connect the connector's
`producer.override.` does the same (KIP-458, allowed by default since Kafka 3.0). Strimzi passes
`sourceConnector.config` on unchanged; its resource is `kafka.strimzi.io/v1` since 0.49 (the only one since 1.0), and
the path is the same in v1beta2.
"""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from shoal.proxy.cli.doctor.client_security import CA_FILE, CERTIFICATE_FILE, Login, needed_security
from shoal.proxy.cli.doctor.mirror import CONNECT, DEDICATED
from shoal.proxy.cli.doctor.value_rules import RAW_BATCH_SIZE
from shoal.proxy.cli.mm2_java import BEHIND_SHOAL
from shoal.proxy.config.parse import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from shoal.proxy.cli.doctor import ClientSecurity, Needed
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
    security: Mapping[str, ClientSecurity] = field(default_factory=dict)  # of "consumer" and "producer"

    @property
    def is_local(self) -> bool:
        return self.source.host in LOOPBACK or self.target.host in LOOPBACK

    @property
    def security_lines(self) -> tuple[Needed, ...]:
        return tuple(line for client, its in self.security.items() for line in needed_security(client, its))

    @property
    def may_log_in(self) -> dict[str, str]:
        """Clients that log in at the brokers, through Shoal, if asked -> the protocol that they need then."""
        return {
            client: its.protocol(client_logs_in=True)
            for client, its in self.security.items()
            if its.is_special and its.login is Login.BROKER
        }


def dedicated(wiring: Wiring) -> str:
    """Lines of mm2.properties."""
    a, b = wiring.source_alias, wiring.target_alias

    def key(one: Needed) -> str:
        return DEDICATED.per_cluster[one.client].format(s=a, t=b, k=one.key)

    sizes = "".join(f"{key(setting)} = {setting.value}\n" for setting in wiring.needed)
    security = "".join(f"{key(setting)} = {setting.value}\n" for setting in wiring.security_lines)
    comments = "".join(f"# {comment}\n" for comment in _security_comments(wiring))
    return f"""\
# Add to mm2.properties; {a}.bootstrap.servers and {b}.bootstrap.servers stay as they are.
# (Exactly-once mode also needs {b}.bootstrap.servers = {wiring.target}; see `shoal check`.)
{a}.consumer.bootstrap.servers = {wiring.source}
{b}.producer.bootstrap.servers = {wiring.target}
{b}.producer.compression.type = none
{b}.producer.batch.size = {RAW_BATCH_SIZE}
{sizes}\
{comments}\
{security}\
# Otherwise MM2 also runs a worker for {b}->{a} (alternative: start MM2 with --clusters {b}).
emit.heartbeats.enabled = false
# tasks.max: through Shoal, one or two are as fast as many and need less CPU (the partitions of a task share requests).
"""


def _security_comments(wiring: Wiring) -> Iterator[str]:
    lines = wiring.security_lines
    if not lines:
        return
    yield "The other clients of the mirror go to the brokers: their security.protocol, ssl.* and sasl.* lines stay."
    b = wiring.target_alias
    if any(line.client == "producer" for line in lines):
        yield f"Exactly-once mode needs the {b}.producer lines below as {b}. lines, too."
    if protocols := set(wiring.may_log_in.values()):
        yield f"If a data client logs in at the brokers, through Shoal: {' or '.join(sorted(protocols))} instead."
    if any(line.value == CA_FILE for line in lines):
        yield f"{CA_FILE}: the CA of Shoal's certificate. If the cluster's lines set ssl.truststore.password, import"
        yield "the CA into that truststore instead: Kafka accepts no password for a PEM file."
    if any(line.value == CERTIFICATE_FILE for line in lines):
        yield f"{CERTIFICATE_FILE}: key and certificate of the mirror, by a CA that Shoal trusts."


def environment(_: Wiring) -> str:
    """Lines of a shell script."""
    return f"""\
# Before connect-mirror-maker.sh, or before connect-distributed.sh if its workers run nothing but mirrors through Shoal.
export KAFKA_HEAP_OPTS="{BEHIND_SHOAL.heap}"
export KAFKA_JVM_PERFORMANCE_OPTS="{BEHIND_SHOAL.performance}"
"""


def _connector_settings(wiring: Wiring) -> dict[str, str]:
    return {
        "source.consumer.bootstrap.servers": str(wiring.source),
        "producer.override.bootstrap.servers": str(wiring.target),
        "producer.override.compression.type": "none",
        "producer.override.batch.size": str(RAW_BATCH_SIZE),
        **{
            CONNECT.per_cluster[setting.client].format(k=setting.key): setting.value
            for setting in (*wiring.needed, *wiring.security_lines)
        },
    }


def connect(wiring: Wiring) -> str:
    """Keys of the connector's configuration (`PUT /connectors/NAME/config`)."""
    converters = dict.fromkeys(("key.converter", "value.converter", "header.converter"), _BYTES)
    return json.dumps(_connector_settings(wiring) | converters, indent=2) + "\n"


def strimzi(wiring: Wiring) -> str:
    """A fragment of a KafkaMirrorMaker2 resource. Strimzi sets the converters itself."""
    comments = []
    if wiring.is_local:
        comments += ["127.0.0.1 reaches Shoal only inside the same pod: run Shoal as a Service, named by --advertise."]
    if protocols := set(wiring.may_log_in.values()):
        comments += [
            f"If a data client logs in at the brokers, through Shoal: {' or '.join(sorted(protocols))} instead."
        ]
    settings = {
        **_connector_settings(replace(wiring, security={})),
        **{
            CONNECT.per_cluster[setting.client].format(k=setting.key): _MOUNTED.get(setting.value, setting.value)
            for setting in wiring.security_lines
            if not (setting.key.startswith("ssl.truststore") and _has_truststore(wiring, setting.client))
        },
    }
    files = [name for path, name in _MOUNTED.items() if name in settings.values()]
    if files:
        comments += [f"The Secret {_SECRET} has {' and '.join(file.rpartition('/')[2] for file in files)}."]
    trusted = {client: _TRUSTED if _has_truststore(wiring, client) else "" for client in ("consumer", "producer")}
    lines = "".join(f"          {key}: {json.dumps(value)}\n" for key, value in settings.items())
    return f"""\
{"".join(f"# {comment}{chr(10)}" for comment in comments)}\
apiVersion: kafka.strimzi.io/v1
kind: KafkaMirrorMaker2
spec:
{_jvm_options()}\
{_MOUNT if files else ""}\
  target:
    alias: {wiring.target_alias}
{textwrap.indent(trusted["producer"], "    ")}\
  mirrors:
    - source:
        alias: {wiring.source_alias}
{textwrap.indent(trusted["consumer"], "        ")}\
      sourceConnector:
        config:
{lines}"""


def _jvm_options() -> str:
    """Strimzi makes the same variables of them. Properties (-D) are a list of their own; the default ones stay."""
    sizes = "".join(f'    "{option[:4]}": {option[4:].lower()}\n' for option in BEHIND_SHOAL.heap.split())
    flags = (option.removeprefix("-XX:") for option in BEHIND_SHOAL.performance.split() if option.startswith("-XX:"))
    named = (flag.partition("=") if "=" in flag else (flag[1:], "=", str(flag[0] == "+").lower()) for flag in flags)
    return f'  jvmOptions:\n{sizes}    "-XX":\n' + "".join(f'      {name}: "{value}"\n' for name, _, value in named)


# Strimzi gives the connector a truststore with a password if the cluster has trusted certificates. The data client
# inherits it, so the CA of Shoal must be one of them. Otherwise the files come from a volume, under /mnt.
_SECRET = "shoal"
_MOUNTED = {CA_FILE: "/mnt/shoal/ca.crt", CERTIFICATE_FILE: "/mnt/shoal/mirror.pem"}
_TRUSTED = f"""\
tls:
  trustedCertificates:
    # Keep the CA of the brokers here, too.
    - secretName: {_SECRET}
      certificate: ca.crt
"""
_MOUNT = f"""\
  template:
    pod:
      volumes:
        - name: shoal
          secret:
            secretName: {_SECRET}
    connectContainer:
      volumeMounts:
        - name: shoal
          mountPath: /mnt/shoal
"""


def _has_truststore(wiring: Wiring, client: str) -> bool:
    """Shoal's listener and the brokers use TLS."""
    security = wiring.security.get(client)
    return security is not None and security.tls and security.cluster is not None and security.cluster.tls is not None


FORMS: Mapping[str, tuple[str, Callable[[Wiring], str]]] = {
    "dedicated": ("Dedicated MirrorMaker 2 (connect-mirror-maker.sh)", dedicated),
    "environment": (
        "Environment of its start: half the CPU time, less memory",
        environment,
    ),
    "connect": ("Kafka Connect: keys of the MirrorSourceConnector's configuration", connect),
    "strimzi": ("Strimzi: KafkaMirrorMaker2 resource", strimzi),
}


def wiring_lines(wiring: Wiring, form: str = "all") -> str:
    """One form, ready for a file, or all forms with titles."""
    if form != "all":
        return FORMS[form][1](wiring)
    return "\n".join(f"--- {title}\n\n{write(wiring)}" for title, write in FORMS.values())
