"""Which brokers of a cluster take several batches per partition in one request: proven before it is used.

A proof is made over a client's own connection, between two of its requests, because Shoal has no credentials: it needs a route's
handler, as `ask` does, and the client's rights. It is bound to connections: `may_send_sets` is true only of a connection whose
broker was proven over it, or was asked over it who it is and is the one that was proven. When any connection to a broker is
lost, no connection to that broker counts as proven any more (`known.py` has the rules).

One connection at a time proves a broker; others meanwhile send single batches.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

import trio

from shoal.protocol.multibatch.known import Known
from shoal.protocol.multibatch.probe import Ask, Probe, ProbePlan
from shoal.protocol.multibatch.proof import Proof, Result
from shoal.proxy.config.settings import MultiBatch
from shoal.proxy.errors import UpstreamLost
from shoal.proxy.statistics import CloseCause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shoal.protocol.wire.types import Buffer
    from shoal.proxy.config.settings import ClusterSettings
    from shoal.proxy.connection.connection import Connection

    Exchange = Callable[[bytes], Awaitable[Buffer]]

__all__ = ["PROBE_SECONDS", "MultiBatchProofs"]

log = logging.getLogger("shoal.multi_batch")

PROBE_SECONDS = 10.0  # a producer waits for 30 s by default (request.timeout.ms)
_TOKEN_BYTES = 8
_MOST_LEFTOVERS = 16
_LOSSES = frozenset({CloseCause.UPSTREAM_CLOSED, CloseCause.UPSTREAM_LOST, CloseCause.UPSTREAM_UNREACHABLE})
_ANOTHER = Proof(result=Result.UNKNOWN, why="it is not the broker that was proven")
_LEVELS = {Result.PROVEN: logging.INFO, Result.REFUSED: logging.INFO}


class MultiBatchProofs:
    """One for each cluster. Every method is safe for any connection to it."""

    def __init__(
        self,
        settings: ClusterSettings,
        *,
        seconds: float = PROBE_SECONDS,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self._name = settings.name
        self._topic = settings.probe_topic
        self._enabled = settings.multi_batch is MultiBatch.AUTO
        self._seconds = seconds
        self._now = clock
        self._known = Known()
        self._vouched: dict[Connection, int] = {}
        self._stamps: set[Connection] = set()
        self._proving: set[int] = set()
        self._leftovers: tuple[str, ...] = ()

    def may_send_sets(self, connection: Connection) -> bool:
        """Ask before every request with a set: an answer is good until the next await."""
        return connection in self._vouched

    async def ensure(self, connection: Connection) -> bool:
        """From a route's handler: prove the broker if that is due, within `PROBE_SECONDS`. -> `may_send_sets`.

        Raises UpstreamLost when the connection to the broker ends meanwhile.
        """
        if connection in self._vouched or not self._enabled:
            return connection in self._vouched
        node_id = connection.door.node_id
        if node_id is None or connection.provisional or node_id in self._proving:
            return False
        if self._known.may_ask(node_id, self._now()):
            await self._prove(connection, node_id)
        return connection in self._vouched

    def is_proven(self, node_id: int) -> bool:
        """Whether the broker takes sets, as far as is known: perhaps not yet of every connection to it."""
        proof = self._known.proof(node_id)
        return proof is not None and proof.proven

    def stamps_are_known(self, connection: Connection) -> bool:
        """Whether the batches of a set may have a producer id, and each of them be sent again alone: it is stored once."""
        return connection in self._stamps

    def vouch(self, connection: Connection, *, stamps: bool = False) -> None:
        """The broker behind this connection is known to take sets."""
        assert connection.door.node_id is not None
        self._vouched[connection] = connection.door.node_id
        if stamps:
            self._stamps.add(connection)

    def withdraw(self, connection: Connection, why: str) -> None:
        """A proven broker refused a set, or the connection ended on one: no more sets to it, until it is proven anew."""
        node_id = connection.door.node_id
        if node_id is None or connection not in self._vouched:
            return
        self._forget(node_id)
        if self._known.withdrawn(node_id, why, self._now()):
            log.warning(
                "cluster %r: broker %d no longer takes several batches per request: %s; one by one again",
                self._name,
                node_id,
                why,
            )

    async def still_holds(self, node_id: int, exchange: Exchange) -> bool:
        """Whether the broker behind a connection that is no client's is the one that was proven: two small requests over it.

        Raises what `exchange` raises.
        """
        probe = Probe(ProbePlan(node_id=node_id, token=b"", now=0), lambda one: self._known.of(one) or _ANOTHER)
        step = probe.start()
        while isinstance(step, Ask):
            step = probe.answered(await exchange(step.frame))
        return step.proven

    def ended(self, connection: Connection) -> None:
        """Both ends of a connection are closed; its `cause` says why."""
        self._vouched.pop(connection, None)
        self._stamps.discard(connection)
        node_id = connection.door.node_id
        if node_id is not None and connection.cause in _LOSSES:
            self.lost(node_id)

    def lost(self, node_id: int) -> None:
        """A connection to this broker was lost, a client's or one of Shoal's own."""
        self._forget(node_id)
        self._known.lost(node_id, self._now())

    def proofs(self) -> dict[int, Proof]:
        """What is known of each broker, by node id."""
        return self._known.proofs()

    def _forget(self, node_id: int) -> None:
        self._vouched = {one: node for one, node in self._vouched.items() if node != node_id}
        self._stamps &= self._vouched.keys()

    async def _prove(self, connection: Connection, node_id: int) -> None:
        self._proving.add(node_id)
        leftovers, self._leftovers = self._leftovers, ()
        plan = ProbePlan(
            node_id=node_id,
            topic=self._topic,
            token=os.urandom(_TOKEN_BYTES),
            now=time.time_ns() // 1_000_000,
            leftovers=leftovers,
        )
        probe = Probe(plan, self._known.of)
        try:
            proof, lost = await _run(probe, connection, self._seconds)
        finally:
            self._proving.discard(node_id)
            self._leftovers = (self._leftovers + probe.left_behind)[-_MOST_LEFTOVERS:]
        self._learned(connection, node_id, proof)
        if lost:
            raise UpstreamLost(f"while the broker was asked whether it takes several batches: {proof.why}")

    def _learned(self, connection: Connection, node_id: int, proof: Proof) -> None:
        if proof.proven:
            self.vouch(connection, stamps=proof.stamps)
        if not self._known.learned(node_id, proof, self._now()):
            return
        what = "several batches per partition and request" if proof.proven else "one batch per partition and request"
        log.log(
            _LEVELS.get(proof.result, logging.WARNING),
            "cluster %r: broker %d gets %s: %s: %s%s",
            self._name,
            node_id,
            what,
            proof.result,
            proof.why,
            f" ({proof.remedy})" if proof.remedy else "",
        )


async def _run(probe: Probe, connection: Connection, seconds: float) -> tuple[Proof, bool]:
    """-> the proof, and whether the connection was lost on the way."""
    step = probe.start()
    with trio.move_on_after(seconds):
        while isinstance(step, Ask):
            if step.pause:
                await trio.sleep(step.pause)
            try:
                frame = await _exchange(connection, step.frame, seconds)
            except UpstreamLost:
                step = probe.lost()
                assert isinstance(step, Proof)
                return step, True
            step = probe.answered(frame)
    if isinstance(step, Proof):
        return step, False
    why = f"no answer to {probe.doing} within {seconds:g} s"
    return Proof(result=Result.UNKNOWN, why=why, left_behind=probe.left_behind), False


async def _exchange(connection: Connection, frame: bytes, seconds: float) -> Buffer:
    """Giving up may not leave half a request behind: then the connection is of no more use."""
    with trio.move_on_after(seconds, shield=True) as sending:
        asked = await connection.post([frame])
    if sending.cancelled_caught:
        raise UpstreamLost(f"the broker did not read a request of {len(frame)} bytes within {seconds:g} s")
    return await asked.frame()
