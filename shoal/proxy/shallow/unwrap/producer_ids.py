"""Shoal's own producer id, from InitProducerId over the first connection that needs it and may request it.

The id belongs to the listener's cluster, not to the connection (protocol/shallow/unwrap/sequences/own.py). Clients need
permission to use it: brokers before 3.0 require IDEMPOTENT_WRITE on the cluster. A broker without InitProducerId would
close the connection, so Shoal sends it only if the broker's answer to the client's ApiVersions request lists it.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import trio

from shoal.protocol.messages.api_versions import offered
from shoal.protocol.messages.init_producer_id import encode_init_producer_id, read_init_producer_id
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.shallow.unwrap.sequences.own import Sequences
from shoal.protocol.wire.error_codes import ErrorCode, error_name
from shoal.proxy.connection.pending import EditAnswer, blaming_the_broker
from shoal.proxy.connection.routes import Route
from shoal.proxy.events.logs import event
from shoal.proxy.listener.plain import PLAIN_ROUTES
from shoal.proxy.net.upstream import UpstreamLost
from shoal.proxy.shallow.files.doubt import Doubt

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator
    from collections.abc import Sequence as Row

    from shoal.protocol.schema.headers import RequestHeader
    from shoal.protocol.shallow.unwrap.sequences.own import Sequence
    from shoal.protocol.wire.types import TopicPartition
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.pending import Answer, PendingAnswer
    from shoal.proxy.connection.routes import Decision, Wait
    from shoal.proxy.net.transport import Buffer

__all__ = ["WATCHED_VERSIONS", "ProducerIds", "Rights", "rights_of"]

log = logging.getLogger("shoal.unwrap")

# A broker remembers five batches of a producer since 1.0, which takes Produce v5; one in 0.11 (KAFKA-5494).
_OLDEST_PRODUCE = 5
# The next request asks again. A broker that just started must first get a block of ids from its controller.
_NOT_YET = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
# After this many consecutive connections that the broker closed at the request, Shoal pauses before the next one.
_MOST_LOSSES = 3
_PAUSE_SECONDS = 600.0

_PLAIN = PLAIN_ROUTES[ApiKey.API_VERSIONS]


@dataclass(slots=True, kw_only=True)
class Rights:
    """Permissions of one client connection for producer ids."""

    offered: bool = False  # the broker lists InitProducerId
    refused: bool = False  # the broker refuses it from this client


def rights_of(connection: Connection) -> Rights:
    if not isinstance(connection.context, Rights):
        connection.context = Rights()
    return connection.context


def _decide(connection: Connection, first: memoryview) -> Answer[Connection] | Decision | Wait | None:
    assert _PLAIN.decide is not None
    plain = _PLAIN.decide(connection, first)
    return EditAnswer(partial(_noted, plain)) if isinstance(plain, EditAnswer) else plain


def _noted(
    plain: EditAnswer[Connection], connection: Connection, entry: PendingAnswer, frame: Buffer
) -> Buffer | Row[Buffer]:
    rights_of(connection).offered = ApiKey.INIT_PRODUCER_ID in offered(frame, entry.api_version)
    return plain.edit(connection, entry, frame)


WATCHED_VERSIONS = Route(decide=_decide, handle=_PLAIN.handle)
"""The route of ApiVersions, which also records whether the broker offers InitProducerId."""


class ProducerIds:
    """One for each unwrapping listener. `clock`: monotonic seconds."""

    def __init__(self, listener: str, *, clock: Callable[[], float] = trio.current_time) -> None:
        self._now = clock
        self._sequences = Sequences()
        self._cluster_id: str | None = None
        self._listener = listener
        self._losses = 0  # consecutive; connections lost at the same time count once
        self._ask_from = -math.inf
        self._useless = False  # the brokers do not check sequences
        self._logged: set[str] = set()

    async def sequences_for(
        self, connection: Connection, header: RequestHeader, wanted: Row[tuple[TopicPartition, Hashable]]
    ) -> Sequences | None:
        """For these partitions and senders. None: send without stamps. Raises UpstreamLost and UpstreamFault."""
        rights = rights_of(connection)
        if header.api_version < _OLDEST_PRODUCE or not rights.offered:
            self._without("the broker or the client is too old for it")
            return None
        if rights.refused or self._useless:
            return None
        self._note_cluster(connection.cluster.cluster_id)
        sequences = self._sequences
        if sequences.lacks_id(wanted) and self._now() >= self._ask_from:
            granted = await self._ask(connection, rights, header)
            if granted is not None and sequences.lacks_id(wanted):  # another connection may have been faster
                sequences.begin(*granted)
        return sequences

    def in_doubt(self) -> Iterator[Doubt]:
        """With the cluster's id, if known: in another cluster the producer id may be another client's."""
        for partition, sender, sequence in self._sequences.in_doubt():
            yield Doubt(self._cluster_id, partition, sender, sequence)

    def restore(self, cluster_id: str | None, partition: TopicPartition, sender: Hashable, sequence: Sequence) -> None:
        """Restore what was `in_doubt` when the previous process was stopped."""
        self._cluster_id = cluster_id
        self._sequences.restore(partition, sender, sequence)

    def _note_cluster(self, cluster_id: str | None) -> None:
        """Another cluster at the same address may give our id to another client."""
        if self._cluster_id and cluster_id and cluster_id != self._cluster_id:
            self._sequences = Sequences()
        self._cluster_id = cluster_id or self._cluster_id

    async def _ask(self, connection: Connection, rights: Rights, header: RequestHeader) -> tuple[int, int] | None:
        """-> (producer id, epoch)."""
        question = encode_init_producer_id(header.correlation_id, header.client_id)
        losses = self._losses
        try:
            answer = await connection.broker.ask([question])
        except UpstreamLost:
            self._lost(losses)
            raise
        self._losses = 0
        with blaming_the_broker():
            granted = read_init_producer_id(answer)
        if granted.error_code:
            rights.refused = granted.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            why = "not authorized: IDEMPOTENT_WRITE on the cluster, or since Kafka 3.0 WRITE on any topic"
            if granted.error_code not in _NOT_YET:
                self._without(why if rights.refused else error_name(granted.error_code))
            return None
        return granted.producer_id, granted.epoch

    def _lost(self, before: int) -> None:
        """A connection was lost whose request began at `before` losses."""
        self._losses = before + 1
        if self._losses >= _MOST_LOSSES:
            self._losses, self._ask_from = 0, self._now() + _PAUSE_SECONDS
            self._without("the broker closes the connection when it is asked for one")

    def forget(self, partition: TopicPartition, sender: Hashable) -> None:
        """The sender needs another producer id in this partition."""
        self._sequences.forget(partition, sender)

    def forget_topic(self, topic: str) -> None:
        self._sequences.forget_topic(topic)

    def give_up(self) -> None:
        """A broker appended a batch after a sequence gap, so it does not check sequences."""
        self._useless = True
        self._without("the broker pays no regard to sequence numbers")

    def refuse(self, connection: Connection) -> None:
        """The broker refuses stamped batches from this client."""
        rights_of(connection).refused = True
        self._without("the broker refuses batches with a producer id from this client (error 31)")

    def _without(self, why: str) -> None:
        """Logged once for each reason."""
        if why not in self._logged:
            self._logged.add(why)
            text = (
                f"listener {self._listener!r}: no producer id of Shoal's own for some clients ({why}): one request in "
                "flight per partition, and what is in flight when a connection is lost may be appended twice"
            )
            log.info("no-producer-id", extra=event(text, listener=self._listener, detail=why))
