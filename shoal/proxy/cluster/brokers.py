"""Shoal's own questions to a cluster: one connection to each broker, with one request at a time.

With Shoal's credentials, or those that Shoal uses for a mirror. A cluster to which clients log in by themselves answers
no questions of Shoal's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from shoal.protocol.messages.metadata import read_metadata_response
from shoal.protocol.messages.topics import TOPICS_VERSION, encode_topics_request, read_topics
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.cluster.cluster import CLIENT_ID
from shoal.proxy.config.settings import Address
from shoal.proxy.net.broker_client import BrokerClient
from shoal.proxy.net.transport import PeerLost
from shoal.proxy.net.upstream import UpstreamUnreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.protocol.messages.topics import Topics
    from shoal.proxy.cluster.cluster import Cluster
    from shoal.proxy.net.upstream import BrokerConnection

__all__ = ["ANSWER_SECONDS", "Brokers", "NoAnswer"]

ANSWER_SECONDS = 30.0  # so that a broker that hangs is asked anew


class NoAnswer(Exception):
    """The cluster, or one of its brokers, did not answer; the message says why."""


class Brokers:
    """`patience`: seconds for an answer, with the connection. `hint`: why a broker may close the first one unanswered.

    Close it.
    """

    def __init__(
        self, cluster: Cluster, *, client_id: str = CLIENT_ID, patience: float = ANSWER_SECONDS, hint: str = ""
    ) -> None:
        self.cluster = cluster
        self.client_id = client_id
        self.addresses: dict[int, Address] = {}
        self._patience = patience
        self._hint = hint
        self._credentials: str | None = None
        self._clients: dict[int | None, BrokerClient] = {}  # None: any broker

    @property
    def must_log_in(self) -> bool:
        """Only the mirror itself can ask: the cluster demands a login, and Shoal has none."""
        return self.cluster.demands_login and not self.cluster.has_principal and self._credentials is None

    def use(self, credentials: str | None) -> None:
        """Those of the mirror's latest connection, by name."""
        if credentials != self._credentials:
            self._credentials = credentials
            self.close()

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def name(self, node_id: int) -> str:
        return f"broker {node_id} ({self.addresses[node_id]})" if node_id in self.addresses else f"broker {node_id}"

    async def topics(self, names: Sequence[str]) -> Topics:
        """The metadata of these topics, and of all brokers, which are known from then on. Raises NoAnswer."""
        frame = await self.exchange(None, encode_topics_request(self.client_id, names))
        try:
            metadata, topics = read_metadata_response(frame, TOPICS_VERSION), read_topics(frame)
        except RemoteProtocolError as error:
            raise NoAnswer(str(error)) from error
        self.cluster.learn(metadata)
        self.addresses = {broker.node_id: Address(broker.host, broker.port) for broker in topics.brokers}
        for node_id in [node_id for node_id in self._clients if node_id not in (None, *self.addresses)]:
            if self._is_idle(node_id):
                self._drop(node_id)
        return topics

    async def exchange(self, node_id: int | None, request: bytes) -> bytes:
        """With this broker; None: with any. Raises NoAnswer."""
        client = self._clients.get(node_id)
        if client is None:
            if node_id is not None and node_id not in self.addresses:
                raise NoAnswer(f"the address of broker {node_id} is not known")
            client = self._clients[node_id] = BrokerClient(lambda: self._connect(node_id), self.cluster.limits)
        elif client.is_lost:
            client.close()
        hint = "" if self.addresses else self._hint
        try:
            with trio.fail_after(self._patience):
                return await client.exchange(request)
        except trio.Cancelled:
            self.cluster.did_not_answer(client.address)
            self._drop(node_id)
            raise
        except trio.TooSlowError:
            self.cluster.did_not_answer(client.address)
            why = f"no answer within {self._patience:g} s"
        except PeerLost as error:
            why = f"{error}{hint}"
        except (UpstreamUnreachable, RemoteProtocolError) as error:
            why = str(error)
        self._drop(node_id)
        raise NoAnswer(why)

    async def _connect(self, node_id: int | None) -> BrokerConnection:
        everywhere = dict.fromkeys((*self.cluster.bootstrap, *self.addresses.values()))
        addresses = list(everywhere) if node_id is None else [self.addresses[node_id]]
        return await self.cluster.upstream_with(self._credentials).connect(addresses)

    def _is_idle(self, node_id: int | None) -> bool:
        """There is no request in flight to it."""
        return True

    def _drop(self, node_id: int | None) -> None:
        client = self._clients.pop(node_id, None)
        if client is not None:
            client.close()
