"""Broker addresses in responses: find and replace them.

Every response of Kafka 4.3 to a client that contains a broker's host and port:

    Metadata v0+            Brokers                      FindCoordinator v0-3  the response itself, v4+ Coordinators
    DescribeCluster v0+     Brokers (v1+: unless EndpointType says controllers)
    Produce v10+, Fetch v16+                             NodeEndpoints, tagged field 0 (KIP-951)
    ShareFetch, ShareAcknowledge v0+                     NodeEndpoints, a plain array (KIP-932)

DescribeQuorum v2+ (KIP-853) has the addresses of controllers, to which clients of brokers do not connect. They are not
changed, since Shoal has no port for a controller.

In all responses the port follows the host, so an address is one range. An entry with node id -1, an empty host or no
port is no address (error responses have such entries) and is not changed. The walks stop after the last address, except
that tagged fields are at the very end.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from shoal.protocol.schema.api import ApiKey, response_header_version
from shoal.protocol.schema.headers import response_body
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Rows, Walkers
from shoal.protocol.wire.errors import LocalProtocolError, RemoteProtocolError
from shoal.protocol.wire.splice import Edit, splice
from shoal.protocol.wire.types import Buffer, write_compact_string, write_int32, write_string, write_uvarint

__all__ = ["ADDRESS_RESPONSES", "Endpoint", "Lookup", "endpoint_edits", "rewrite_endpoints"]

Lookup: TypeAlias = Callable[[int, str, int], tuple[str, int]]
"""`(node id, host, port)` of a broker -> the host and port for the client; unchanged values leave the address as it is.
"""

ADDRESS_RESPONSES: Final[Mapping[int, int]] = MappingProxyType(
    {
        ApiKey.PRODUCE: 10,
        ApiKey.FETCH: 16,
        ApiKey.METADATA: 0,
        ApiKey.FIND_COORDINATOR: 0,
        ApiKey.DESCRIBE_CLUSTER: 0,
        ApiKey.SHARE_FETCH: 0,
        ApiKey.SHARE_ACKNOWLEDGE: 0,
    }
)
"""API key -> the first version whose response contains an address."""

BROKER_ENDPOINTS: Final = 1
"""EndpointType of DescribeCluster: 1 = brokers, 2 = controllers (KIP-919)."""


class Endpoint(NamedTuple):
    node_id: int
    host: str
    port: int


class _Address(NamedTuple):
    """The address is `field`..`port_end`: the host's length, the host (`start`..`end`), the port."""

    node_id: int
    field: int
    start: int
    end: int
    port: int


_ADDRESS = ("NodeId | BrokerId", "at Host", "start Host", "end Host", "Port")
_TOP = (
    "EndpointType = 1",
    "at NodeEndpoints = None",
    "start NodeEndpoints = None",
    "end NodeEndpoints = None",
    *(f"{item} = None" for item in ("NodeId", *_ADDRESS[1:])),
)


def _walkers(name: str, array: str, *, tagged: bool = False) -> Walkers:
    return Walkers(MESSAGES[name], _TOP, Rows(array, _ADDRESS, _Address), to_end=tagged)


_WALKERS: Final[Mapping[int, Walkers]] = {
    ApiKey.PRODUCE: _walkers("ProduceResponse", "NodeEndpoints", tagged=True),
    ApiKey.FETCH: _walkers("FetchResponse", "NodeEndpoints", tagged=True),
    ApiKey.METADATA: _walkers("MetadataResponse", "Brokers"),
    ApiKey.FIND_COORDINATOR: _walkers("FindCoordinatorResponse", "Coordinators"),
    ApiKey.DESCRIBE_CLUSTER: _walkers("DescribeClusterResponse", "Brokers"),
    ApiKey.SHARE_FETCH: _walkers("ShareFetchResponse", "NodeEndpoints"),
    ApiKey.SHARE_ACKNOWLEDGE: _walkers("ShareAcknowledgeResponse", "NodeEndpoints"),
}


class _Found(NamedTuple):
    addresses: list[_Address]
    tagged: tuple[int, int, int] | None
    """Size, start and end of the tagged field that contains the addresses."""


def _find(api_key: int, version: int, frame: Buffer) -> _Found:
    if version < ADDRESS_RESPONSES.get(api_key, version + 1):
        return _Found([], None)
    walk = _WALKERS[api_key][version]
    found = walk(frame, response_body(frame, api_key, version), len(frame))
    endpoint_type, size_at, start, end, *single, addresses = found
    if endpoint_type != BROKER_ENDPOINTS:
        return _Found([], None)
    if single[0] is not None:
        addresses = [_Address(*single)]
    real = [each for each in addresses if each.node_id >= 0 and each.end > each.start and each.port > 0]
    return _Found(real, (size_at, start, end) if api_key in (ApiKey.PRODUCE, ApiKey.FETCH) and real else None)


def _endpoint(address: _Address, frame: Buffer) -> Endpoint:
    try:
        host = str(frame[address.start : address.end], "utf-8")
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"the host at {address.start} is not UTF-8") from error
    return Endpoint(address.node_id, host, address.port)


def rewrite_endpoints(api_key: int, version: int, frame: Buffer, lookup: Lookup) -> Buffer | list[Buffer]:
    """The response frame with every address replaced by that of `lookup`: `frame` itself if nothing changes.

    Raises RemoteProtocolError, or UnsupportedVersion for a version above the table; LocalProtocolError for an invalid
    port.
    """
    edits = endpoint_edits(api_key, version, frame, lookup)
    return splice(frame, edits) if edits else frame


def endpoint_edits(api_key: int, version: int, frame: Buffer, lookup: Lookup) -> list[Edit]:
    """The edits of `rewrite_endpoints`, for a caller with more edits of the same frame. Raises as it does."""
    found = _find(api_key, version, frame)
    edits = []
    for address in found.addresses:
        endpoint = _endpoint(address, frame)
        host, port = lookup(*endpoint)
        if (host, port) != endpoint[1:]:
            edits.append(_edit(api_key, version, address, (host, port)))
    if edits and found.tagged:
        edits.append(_tag_size(edits, *found.tagged))
    return edits


def _edit(api_key: int, version: int, address: _Address, new: tuple[str, int]) -> Edit:
    host, port = new
    if not 0 < port < 1 << 16:
        raise LocalProtocolError(f"{port} is not a port")
    compact = response_header_version(api_key, version) == 1
    written_port = write_int32(port)
    written_host = write_compact_string(host) if compact else write_string(host)
    return Edit(address.field, address.end + len(written_port), (written_host + written_port,))


def _tag_size(edits: list[Edit], size_at: int, start: int, end: int) -> Edit:
    grown = sum(len(edit.pieces[0]) - (edit.end - edit.start) for edit in edits)
    return Edit(size_at, start, (write_uvarint(end - start + grown),))
