"""The broker's ApiVersions, for clients that have yet to log in.

Clients ask for it first. Answers are kept for some seconds, so strangers, however many, cause one request now and then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import trio

from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.frames import request_frame
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.config.identity import shoal_version
from shoal.proxy.net.broker_client import open_client
from shoal.proxy.net.transport import PeerLost
from shoal.proxy.net.upstream import UpstreamUnreachable

if TYPE_CHECKING:
    from shoal.proxy.cluster.cluster import Cluster

__all__ = ["BrokerVersions"]

_FRESH_SECONDS = 10.0  # a client that gets the versions of an older broker reconnects by itself
_FAILED_SECONDS = 1.0
_CLIENT_ID = "shoal"


class _Known(NamedTuple):
    until: float
    frame: bytes | None  # None: the broker cannot be asked
    why: str


class BrokerVersions:
    """One for each listener."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[tuple[int | None, int], _Known] = {}
        self._asking: dict[tuple[int | None, int], trio.Lock] = {}

    async def answer(self, node_id: int | None, version: int) -> bytes:
        """The broker's answer, with a correlation id of Shoal's own. Raises UpstreamUnreachable."""
        if node_id not in self._cluster.brokers:
            node_id = None  # with routing by SNI, a stranger may ask for any number
        key = node_id, version
        async with self._asking.setdefault(key, trio.Lock()):
            known = self._known.get(key)
            if known is None or known.until <= trio.current_time():
                known = self._known[key] = await self._ask(node_id, version)
        if known.frame is None:
            raise UpstreamUnreachable(known.why)
        return known.frame

    async def _ask(self, node_id: int | None, version: int) -> _Known:
        limits = self._cluster.limits
        seconds = min(limits.connect_timeout, limits.login_timeout / 2)  # else the client's login ends without a cause
        try:
            with (
                open_client(self._cluster.anonymous, self._cluster.addresses(node_id)) as client,
                trio.fail_after(seconds),
            ):
                frame = await client.exchange(_request(version))
        except trio.TooSlowError:
            self._cluster.did_not_answer(client.address)
            why = f"the broker did not answer ApiVersions within {seconds:g} s"
        except (UpstreamUnreachable, PeerLost, RemoteProtocolError) as error:
            why = f"the broker did not answer ApiVersions: {error}"
        else:
            return _Known(trio.current_time() + _FRESH_SECONDS, frame, "")
        return _Known(trio.current_time() + _FAILED_SECONDS, None, why)


def _request(version: int) -> bytes:
    software = {"ClientSoftwareName": "shoal", "ClientSoftwareVersion": _plain(shoal_version())}
    return request_frame(ApiKey.API_VERSIONS, version, 0, _CLIENT_ID, software)


def _plain(version: str) -> str:
    """Brokers refuse other characters (`ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN`)."""
    return "".join(c if (c.isascii() and c.isalnum()) or c in "-." else "-" for c in version).strip("-.") or "0"
