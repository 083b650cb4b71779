"""The way by which a token came back: may it have been the flow's own producer?

A token may come back by way of another topic. Where a mirror A -> B produces to B past Shoal, and another mirror copies
that topic of B to Shoal's target listener, the token makes both steps. So would envelopes, which stay in B. But a
mirror's consumer and producer are one process, and MirrorMaker 2 names them, and its copies. So it was another mirror
for sure

- if the token comes from another address than it was given to (of two names of one address, see `_plain`);
- if both clients have the names that Kafka Connect gives them, and these are of two tasks;
- if the record is produced as a copy that was made of a topic in B, the very cluster that the flow copies to.

Each of them may have other reasons (NAT, several networks, names given by hand). Then the operator says that any
producer will do.

Not detected are two mirrors on one host, if the second one is no MirrorMaker 2, or has tasks of the same name and gives
its copies the names of the originals. Rejected as signs: software and version (two MirrorMakers have the same); elapsed
time; and for addresses: all of 127.0.0.0/8 as one (a client that is given such an address is meant to be distinct), the
/64 of an IPv6 address (whole networks have one).
"""

from typing import NamedTuple

from shoal.protocol.shallow.interlock.flow import Flow

__all__ = ["WayBack", "detour"]

_MAPPED = "::ffff:"  # RFC 4291, 2.5.5.2: an IPv4 client on a socket for IPv6
_NAMES = {"::1": "127.0.0.1"}

_CONSUMER = "|replication-consumer"
_LONGEST_TOPIC = 249  # Topic.MAX_NAME_LENGTH
_PRODUCER = "connector-producer-"  # Worker.baseProducerConfigs; the connector and the number of its task follow


class WayBack(NamedTuple):
    """How a record came to the target listener: over which connection, from which client, and for which target
    topic.
    """

    producer: int
    host: str  # as `getpeername` gives it
    client_id: str
    topic: str


def detour(flow: Flow, topic: str, way: WayBack) -> str | None:
    """Why it cannot have been the flow's own producer that brought a record of `topic`; None: it may have been."""
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


class _MirrorNames(NamedTuple):
    source: str
    target: str
    task: str


def _mirror_names(client_id: str) -> _MirrorNames | None:
    """MirrorConnectorConfig.addClientId: "A->B|MirrorSourceConnector-0|replication-consumer".

    In linear time: a client chose the text.
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
