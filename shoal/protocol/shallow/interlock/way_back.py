"""How a token came back: could the flow's own producer have brought it?

A token may make a detour. If a mirror A -> B produces directly to B, and another mirror copies that topic of B to
Shoal's target listener, the token comes back through both. Envelopes would, too, and would be stored in B. But a
mirror's consumer and producer are one process, and MirrorMaker 2 has fixed names for both and for its copies. So
another mirror brought the token

- if its address differs from that of the consumer (see `_plain` for two notations of one address);
- if both clients have Kafka Connect's names, and these belong to two tasks;
- if the record is produced as a copy of a topic in B, the cluster that the flow copies to.

All of these may have other causes (NAT, several networks, manual names). For these the operator permits any producer.

Not detected: two mirrors on one host, if the second one is not MirrorMaker 2, or has tasks with the same names and
keeps topic names. Rejected as criteria: software and version (two MirrorMakers have the same); elapsed time; for
addresses: all of 127.0.0.0/8 as one (such addresses are meant to distinguish clients), the /64 of an IPv6 address
(whole networks share one).
"""

from functools import lru_cache
from typing import NamedTuple

from shoal.protocol.shallow.interlock.flow import Flow
from shoal.protocol.shallow.interlock.limits import MAX_FLOWS

__all__ = ["WayBack", "copy_names", "detour", "mirror_of"]

_MAPPED = "::ffff:"  # RFC 4291, 2.5.5.2: an IPv4 client on a socket for IPv6
_NAMES = {"::1": "127.0.0.1"}

_CONSUMER = "|replication-consumer"
_LONGEST_TOPIC = 249  # Topic.MAX_NAME_LENGTH
_PRODUCER = "connector-producer-"  # Worker.baseProducerConfigs; the connector and the number of its task follow


class WayBack(NamedTuple):
    """How a record came to the target listener: connection, client, and target topic."""

    producer: int
    host: str  # as `getpeername` gives it
    client_id: str
    topic: str


def detour(flow: Flow, topic: str, way: WayBack) -> str | None:
    """Why the flow's own producer cannot have brought a record of `topic`; None: it may have."""
    if _plain(flow.peer) != _plain(way.host):
        return f"from {way.host}, not from {flow.peer}"
    names = _mirror_names(flow.client_id)
    if names is None:
        return None
    if way.client_id.startswith(_PRODUCER) and way.client_id != f"{_PRODUCER}{names.task}":
        return f"from client {way.client_id!r}, the producer of another task"
    if _is_copy_of_copy(names, topic, way.topic):
        return f"as {way.topic}, which is made of a copy in {names.target}"
    return None


@lru_cache(maxsize=MAX_FLOWS)
def mirror_of(client_id: str) -> str:
    """What the consumers of one mirror's tasks have in common in their names; the whole name if it is not Connect's."""
    names = _mirror_names(client_id)
    if names is None:
        return client_id
    connector, _, _ = names.task.rpartition("-")
    return f"{names.source}->{names.target}|{connector}"


def copy_names(topic: str, client_id: str) -> tuple[str, ...]:
    """What a mirror with such a consumer may call its copy (DefaultReplicationPolicy, IdentityReplicationPolicy)."""
    names = _mirror_names(client_id)
    return (topic,) if names is None else (f"{names.source}.{topic}", topic)


class _MirrorNames(NamedTuple):
    source: str
    target: str
    task: str


def _mirror_names(client_id: str) -> _MirrorNames | None:
    """MirrorConnectorConfig.addClientId: "A->B|MirrorSourceConnector-0|replication-consumer".

    In linear time, because clients choose the text.
    """
    parts = client_id.removesuffix(_CONSUMER).split("|")
    if not client_id.endswith(_CONSUMER):
        return None
    for at, part in enumerate(parts[:-1]):
        source, _, target = part.rpartition("->")
        if source and target:
            return _MirrorNames(source, target, "|".join(parts[at + 1 :]))
    return None


def _is_copy_of_copy(names: _MirrorNames, topic: str, copy: str) -> bool:
    """Whether `copy` ends with TARGET, separator, SOURCE, the same separator, `topic` (DefaultReplicationPolicy,
    applied twice).
    """
    if len(copy) > _LONGEST_TOPIC or not copy.endswith(topic):
        return False
    prefix = copy.removesuffix(topic)
    for length in range(1, (len(prefix) - len(names.source) - len(names.target)) // 2 + 1):
        separator = prefix[-length:]
        if prefix.endswith(f"{names.target}{separator}{names.source}{separator}"):
            return True
    return False


def _plain(address: str) -> str:
    address = address.removeprefix(_MAPPED)
    return _NAMES.get(address, address)
