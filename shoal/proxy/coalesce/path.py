"""The path of a listener with `coalesce = true`: joins the Produce requests of many clients (docs/coalescing.md).

    client A ──produce──┐                         ┌── client A: its answers, in order
    client B ──produce──┼── CoalescePath ── Lane ─┼── client B
    client C ──produce──┘   take, or let pass     └── client C
        └────── everything else: the client's own connection, as on a plain listener ──────> broker

Each Produce request is decided as soon as it is complete in the receive buffer:

    taken    its batches go into the lane of this broker and key; the CoalescedClient sends the answer
    alone    it passes over the client's own connection: not joinable (`WhyAlone`), too large to gain, from an
             authenticated client, or possibly a retry
    wait     read no more from this client for now: taken and passing requests never overtake each other, neither on
             one connection nor, of one client id, in one partition (a retry uses a new connection); taken bytes are
             bounded (`queue_bytes`)

Clients that log in at the broker (SASL) are not joined: the lane's connection would need their authentication, which a
pass-through proxy cannot perform. Lending the connection of one client was rejected: its end, its expired session and
its waiting would affect all (docs/coalescing.md). All other clients, also those that log in at Shoal, have the
principal that Shoal logs in as: only clients with the same identity there share a lane (`LaneId`). After a reload with
other credentials, new clients have another one.

A request may be a retry by its producer id and sequence (`SeenSequences`; a partition is identified by its topic's
name, since a retry may have the id where the first had the name: connection/topic_names.py). Without producer id, it
may be a retry for some time after the client got an error, or after a connection of this client (address and client id)
was closed with unanswered requests. Then it also waits until what is left of that connection is answered.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, cast

import trio

from shoal.protocol.coalesce.joinable import OLDEST, WhyAlone, read_joinable
from shoal.protocol.coalesce.policy import Batch, JoinLimits
from shoal.protocol.coalesce.sequences import SeenSequences
from shoal.protocol.messages.produce import read_produce_response
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import SIZE_BYTES, read_request_header, read_request_prefix
from shoal.protocol.transform.addresses import rewrite_endpoints
from shoal.protocol.wire.error_codes import error_name
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import PartitionRef
from shoal.proxy.capture.annotations import raw
from shoal.proxy.cluster.ports import NoPort
from shoal.proxy.coalesce.client import NOT_KNOWN, CoalescedClient
from shoal.proxy.coalesce.counters import CoalesceTally
from shoal.proxy.coalesce.lane import Lane, LaneId
from shoal.proxy.coalesce.sets import ProvenSets
from shoal.proxy.connection.routes import Decision, Route, Wait, table
from shoal.proxy.connection.topic_names import learn_names
from shoal.proxy.listener.plain import PLAIN_ROUTES
from shoal.proxy.net.fast_lane import waited
from shoal.proxy.statistics import CloseCause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from shoal.protocol.coalesce.joinable import Joinable, LaneKey
    from shoal.protocol.coalesce.policy import Joined
    from shoal.protocol.wire.types import Buffer, Topic
    from shoal.proxy.cluster.bound_port import BoundPort
    from shoal.proxy.coalesce.client import TakenRequest
    from shoal.proxy.config.settings import CoalesceSettings, ListenerSettings
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.pending import Answer, InFlight
    from shoal.proxy.listener.listener import Listener
    from shoal.proxy.net.upstream import Upstream
    from shoal.proxy.statistics import PathStatistics

__all__ = ["CoalescePath"]

LARGEST_REQUEST = (
    64 * 1024
)  # limit of a client's request: a larger one gains nothing (and exceeds what a pump may hold)
MAX_LANES = 256  # each has two connections and two tasks, up to `in_flight` of them
_PATIENCE = 0.25  # of the linger: for how long a request may wait to be read with others,
_MOST_PATIENCE = 0.0025  # also one that is not joined
_ANY_CLIENT_ID = "shoal"  # in requests of lanes that are shared by client ids
_SETTLE_SECONDS = (
    15.0  # a client's requests may be retries for this long: reconnect.backoff.max.ms is at most 10 s by default
)
_MAX_UNSETTLED = 10_000
_HELD_FOR_A_BATCH = 2304  # bytes of objects until it is answered, measured: many tiny ones must not exceed queue-bytes
_KEPT_OF_AN_ID = 1024  # characters: a client may have an id of 32 KiB; of two that begin alike, both wait

_AUTHENTICATION = (int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE))

_plain_produce = PLAIN_ROUTES[ApiKey.PRODUCE].decide


def _limits(settings: CoalesceSettings) -> JoinLimits:
    return JoinLimits(
        linger=settings.linger,
        request_bytes=settings.request_bytes,
        request_batches=settings.request_batches,
        set_batches=settings.set_batches,
        in_flight=settings.in_flight,
        patience=settings.patience,
    )


def _retrying(connection: Connection) -> tuple[str, str]:
    """The client, which may send a request again over another connection."""
    return connection.peer.host, (connection.client_id or "")[:_KEPT_OF_AN_ID]


class CoalescePath:
    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.settings = listener.settings.coalescing
        self.tally = CoalesceTally()
        self.held_bytes = 0  # of taken batches without an answer
        self._held: dict[tuple[BoundPort, str, PartitionRef], dict[int, float]] = {}  # `_key` -> when each arrived
        own = {int(ApiKey.PRODUCE): Route(decide=self._decide, takes=True)}
        sasl = dict.fromkeys(_AUTHENTICATION, Route(decide=self._authenticates))
        self.routes = table({**PLAIN_ROUTES, **own, **sasl})
        self._limits = _limits(self.settings)
        self._members: dict[Connection, CoalescedClient] = {}
        self._lanes: dict[tuple[BoundPort, Upstream, LaneKey], Lane] = {}  # by `LaneId`
        self._sequences = SeenSequences()
        self._unsettled: OrderedDict[tuple[str, str], float] = OrderedDict()  # client -> until when
        self._producing: dict[tuple[str, str], set[CoalescedClient]] = {}  # by client
        self._leaving: dict[tuple[str, str], set[CoalescedClient]] = {}  # those with requests that are still answered
        self.sets = ProvenSets()
        self._waiting: trio.Event | None = None  # set when requests are answered or withdrawn

    # -- connections -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        pass

    def opened(self, connection: Connection) -> None:
        member = connection.backlog = self._members[connection] = CoalescedClient(
            connection, partial(self._leaves, connection)
        )
        if connection.bound_port.node_id is None or connection.provisional:
            member.never_joined_because = WhyAlone.BOOTSTRAP
        self._set_patience(member)

    def _set_patience(self, member: CoalescedClient) -> None:
        may_be_joined = member.never_joined_because is None
        patience = min(self.settings.linger * _PATIENCE, _MOST_PATIENCE)
        member.connection.requests.be_patient(patience if may_be_joined else 0.0)

    def gauges(self) -> Mapping[str, Mapping[str, float]]:
        return {"held_bytes": {"coalescing": self.held_bytes}}

    def status(self) -> dict[str, object]:
        return {"lanes": len(self._lanes), "held_bytes": self.held_bytes}

    def end(self) -> None:
        pass

    def closed(self, connection: Connection) -> None:
        self._leaves(connection)
        member = self._members.pop(connection)
        for members in (self._producing, self._leaving):
            _discard(members, member)
        member.end()
        self.sets.closed(connection)
        for lane in list(self._lanes.values()):
            if lane.bound_port is connection.bound_port:
                lane.withdraw({member}, silent=False)
            if not self._members:
                lane.end_soon()
        self._look_again()

    def _leaves(self, connection: Connection) -> None:
        """Its client sends nothing more over it."""
        member = self._members[connection]
        alone = any(_correlation_id(entry) == member.alone for entry in connection.in_flight)
        if member.unanswered or alone:
            self._unsettle(connection)
        if member.unanswered:
            self._leaving.setdefault(member.client, set()).add(member)

    def _begins(self, member: CoalescedClient) -> None:
        """Before its first request: whether its client has left another connection, which nothing may be reading."""
        member.client = _retrying(member.connection)
        for other in self._producing.setdefault(member.client, set()):
            _notice(other)
        self._producing[member.client].add(member)

    def _unsettle(self, connection: Connection) -> None:
        client = _retrying(connection)
        self._unsettled[client] = trio.current_time() + _SETTLE_SECONDS
        self._unsettled.move_to_end(client)
        if len(self._unsettled) > _MAX_UNSETTLED:
            self._unsettled.popitem(last=False)

    def _authenticates(self, connection: Connection, first: memoryview) -> Answer[Connection] | Decision | Wait | None:
        member = self._members[connection]
        member.never_joined_because = WhyAlone.AUTHENTICATED
        self._set_patience(member)
        self.listener.complain(
            "clients-not-joined",
            "clients log in at the broker, so their requests are not joined: let them log in at Shoal "
            "([listener.sasl])",
        )
        route = PLAIN_ROUTES[read_request_prefix(first)[1]]
        return route.answer if route.decide is None else route.decide(connection, first)

    def statistics(self) -> tuple[PathStatistics, ...]:
        return (self.tally.statistics(),)

    def use(self, settings: ListenerSettings) -> None:
        self.settings = settings.coalescing
        self._limits = _limits(self.settings)
        for lane in self._lanes.values():
            lane.policy.limits = self._limits
            lane.nudge()
        for member in self._members.values():
            member.forget()  # what is kept may have a client id
            self._set_patience(member)

    def tick(self, now: float) -> None:
        """Keep brokers from closing the clients' own connections as idle, and notice clients that have left while
        nothing reads what they send, and lanes whose pause is over.
        """
        for member in list(self._members.values()):
            member.keep_alive.tick(now)
            _notice(member)
        self._look_again()

    # -- requests --------------------------------------------------------------------------------------------------

    def _decide(self, connection: Connection, first: memoryview) -> Answer[Connection] | Decision | Wait | None:
        member = self._members[connection]
        if member.client is NOT_KNOWN:
            self._begins(member)
        size, _, version, correlation_id = read_request_prefix(first)
        if member.never_joined_because is not None:
            return self._pass(member, first, member.never_joined_because)
        if version < OLDEST or size > LARGEST_REQUEST:
            return self._pass(member, first, WhyAlone.OLD if version < OLDEST else WhyAlone.LARGE)
        if len(first) < SIZE_BYTES + size:
            return Decision.MORE
        found = member.read_again(first) or self._read(member, first)
        if isinstance(found, WhyAlone):
            return self._pass(member, first, found)
        places = [_by_name(connection, part.target) for part in found.parts]
        unknown: list[Topic] = [place.topic for place in places if isinstance(place.topic, bytes)]
        if unknown and not member.asked_names:
            return Wait(partial(self._learn_names, member, read_request_header(first).client_id, unknown))
        member.asked_names = False
        if unknown:
            self._unsettle(connection)  # the next request may be a retry with the topic's name
        why = WhyAlone.NAMELESS if unknown else self._why_alone(member, found, places)
        if why is not None:
            return self._pass_alone(member, first, found, places, why)
        return self._take(member, found, places, correlation_id)

    def _read(self, member: CoalescedClient, first: memoryview) -> Joinable | WhyAlone:
        """A whole request that is like none of this client's earlier ones."""
        found = read_joinable(first, read_request_header(first))
        if isinstance(found, WhyAlone):
            return found
        if self.settings.ignore_client_ids:
            found = found.with_any_client_id()
        member.keep(first, found)
        return found

    async def _learn_names(self, member: CoalescedClient, client_id: str | None, unknown: list[Topic]) -> None:
        """Runs before this client's next request is read. Raises UpstreamLost and UpstreamFault."""
        with member.connection.handling_request():
            await learn_names(member.connection, client_id, unknown)
        member.asked_names = True

    def _why_alone(self, member: CoalescedClient, found: Joinable, places: list[PartitionRef]) -> WhyAlone | None:
        if self._may_be_retry(member):
            return WhyAlone.RETRY
        for part, place in zip(found.parts, places, strict=True):
            if not self._sequences.is_new(place, part.header):
                return WhyAlone.RETRY
        connection = member.connection
        which = connection.bound_port, connection.identity, found.key
        return WhyAlone.TOO_MANY if len(self._lanes) >= MAX_LANES and which not in self._lanes else None

    def _may_be_retry(self, member: CoalescedClient) -> bool:
        """Whatever its client sends now."""
        if member.alone_until == -math.inf and not self._unsettled:
            return False
        now = trio.current_time()
        return now < member.alone_until or now < self._unsettled.get(_retrying(member.connection), now)

    def _has_left_some(self, member: CoalescedClient) -> bool:
        """Another connection of its client is closed, and has requests that are still to be answered."""
        leaving = self._leaving.get(member.client, ())
        return any(other.unanswered for other in leaving if other is not member)

    def _pass_alone(
        self, member: CoalescedClient, first: memoryview, found: Joinable, places: list[PartitionRef], why: WhyAlone
    ) -> Answer[Connection] | Decision | Wait | None:
        """Wait for requests that were taken for its partitions from clients of its client id: it may repeat one."""
        since = member.behind if member.behind is not None else trio.current_time()
        targets = [
            target
            for part, place in zip(found.parts, places, strict=True)
            for target in _names_in_lanes(member.connection, part.target, place)
        ]
        ahead = partial(self._holds, member, targets, since)
        if ahead():
            member.behind = since
            return Wait(partial(self._while, ahead))
        decision = self._pass(member, first, why)
        if not isinstance(decision, Wait):
            member.behind = None
            for part, place in zip(found.parts, places, strict=True):
                self._sequences.saw(place, part.header)
        return decision

    def _pass(
        self, member: CoalescedClient, first: memoryview, why: WhyAlone
    ) -> Answer[Connection] | Decision | Wait | None:
        """Send over the client's own connection, after its taken requests."""
        if member.unanswered:
            return Wait(member.settled)
        if self._may_be_retry(member) and self._has_left_some(member):
            return Wait(partial(self._while, partial(self._has_left_some, member)))
        assert _plain_produce is not None
        decision = _plain_produce(member.connection, first)
        if decision is not Decision.MORE:
            self.tally.alone[why] += 1
            member.alone = read_request_prefix(first)[3]
            if member.connection.tap is not None:
                member.connection.tap.note(read_request_prefix(first)[3], raw(str(why)))
        if decision is Decision.SILENT and member.never_joined_because is None:
            member.never_joined_because = WhyAlone.SILENT  # no answer shows when the broker has handled it
            self._set_patience(member)
        return decision

    def _take(
        self, member: CoalescedClient, found: Joinable, places: list[PartitionRef], correlation_id: int
    ) -> Decision | Wait:
        connection, unanswered = member.connection, member.unanswered
        which = connection.bound_port, connection.identity, found.key
        lane = self._lanes.get(which)
        size = sum(len(part.content) + _HELD_FOR_A_BATCH for part in found.parts)
        if self._is_full(member, lane, size):
            return Wait(partial(self._while, partial(self._is_full, member, lane, size)))
        if member.is_full:
            return Wait(member.until_room)
        if not unanswered and not connection.responses.quiet:
            return Wait(connection.requests.until_quiet)
        if unanswered and (lane is None or member.lane is not lane):  # lanes overtake each other
            return Wait(member.settled)
        if lane is None:
            lane = self._new_lane(LaneId(*which))
        elif self._gains_by_sets(lane, found):
            return Wait(partial(self.sets.ask, connection))
        member.behind = None
        member.lane = lane
        taken, arrived = member.take(found, correlation_id), trio.current_time() - waited()
        self.tally.taken += 1
        for part, place in zip(found.parts, places, strict=True):
            self._sequences.saw(place, part.header)
            size = len(part.content)
            self.held_bytes += size + _HELD_FOR_A_BATCH
            member.held_bytes += size + _HELD_FOR_A_BATCH
            batch = Batch(part.target, size, arrived, taken, part, part.lone)
            self._held.setdefault(_key(member, part.target), {})[id(batch)] = arrived
            lane.add(batch)
        return Decision.TAKEN

    def _gains_by_sets(self, lane: Lane, found: Joinable) -> bool:
        if self.settings.set_batches == 1:
            return False
        for part in found.parts:
            if not part.lone and lane.policy.holds(part.target):
                return self.sets.worth_asking(lane.bound_port)
        return False

    def _new_lane(self, which: LaneId) -> Lane:
        client_id = _ANY_CLIENT_ID if self.settings.ignore_client_ids else which.key.client_id
        lane = self._lanes[which] = Lane(self, which, self._limits, client_id)
        return lane

    # -- waiting ---------------------------------------------------------------------------------------------------

    def _holds(self, member: CoalescedClient, targets: Iterable[PartitionRef], before: float) -> bool:
        """Whether batches are unanswered that arrived at `before` or earlier. Many wait for this, at every answer."""
        held = (self._held.get(_key(member, target), {}) for target in targets)
        return any(next(iter(arrived.values()), math.inf) <= before for arrived in held)

    def _is_full(self, member: CoalescedClient, lane: Lane | None, size: int) -> bool:
        """Whether a request of this size must wait. Beyond one request, a client, and a lane that its broker throttles
        for minutes, leave at least as much free as they keep: any number of them must not stop the others. Any other
        lane keeps as much unsent as is free.
        """
        free = self.settings.queue_bytes - self.held_bytes
        if member.held_bytes and member.held_bytes + size > free - size:
            return True
        if free <= 0 or lane is None:
            return free <= 0
        policy = lane.policy
        unsent = policy.waiting_bytes + policy.waiting_batches * _HELD_FOR_A_BATCH
        if lane.is_throttled and (unsent or policy.in_flight or policy.is_paused(trio.current_time())):
            return unsent + size > free - size
        return unsent >= max(free, policy.limits.request_bytes)

    async def _while(self, obstacle: Callable[[], bool]) -> None:
        while obstacle():
            if self._waiting is None:
                self._waiting = trio.Event()
            await self._waiting.wait()

    # -- called by lanes -------------------------------------------------------------------------------------------

    def sent(self, joined: Joined) -> None:
        self.tally.requests += 1
        self.tally.batches += joined.batches
        self.tally.request_bytes += joined.size

    def released(self, batches: Iterable[Batch]) -> None:
        """Taken batches are answered or withdrawn."""
        for batch in batches:
            key = _key(batch.owner.member, cast("PartitionRef", batch.target))
            arrived = self._held.get(key, {})
            if arrived.pop(id(batch), None) is None:  # it was released before its lane broke
                continue
            self.held_bytes -= batch.size + _HELD_FOR_A_BATCH
            batch.owner.member.held_bytes -= batch.size + _HELD_FOR_A_BATCH
            if not arrived:
                del self._held[key]
        self._look_again()

    def _look_again(self) -> None:
        if self._waiting is not None:
            self._waiting.set()
            self._waiting = None

    def refused(self, taken: TakenRequest, target: PartitionRef, error_code: int, frame: bytes | None) -> Buffer:
        """Note an error for a client. Returns the broker addresses of the answer `frame`, rewritten for this client."""
        self.tally.errors += 1
        member = taken.member
        member.alone_until = trio.current_time() + _SETTLE_SECONDS
        if taken.silent:  # as a broker does, so that the client refreshes metadata
            why = f"{error_name(error_code)} for {target.topic!r}-{target.partition}, and acks=0"
            member.connection.abort(CloseCause.UPSTREAM_CLOSED, why)
        return b"" if frame is None or member.ended else self._endpoints(member.connection, taken.version, frame)

    @staticmethod
    def _endpoints(connection: Connection, version: int, frame: bytes) -> Buffer:
        try:
            edited = rewrite_endpoints(ApiKey.PRODUCE, version, frame, connection.lookup)
        except (NoPort, RemoteProtocolError):  # the listener logs it; the client refreshes metadata
            return b""
        whole = edited if isinstance(edited, (bytes, bytearray, memoryview)) else b"".join(edited)
        place = read_produce_response(whole, version).node_endpoints
        return b"" if place is None else bytes(whole[slice(*place)])

    def lane_ended(self, lane: Lane) -> None:
        if self._lanes.get(lane.which) is lane:
            del self._lanes[lane.which]

    def broken(self, lane: Lane, batches: Sequence[Batch], why: str) -> None:
        """A lane has failed unexpectedly, with these batches: close their clients, so that none waits for it."""
        self.lane_ended(lane)
        self.released(batches)
        for member in {batch.owner.member for batch in batches}:
            member.connection.abort(CloseCause.INTERNAL, why)


def _key(member: CoalescedClient, target: PartitionRef) -> tuple[BoundPort, str, PartitionRef]:
    """What may be a retry of what: the client may have another address now."""
    return member.connection.bound_port, member.client[1], target


def _notice(member: CoalescedClient) -> None:
    if member.unanswered and not member.has_left and member.connection.client_has_left():
        member.leaves()


def _discard(members: dict[tuple[str, str], set[CoalescedClient]], member: CoalescedClient) -> None:
    found = members.get(member.client)
    if found is not None:
        found.discard(member)
        if not found:
            del members[member.client]


def _correlation_id(entry: InFlight) -> int:
    return entry if isinstance(entry, int) else entry[0]


def _by_name(connection: Connection, target: PartitionRef) -> PartitionRef:
    """The partition by its topic's name, or by its id if that is unknown."""
    if isinstance(target.topic, str):
        return target
    name = connection.cluster.topic_name(target.topic)
    return target if name is None else PartitionRef(name, target.partition)


def _names_in_lanes(connection: Connection, target: PartitionRef, place: PartitionRef) -> set[PartitionRef]:
    """The partition's keys in lanes: a lane has requests of one version, by name or by id."""
    known = connection.cluster.topic_id(place.topic) if isinstance(place.topic, str) else None
    return {target, place, target._replace(topic=known or target.topic)}
