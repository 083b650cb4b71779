"""Whether lanes may put several batches of one partition into a request: proven per broker before use.

A proof needs a client's own connection (cluster/multi_batch.py) and is valid as long as that connection. The first
client that would gain, because a batch of its partition already waits, lends its connection for the proof. The proof is
repeated when that client disconnects, or after a while.

The sets use the lane's connections. Since the proof, the broker may have been replaced, and the client's connection may
be half dead. So the broker behind each connection of a lane is identified before its first set, and a lost connection
ends the proof.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.cluster.multi_batch import PROBE_SECONDS
from shoal.proxy.net.broker_client import BrokerClient
from shoal.proxy.net.transport import PeerLost
from shoal.proxy.net.upstream import UpstreamUnreachable

if TYPE_CHECKING:
    from shoal.proxy.cluster.bound_port import BoundPort
    from shoal.proxy.connection.connection import Connection

__all__ = ["LaneClient", "ProvenSets"]

_ASK_AGAIN_SECONDS = 60.0


class LaneClient(BrokerClient):
    """A lane's connection. `introduced`: a prover, and whether this connection leads to its broker."""

    introduced: tuple[Connection, bool] | None = None

    def close(self) -> None:
        super().close()
        self.introduced = None

    def close_if_lost(self) -> None:
        """A broker may close an idle connection; then the next request gets a new one."""
        if self.is_lost:
            self.close()


class ProvenSets:
    def __init__(self) -> None:
        self._provers: dict[BoundPort, Connection] = {}
        self._ask_at: dict[BoundPort, float] = {}

    def allowed(self, bound_port: BoundPort) -> bool:
        prover = self._provers.get(bound_port)
        return prover is not None and prover.cluster.proofs.may_send_sets(prover)

    def worth_asking(self, bound_port: BoundPort) -> bool:
        return not self.allowed(bound_port) and trio.current_time() >= self._ask_at.get(bound_port, 0.0)

    async def ask(self, connection: Connection) -> None:
        """Runs before this client's next request is read. Raises UpstreamLost."""
        bound_port = connection.bound_port
        self._ask_at[bound_port] = trio.current_time() + _ASK_AGAIN_SECONDS
        await connection.requests.until_quiet()
        with connection.handling_request():
            if await connection.cluster.proofs.ensure(connection):
                self._provers[bound_port] = connection

    async def introduce(self, bound_port: BoundPort, client: LaneClient) -> None:
        """Before a possible set: check that this connection leads to the proven broker, once per prover."""
        prover = self._provers.get(bound_port)
        asked = client.introduced is not None and client.introduced[0] is prover
        if prover is None or asked or bound_port.node_id is None:
            return
        client.close_if_lost()
        try:
            with trio.fail_after(PROBE_SECONDS):
                holds = await prover.cluster.proofs.still_holds(bound_port.node_id, client.exchange)
        except (UpstreamUnreachable, PeerLost, RemoteProtocolError, trio.TooSlowError):
            client.close()
            self.lost(bound_port)
        else:
            if holds or self.allowed(bound_port):  # or the proof ended meanwhile: then the result is void
                client.introduced = prover, holds

    def may_carry(self, bound_port: BoundPort, client: LaneClient) -> bool:
        """True if a set may use this connection. Valid until the next await."""
        if not self.allowed(bound_port):
            return False
        if client.is_lost:
            self.lost(bound_port)
            return False
        return client.introduced == (self._provers[bound_port], True)

    def lost(self, bound_port: BoundPort) -> None:
        """A connection of a lane was lost: the broker may be replaced."""
        prover = self._provers.pop(bound_port, None)
        if prover is not None and bound_port.node_id is not None:
            self._ask_at.pop(bound_port, None)
            prover.cluster.proofs.lost(bound_port.node_id)

    def withdraw(self, bound_port: BoundPort, why: str) -> None:
        """A set was refused whose batches are accepted one by one, or a connection was lost with a set in flight."""
        prover = self._provers.pop(bound_port, None)
        if prover is not None:
            prover.cluster.proofs.withdraw(prover, why)

    def closed(self, connection: Connection) -> None:
        if self._provers.get(connection.bound_port) is connection:
            del self._provers[connection.bound_port]
            self._ask_at.pop(connection.bound_port, None)
