"""Which brokers of a cluster accept several batches per partition in one request: proven before it is used.

A proof uses a client's own connection, between two of its requests, because Shoal may have no credentials: it needs a
route's handler, as `ask` does, and the permissions of the connection's user. It belongs to connections:
`may_send_sets` is true only for a connection over which the broker was proven, or identified as the proven one. When
any connection to a broker is lost, no connection to that broker counts as proven any longer (`known_proofs.py` has the
rules).

One connection at a time proves a broker; the others send single batches meanwhile.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Protocol

import trio

from shoal.protocol.multibatch.known_proofs import KnownProofs
from shoal.protocol.multibatch.probe import Ask, Probe, ProbePlan
from shoal.protocol.multibatch.proof import Proof, Result
from shoal.proxy.config.settings import MultiBatch
from shoal.proxy.events.logs import event
from shoal.proxy.net.upstream import UpstreamLost
from shoal.proxy.statistics import CloseCause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from shoal.protocol.wire.types import Buffer
    from shoal.proxy.config.settings import ClusterSettings

    Exchange = Callable[[bytes], Awaitable[Buffer]]

__all__ = ["PROBE_SECONDS", "MultiBatchProofs", "PostedRequest", "ProbeConnection"]

log = logging.getLogger("shoal.multi_batch")

PROBE_SECONDS = 10.0  # a producer waits for 30 s by default (request.timeout.ms)
_TOKEN_BYTES = 8
_MOST_LEFTOVERS = 16
_LOSSES = frozenset({CloseCause.UPSTREAM_CLOSED, CloseCause.UPSTREAM_LOST, CloseCause.UPSTREAM_UNREACHABLE})
_ANOTHER = Proof(result=Result.UNKNOWN, why="it is not the broker that was proven")
_LEVELS = {Result.PROVEN: logging.INFO, Result.REFUSED: logging.INFO}


class PostedRequest(Protocol):
    async def frame(self) -> Buffer:
        """The answer. Raises UpstreamLost."""


class Requests(Protocol):
    async def post(self, buffers: Sequence[Buffer], /) -> PostedRequest:
        """Raises UpstreamLost."""


class ProbeConnection(Protocol):
    """A connection whose broker can be asked on a client's behalf, from a route's handler."""

    @property
    def node_id(self) -> int | None: ...
    @property
    def provisional(self) -> bool: ...
    @property
    def cause(self) -> CloseCause | None: ...
    @property
    def broker(self) -> Requests: ...


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
        self._seconds = seconds
        self._now = clock
        self._known = KnownProofs()
        self._vouched: dict[ProbeConnection, int] = {}
        self._stamps: set[ProbeConnection] = set()
        self._proving: set[int] = set()
        self._leftovers: tuple[str, ...] = ()
        self.use(settings)

    def use(self, settings: ClusterSettings) -> None:
        """From the next request on."""
        self._topic = settings.probe_topic
        self._enabled = settings.multi_batch is MultiBatch.AUTO
        if not self._enabled:
            self._known = KnownProofs()
            self._vouched.clear()
            self._stamps.clear()

    def may_send_sets(self, connection: ProbeConnection) -> bool:
        """Check it before every request with a set: the result is valid until the next await."""
        return connection in self._vouched

    async def ensure(self, connection: ProbeConnection) -> bool:
        """From a route's handler: prove the broker if that is due, within `PROBE_SECONDS`. -> `may_send_sets`.

        Raises UpstreamLost when the connection to the broker ends meanwhile.
        """
        if self.is_due(connection):
            assert connection.node_id is not None
            await self._prove(connection, connection.node_id)
        return connection in self._vouched

    def is_due(self, connection: ProbeConnection) -> bool:
        """Whether `ensure` would ask the broker now."""
        if connection in self._vouched or not self._enabled:
            return False
        node_id = connection.node_id
        if node_id is None or connection.provisional or node_id in self._proving:
            return False
        return self._known.may_ask(node_id, self._now())

    def is_proven(self, node_id: int) -> bool:
        """Whether the broker is known to accept sets; not every connection to it may send them yet."""
        proof = self._known.proof(node_id)
        return proof is not None and proof.proven

    def stamps_are_known(self, connection: ProbeConnection) -> bool:
        """Whether batches of a set may have a producer id: the broker recognises each when it is sent again alone."""
        return connection in self._stamps

    def vouch(self, connection: ProbeConnection, *, stamps: bool = False) -> None:
        """The broker of this connection is known to accept sets."""
        assert connection.node_id is not None
        self._vouched[connection] = connection.node_id
        if stamps:
            self._stamps.add(connection)

    def withdraw(self, connection: ProbeConnection, why: str) -> None:
        """A proven broker refused a set, or the connection was lost with one in flight: no sets until proven again."""
        node_id = connection.node_id
        if node_id is None or connection not in self._vouched:
            return
        self._forget(node_id)
        if self._known.withdrawn(node_id, why, self._now()):
            text = (
                f"cluster {self._name!r}: broker {node_id} no longer takes several batches per request: {why}; one by "
                "one again"
            )
            log.warning("sets-withdrawn", extra=event(text, cluster=self._name, node_id=node_id, detail=why))

    async def still_holds(self, node_id: int, exchange: Exchange) -> bool:
        """Whether the broker of a connection of Shoal's own is the proven one: sends two small requests over it.

        Raises what `exchange` raises.
        """
        probe = Probe(
            ProbePlan(node_id=node_id, token=b"", now=0), lambda identity: self._known.lasting(identity) or _ANOTHER
        )
        step = probe.start()
        while isinstance(step, Ask):
            step = probe.answered(await exchange(step.frame))
        return step.proven

    def ended(self, connection: ProbeConnection) -> None:
        """Both ends of a connection are closed; its `cause` says why."""
        self._vouched.pop(connection, None)
        self._stamps.discard(connection)
        node_id = connection.node_id
        if node_id is not None and connection.cause in _LOSSES:
            self.lost(node_id)

    def lost(self, node_id: int) -> None:
        """A connection to this broker was lost: a client's, or one of Shoal's own."""
        self._forget(node_id)
        self._known.lost(node_id, self._now())

    def proofs(self) -> dict[int, Proof]:
        """The proofs by node id."""
        return self._known.proofs()

    def _forget(self, node_id: int) -> None:
        self._vouched = {connection: node for connection, node in self._vouched.items() if node != node_id}
        self._stamps &= self._vouched.keys()

    async def _prove(self, connection: ProbeConnection, node_id: int) -> None:
        self._proving.add(node_id)
        leftovers, self._leftovers = self._leftovers, ()
        plan = ProbePlan(
            node_id=node_id,
            topic=self._topic,
            token=os.urandom(_TOKEN_BYTES),
            now=time.time_ns() // 1_000_000,
            leftovers=leftovers,
        )
        probe = Probe(plan, self._known.lasting)
        try:
            proof, lost = await _run(probe, connection, self._seconds)
        finally:
            self._proving.discard(node_id)
            self._leftovers = (self._leftovers + probe.left_behind)[-_MOST_LEFTOVERS:]
        self._learned(connection, node_id, proof)
        if lost:
            raise UpstreamLost(f"while the broker was asked whether it takes several batches: {proof.why}")

    def _learned(self, connection: ProbeConnection, node_id: int, proof: Proof) -> None:
        if proof.proven:
            self.vouch(connection, stamps=proof.stamps)
        if not self._known.learned(node_id, proof, self._now()):
            return
        what = "several batches per partition and request" if proof.proven else "one batch per partition and request"
        remedy = f" ({proof.remedy})" if proof.remedy else ""
        values = event(
            f"cluster {self._name!r}: broker {node_id} gets {what}: {proof.result}: {proof.why}{remedy}",
            cluster=self._name,
            node_id=node_id,
            result=proof.result.name.lower(),
            detail=proof.why,
        )
        log.log(_LEVELS.get(proof.result, logging.WARNING), "sets-proof", extra=values)


async def _run(probe: Probe, connection: ProbeConnection, seconds: float) -> tuple[Proof, bool]:
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


async def _exchange(connection: ProbeConnection, frame: bytes, seconds: float) -> Buffer:
    """A timeout must not leave half a request behind: the connection would be unusable."""
    with trio.move_on_after(seconds, shield=True) as sending:
        asked = await connection.broker.post([frame])
    if sending.cancelled_caught:
        raise UpstreamLost(f"the broker did not read a request of {len(frame)} bytes within {seconds:g} s")
    return await asked.frame()
