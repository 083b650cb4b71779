"""Whether a listener's lanes may put several batches of one partition into a request: per broker, proven before it is used.

A proof needs a client's own connection (cluster/multi_batch.py), and holds as long as that connection does. The first client that would
gain by it, because a batch of its partition waits already, lends its connection for the proof; a broker is asked again when
that client has gone, or after a while.

The sets themselves go over a lane's connections. The broker may be another one since the proof, and the client's connection half dead:
so each connection of a lane says who it leads to before it carries its first set, and with each that is lost the proof is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.cluster.multi_batch import PROBE_SECONDS
from shoal.proxy.net.connect import UpstreamUnreachable
from shoal.proxy.net.transport import PeerLost

if TYPE_CHECKING:
    from shoal.proxy.cluster.bound_port import BoundPort
    from shoal.proxy.coalesce.carrier import Carrier
    from shoal.proxy.connection.connection import Connection

__all__ = ["ProvenSets"]

_ASK_AGAIN_SECONDS = 60.0


class ProvenSets:
    def __init__(self) -> None:
        self._provers: dict[BoundPort, Connection] = {}
        self._ask_at: dict[BoundPort, float] = {}

    def allowed(self, door: BoundPort) -> bool:
        prover = self._provers.get(door)
        return prover is not None and prover.cluster.proofs.may_send_sets(prover)

    def worth_asking(self, door: BoundPort) -> bool:
        return not self.allowed(door) and trio.current_time() >= self._ask_at.get(door, 0.0)

    async def ask(self, connection: Connection) -> None:
        """Instead of reading this client's next request. Raises UpstreamLost."""
        door = connection.door
        self._ask_at[door] = trio.current_time() + _ASK_AGAIN_SECONDS
        await connection.requests.until_quiet()
        with connection.handling_request():
            if await connection.cluster.proofs.ensure(connection):
                self._provers[door] = connection

    async def introduce(self, door: BoundPort, carrier: Carrier) -> None:
        """Before what may be a set: is the proven broker behind this connection? It is asked once for each prover."""
        prover = self._provers.get(door)
        asked = carrier.introduced is not None and carrier.introduced[0] is prover
        if prover is None or asked or door.node_id is None:
            return
        try:
            with trio.fail_after(PROBE_SECONDS):
                holds = await prover.cluster.proofs.still_holds(door.node_id, carrier.exchange)
        except (UpstreamUnreachable, PeerLost, RemoteProtocolError, trio.TooSlowError):
            carrier.close()
            self.lost(door)
        else:
            if holds or self.allowed(door):  # or nothing is proven any more: then it says nothing of this connection
                carrier.introduced = prover, holds

    def may_carry(self, door: BoundPort, carrier: Carrier) -> bool:
        """Whether a set may go over this connection: good until the next await."""
        if not self.allowed(door):
            return False
        if carrier.has_lost_its_broker:
            self.lost(door)
            return False
        return carrier.introduced == (self._provers[door], True)

    def lost(self, door: BoundPort) -> None:
        """A connection of a lane was lost: the broker may come back as another one."""
        prover = self._provers.pop(door, None)
        if prover is not None and door.node_id is not None:
            self._ask_at.pop(door, None)
            prover.cluster.proofs.lost(door.node_id)

    def withdraw(self, door: BoundPort, why: str) -> None:
        """A set was refused whose batches are taken one by one, or a connection ended on one."""
        prover = self._provers.pop(door, None)
        if prover is not None:
            prover.cluster.proofs.withdraw(prover, why)

    def closed(self, connection: Connection) -> None:
        if self._provers.get(connection.door) is connection:
            del self._provers[connection.door]
            self._ask_at.pop(connection.door, None)
