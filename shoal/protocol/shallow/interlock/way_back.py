"""The way by which a token came back: may it have been the flow's own producer?

A token may come back by way of another topic. Where a mirror A -> B produces to B past Shoal, and another mirror copies that topic of B to Shoal's
target listener, the token makes both steps, and so would envelopes, which stay in B. But a mirror's consumer and producer are one
process, and MirrorMaker 2 names them, and its copies. So it was another mirror for sure

- if the token comes from another address than it was given to (of two names of one address, see `_plain`);
- if both clients have the names that Kafka Connect gives them, and these are of two tasks;
- if the record comes as a copy that was made of a topic in B, the very cluster that the flow copies to.

Any of them may be so for other reasons (NAT, several networks, names given by hand). Then the operator says that any producer will do.

What is left are two mirrors on one host of which the second one is no MirrorMaker 2, or has tasks of the same name and gives its copies the
names of the originals. Rejected as signs: software and version (two MirrorMakers have the same), the time that it took, and for addresses:
all of 127.0.0.0/8 as one (who gives a client such an address of its own wants it to be told apart), the /64 of an IPv6 address (whole
networks have one).
"""

import re
from typing import NamedTuple

from shoal.protocol.shallow.interlock.flow import Flow

__all__ = ["WayBack", "detour"]

_MAPPED = "::ffff:"  # RFC 4291, 2.5.5.2: an IPv4 client on a socket for IPv6
_NAMES = {"::1": "127.0.0.1"}

# MirrorConnectorConfig.addClientId: "A->B|MirrorSourceConnector-0|replication-consumer"
_CONSUMER = re.compile(r"([^|]+)->([^|]+)\|(.+)\|replication-consumer$")
_PRODUCER = "connector-producer-"  # Worker.baseProducerConfigs; the connector and the number of its task follow


class WayBack(NamedTuple):
    """How a record came to the target listener: over which connection, from whom, and for which topic of the target."""

    producer: int
    host: str  # as `getpeername` gives it
    client_id: str
    topic: str


def detour(flow: Flow, topic: str, way: WayBack) -> str | None:
    """Why it cannot have been the flow's own producer that brought a record of `topic`; None: it may have been."""
    if _plain(flow.peer) != _plain(way.host):
        return f"from {way.host}, not from {flow.peer}"
    consumer = _CONSUMER.search(flow.client_id)
    if consumer is None:
        return None
    source, target, task = consumer.groups()
    if way.client_id.startswith(_PRODUCER) and way.client_id != f"{_PRODUCER}{task}":
        return f"from client {way.client_id!r}, the producer of another task"
    if re.search(rf"{re.escape(target)}(.+){re.escape(source)}\1{re.escape(topic)}$", way.topic):
        return f"as {way.topic}, which is made of a copy in {target}"
    return None


def _plain(address: str) -> str:
    address = address.removeprefix(_MAPPED)
    return _NAMES.get(address, address)
