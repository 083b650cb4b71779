"""One client connection and its own connection to a broker.

    run ── wait for first bytes ── connect ──┬── request pump  (client -> broker)
                                             └── response pump (broker -> client)

Every request has one answer, in order, and every client has its own broker connection: so the broker's state per
connection (SASL, quotas, fetch sessions, transactions) belongs to one client. `state` has the life cycle of a
connection. How it ends, by the first cause:

    client closes          the broker gets a FIN; its remaining answers pass for `close_seconds`
    client resets          the broker gets a reset, which drops requests that it has not started; not while it has
                           requests of Shoal's own
    broker closes          its remaining bytes are sent to the client, then the client's socket is closed
    drain                  no further request is read; the connection ends when every request is answered
    protocol error         both sockets are closed at once

A route's handler may be in the middle of an exchange with the broker when one side closes. If the broker closes, the
handler gets `UpstreamLost`. If the client closes, the handler finishes within `linger_seconds` (so that Shoal knows
what was appended), and its answer is dropped.
"""

from __future__ import annotations

import logging
import math
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import trio

from shoal.protocol.schema.headers import read_size
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.framing import FIRST_BYTES, check_frame_size
from shoal.proxy.cluster.ports import NoPort
from shoal.proxy.config.settings import Address, Mode
from shoal.proxy.connection.broker_requests import BrokerRequests
from shoal.proxy.connection.client_session import ClientSession, LoginAtBroker, NotAllowed, credentials_of
from shoal.proxy.connection.clients import FirstUses
from shoal.proxy.connection.meter import Meter
from shoal.proxy.connection.pending import OwnRequest, PendingAnswer
from shoal.proxy.connection.pumps.request_pump import RequestPump
from shoal.proxy.connection.pumps.response_pump import ResponsePump
from shoal.proxy.connection.state import Event, State, after
from shoal.proxy.connection.timeouts import Progress, Timeouts
from shoal.proxy.events.logs import event, more_of_this_kind
from shoal.proxy.net.transport import (
    VIEW,
    PeerLost,
    SendSide,
    make_reset,
    peer_has_left,
    round_trip,
    says_something,
    until_readable,
)
from shoal.proxy.net.upstream import UpstreamFault, UpstreamLost, UpstreamRefused, UpstreamUnreachable
from shoal.proxy.statistics import ANSWERED, GENTLE, LOUD, PATIENT, CloseCause, Traffic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from shoal.proxy.cluster.bound_port import BoundPort
    from shoal.proxy.connection.client_session import Guest
    from shoal.proxy.connection.listener_api import ListenerApi
    from shoal.proxy.connection.pace import Pace
    from shoal.proxy.connection.pending import Backlog, InFlight
    from shoal.proxy.connection.pumps.pump import Pump
    from shoal.proxy.connection.routes import RouteTable
    from shoal.proxy.net.client import Client
    from shoal.proxy.net.transport import Buffer
    from shoal.proxy.net.upstream import BrokerConnection

__all__ = ["COMPLAINT_SECONDS", "Connection"]

log = logging.getLogger("shoal.connection")

_FAULTS = RemoteProtocolError, PeerLost, UpstreamLost, UpstreamFault, NoPort  # of a pump

_LOST_ITS_BROKER = CloseCause.UPSTREAM_CLOSED, CloseCause.UPSTREAM_LOST  # it may wait for answers to taken requests

COMPLAINT_SECONDS = 10.0  # the same complaint of a listener is logged at most this often


class Connection:
    """`number` is unique in this process, starts at 1, and is recorded in captures. `context` is for the path.

    `identity`: who Shoal is at the broker for this client. A reload may change what credentials of a name are, but not
    those of an open connection.
    """

    __slots__ = (
        "__weakref__",
        "_broker_transport",
        "_client",
        "_first_routes",
        "_request_scope",
        "_tasks",
        "_was_reset",
        "backlog",
        "bound_port",
        "broker",
        "cause",
        "client",
        "client_id",
        "client_out",
        "cluster",
        "connected",
        "context",
        "detail",
        "first_uses",
        "guest",
        "handling",
        "identity",
        "in_flight",
        "limits",
        "listener",
        "login_at_broker",
        "meter",
        "node_id",
        "number",
        "pace",
        "peer",
        "provisional",
        "requests",
        "responses",
        "routes",
        "scope",
        "session",
        "state",
        "tap",
        "throttle",
        "timeouts",
        "upstream",
        "upstream_out",
    )

    def __init__(
        self, client: Client, bound_port: BoundPort, listener: ListenerApi[Connection], number: int, guest: Guest
    ) -> None:
        self.client = client
        self.number = number
        self.guest = guest
        self.login_at_broker = LoginAtBroker(
            guest, listener.cluster, listener.limits, follows=listener.login is None, done=self._let_large_frames_pass
        )
        self.bound_port = bound_port
        self.node_id = bound_port.node_id
        self.listener = listener
        self.cluster = listener.cluster
        self.limits = listener.limits
        self.throttle = listener.throttle
        self.routes = listener.routes if listener.login is None else listener.login.routes
        self._first_routes = listener.first_routes  # None: the client id is allowed
        self.peer = client.peer
        self._client = client.transport
        self.session: ClientSession | None = None  # None: the client has yet to log in at Shoal
        self.client_id: str | None = None
        self.first_uses = FirstUses()
        self.pace: Pace | None = listener.pacing.pace()
        self.context: object = None
        self.backlog: Backlog | None = None  # requests that the path takes and answers itself
        self.in_flight: list[InFlight] = []  # few: an empty deque would take 760 bytes
        self.meter = None if listener.apis is None else Meter(listener.apis)
        self.state = State.SILENT
        self.handling = False  # a route's handler runs
        self.connected = False  # the two pumps exist
        self.provisional = False  # connected to a bootstrap broker: the right one is not known yet
        self._was_reset = False  # by the client, without a FIN
        self.cause: CloseCause | None = None
        self.detail = ""
        self.timeouts = Timeouts(trio.current_time())
        self.scope = trio.CancelScope()
        self._request_scope = trio.CancelScope()

    def __repr__(self) -> str:
        return f"<Connection {self.peer} ({self.client_id}) -> {self.bound_port}>"

    # -- life ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        try:
            with self.scope:
                await self._connect()
            if self.connected:
                await self._forward()
            if self.cause in GENTLE:
                await self._close_gently()
        except Exception as error:  # an error in one connection must not end the others
            self._log_unexpected(error)
            self.note(CloseCause.INTERNAL, repr(error))
        finally:
            self._close()

    async def _connect(self) -> None:
        """Until `connected`; or the cause is noted why not."""
        if not await says_something(self._client):  # a port scan or a health check does not reach the broker
            return self.note(CloseCause.CLIENT_CLOSED)
        try:
            self._check_first_bytes()
        except RemoteProtocolError as error:
            return self.note(CloseCause.CLIENT_PROTOCOL, str(error))
        self._report(Event.FIRST_BYTES)
        try:
            session = await self._log_in()
            if session is None:
                return None
            self.logged_in(session)
            self.identity = self.cluster.upstream_with(session.credentials)
            upstream, self.provisional = await self.bound_port.connect(self.identity)
        except UpstreamRefused as error:
            return self.note(CloseCause.UPSTREAM_LOGIN, str(error))
        except UpstreamUnreachable as error:
            return self.note(CloseCause.UPSTREAM_UNREACHABLE, str(error))
        self._connected(upstream)
        return None

    async def _forward(self) -> None:
        async with trio.open_nursery() as self._tasks:
            self._replace_scope(self._tasks.cancel_scope)
            self._tasks.start_soon(self._run_responses, name="the answers of a connection")
            await self._run_requests()

    def _replace_scope(self, scope: trio.CancelScope) -> None:
        """The nursery's own serves from now on: a scope takes half a kilobyte of an idle connection."""
        scope.deadline = self.scope.deadline
        if self.scope.cancel_called:
            scope.cancel()
        self.scope = scope

    def _check_first_bytes(self) -> None:
        """Noise does not reach the broker. Behind TLS there is none. Raises RemoteProtocolError."""
        if not isinstance(self._client, socket.socket):
            return
        with suppress(OSError):  # the client has left: reading finds it
            head = self._client.recv(FIRST_BYTES, socket.MSG_PEEK)
            if len(head) == FIRST_BYTES:
                check_frame_size(read_size(head)[0], head, self.limits.frame_bytes)

    async def _log_in(self) -> ClientSession | None:
        """None: the client is not let in, and the cause is noted. Raises UpstreamUnreachable."""
        if self.listener.login is None:
            principal = self.client.principal
            try:
                credentials = credentials_of(principal, self.listener.settings)
            except NotAllowed as error:
                self.note(error.cause, str(error))
                return None
            return ClientSession(principal=principal, credentials=credentials)
        try:
            return await self.listener.login.log_in(self, self._client)
        except RemoteProtocolError as error:
            self.note(CloseCause.CLIENT_PROTOCOL, str(error))
        except PeerLost as error:
            self.note(CloseCause.CLIENT_LOST, str(error))
        return None

    def logged_in(self, session: ClientSession) -> None:
        """The client has logged in, perhaps again, with the same principal as before."""
        self.session = session
        if self.listener.login is not None:
            self.guest.logged_in()
        if self.connected:
            self._use_routes()

    def first_use(self, first: Buffer) -> None:
        """The first request of an API and version."""
        if self._first_routes is None:
            self.listener.clients.first_use(self, self.listener.name, first)

    @property
    def knows_client_id(self) -> bool:
        """None may be one: that of a client whose requests have none."""
        return self.client_id is not None or (self.connected and self.requests.requests > 0)

    def use_first_routes(self, routes: RouteTable[Connection] | None) -> None:
        """The listener has other first routes. A connection that has sent a request is past them."""
        if self.connected and self.requests.requests:
            return
        self._first_routes = routes
        is_over = self.session is not None and trio.current_time() >= self.session.ends_at
        if self.connected and self.cause is None and not is_over:
            self._use_routes()

    def client_id_allowed(self) -> None:
        """It passes the listener's first routes."""
        self._first_routes = None
        self._use_routes()

    def _use_routes(self) -> None:
        self.requests.use(self.routes if self._first_routes is None else self._first_routes)

    def _let_large_frames_pass(self) -> None:
        if self.connected:
            self.requests.allow_large_frames()

    @property
    def shown_client_id(self) -> str:
        return "no client id" if self.client_id is None else f"client id {self.client_id}"

    @property
    def principal(self) -> str | None:
        return None if self.session is None else self.session.principal

    def _connected(self, upstream: BrokerConnection) -> None:
        self.upstream = upstream
        transport, name, node = upstream.transport, self.listener.name, self.node_id
        self.tap, self._broker_transport = self.cluster.watched(transport, name, node, self.number)
        self.client_out, self.upstream_out = SendSide(self._client), SendSide(self._broker_transport)
        self.requests = RequestPump(self, self._client, self.upstream_out)
        self.responses = ResponsePump(self, self._broker_transport, self.client_out)
        self.requests.meter = self.responses.meter = self.meter
        self.broker = BrokerRequests[Connection](
            self.requests, self.responses, self.upstream_out, self.in_flight, self.tap
        )
        if upstream.session is not None:
            self.broker.has_logged_in(upstream.session, self._cannot_log_in_again)
        self._use_routes()
        self.connected = True
        self._report(Event.CONNECTED)
        self.listener.path.opened(self)

    async def _run_requests(self) -> None:
        with self._request_scope:
            try:
                await self.requests.run()
            except _FAULTS as error:
                self._note_fault(error, CloseCause.CLIENT_PROTOCOL)
            else:
                self._note_end(self.requests, CloseCause.CLIENT_CLOSED)
        if self.backlog is not None and self.cause in PATIENT:
            if self.cause is CloseCause.CLIENT_CLOSED:
                self.backlog.leaves()
            await self._settle(self.backlog)
        self._report(Event.REQUESTS_ENDED)
        self.responses.no_more_requests()
        if self.state is State.CLOSING or self.responses.quiet:
            self.abort(CloseCause.DRAINED)
        elif self.cause in _LOST_ITS_BROKER:  # what it has sent before is still to be read
            self._end_within(self.limits.close_seconds)
        elif self.cause is CloseCause.CLIENT_CLOSED:
            self._end_within(self.limits.close_seconds)
            with suppress(OSError):
                self._broker_transport.shutdown(socket.SHUT_WR)
        elif self.cause not in ANSWERED:
            self.scope.cancel()

    async def _settle(self, backlog: Backlog) -> None:
        """A client that has closed its sending side may still read. A drain has its own deadline; where the broker has
        closed this connection, the answers come over others, within a time of their own.
        """
        is_left = self.cause is CloseCause.CLIENT_CLOSED
        with trio.move_on_after(self.limits.close_seconds if is_left else math.inf):
            await backlog.settled()

    async def _run_responses(self) -> None:
        try:
            try:
                await self.responses.run()
            except _FAULTS as error:
                self._note_fault(error, CloseCause.UPSTREAM_PROTOCOL)
            else:
                self._note_end(self.responses, CloseCause.UPSTREAM_CLOSED)
            self.requests.no_more_answers()  # before a handler's exchange gets the last ones: it must post no more
        finally:
            self._report(Event.ANSWERS_ENDED)
            self.responses.fail_asked()
        if self.handling:
            self._end_within(self.limits.linger_seconds)
        else:
            self._request_scope.cancel()

    def _note_fault(self, error: Exception, protocol: CloseCause) -> None:
        """A pump has ended with an error; `protocol`: what a protocol error of its source is."""
        match error:
            case RemoteProtocolError():
                cause = protocol
            case PeerLost(side=side) if side is self._client:
                self._was_reset |= error.is_reset and not self.requests.ended
                cause = CloseCause.CLIENT_LOST
            case PeerLost():
                cause = CloseCause.UPSTREAM_PROTOCOL if error.is_refusal else CloseCause.UPSTREAM_LOST
            case UpstreamLost():
                cause = CloseCause.UPSTREAM_LOST
            case UpstreamFault():
                cause = CloseCause.UPSTREAM_PROTOCOL
            case _:
                cause = CloseCause.NO_PORT
        self.note(cause, str(error))

    def _note_end(self, pump: Pump, ended: CloseCause) -> None:
        """The pump has ended without an error."""
        if self.client_out.discarding:
            return self.note(CloseCause.CLIENT_LOST)
        if self.state is not State.OPEN and not self.in_flight:
            return self.note(CloseCause.DRAINED)
        if self.state is State.OPEN or pump is self.responses:
            self.note(ended)
        return None

    def note(self, cause: CloseCause, detail: str = "") -> None:
        """Note why this connection ends. The first cause counts."""
        if self.cause is None:
            self.cause, self.detail = cause, detail

    def abort(self, cause: CloseCause, detail: str = "") -> None:
        """End at once."""
        self._report(Event.ABORT)
        self.note(cause, detail)
        self.scope.cancel()

    def drain_within(self, seconds: float) -> None:
        """`drain`, and end after this time whatever is left."""
        self.drain()
        self._end_within(seconds)

    def drain(self) -> None:
        """Read no further request; end when all requests that were read are answered."""
        if self.state.precedes_open:
            return self.abort(CloseCause.DRAINED)
        self._report(Event.DRAIN)
        if self.state is State.DRAINING:
            self.requests.stop()
            if (self.requests.waiting or self.requests.is_paced) and not self.requests.mid_frame:
                self._request_scope.cancel()

    def end_session(self, cause: CloseCause) -> None:
        """Let the client have the answers that are due, and end."""
        if self.cause is not None:
            return
        self.note(cause)
        if self.connected:
            assert self.listener.login is not None
            self.requests.use(self.listener.login.expired)
        self.drain_within(self.limits.drain_seconds)

    def _report(self, event: Event) -> None:
        self.state = after(self.state, event)

    def _end_within(self, seconds: float) -> None:
        self.scope.deadline = min(self.scope.deadline, trio.current_time() + seconds)

    async def _close_gently(self) -> None:
        """FIN, then read until the client's FIN: closing with unread bytes would be a reset."""
        with trio.move_on_after(self.limits.close_seconds), suppress(OSError):
            self._client.shutdown(socket.SHUT_WR)
            while True:
                await until_readable(self._client)
                with suppress(BlockingIOError):
                    if not self._client.recv_into(VIEW):
                        return

    @property
    def _nothing_of_ours(self) -> bool:
        """True if every request that the broker has was passed unchanged from the client."""
        taken = self.backlog is not None and self.backlog.unanswered
        asked = any(
            isinstance(entry, PendingAnswer) and isinstance(entry.answer, OwnRequest) for entry in self.in_flight
        )
        return self.listener.settings.mode is Mode.PLAIN and not (taken or asked or self.handling)

    def _close(self) -> None:
        self._report(Event.SOCKETS_CLOSED)
        if self.connected:
            self.requests.close()
            self.responses.close()
            if self._was_reset and self._nothing_of_ours:
                make_reset(self.upstream.transport)
            self._broker_transport.close()
        self._client.close()
        if self.connected:
            self.listener.path.closed(self)
        self.note(CloseCause.SHUTDOWN)
        self.listener.clients.ended(self)
        self.cluster.proofs.ended(self)
        assert self.cause is not None
        subject = f"{self.bound_port} {self.cause} {self.detail}"
        kind = self.bound_port, self.cause
        is_loud = self.cause in LOUD and self.throttle.is_news(subject, COMPLAINT_SECONDS, kind)
        level = logging.WARNING if is_loud else logging.DEBUG
        if log.isEnabledFor(level):
            self._log_end(level, self.throttle.left_out(kind) if is_loud else 0)
        self.listener.ended(self, self.cause)

    def _log_end(self, level: int, left_out: int) -> None:
        assert self.cause is not None
        principal = f", principal {self.principal}" if self.principal is not None else ""
        detail = f": {self.detail}" if self.detail else ""
        values = event(
            f"listener {self.listener.name!r}: connection of {self.peer} ({self.shown_client_id}{principal}) to "
            f"{self.bound_port} ended: {self.cause}{detail}{more_of_this_kind(left_out)}",
            listener=self.listener.name,
            peer=str(self.peer),
            client_id=self.client_id,
            principal=self.principal,
            cluster=self.cluster.name,
            node_id=self.bound_port.node_id,
            cause=self.cause.name.lower(),
            detail=self.detail or None,
            left_out=left_out or None,
        )
        log.log(level, "connection-ended", extra=values)

    def _log_unexpected(self, error: Exception) -> None:
        if self.throttle.is_new_error(error, COMPLAINT_SECONDS):
            values = event(f"{self!r}: unexpected error", listener=self.listener.name, client_id=self.client_id)
            log.exception("connection-unexpected-error", extra=values)

    # -- for the routes --------------------------------------------------------------------------------------------

    @contextmanager
    def handling_request(self) -> Iterator[None]:
        self.handling = True
        self.client_out.tolerate_loss(True)
        try:
            yield
        finally:
            self.handling = False
            self.client_out.tolerate_loss(False)

    def lookup(self, node_id: int, host: str, port: int) -> tuple[str, int]:
        """The address at which the client reaches a broker; its port is bound when this returns. Raises NoPort."""
        return self.listener.advertise(Address(host, port), node_id, self.client.local_host)

    def spawn(self, task: Callable[[bytes], Awaitable[None]], argument: bytes) -> None:
        """Run a task that ends with this connection at the latest."""
        self._tasks.start_soon(task, argument)

    @property
    def broker_round_trip(self) -> float:
        """Seconds, of the network; inf: not known."""
        return round_trip(self.upstream.transport)

    @property
    def is_between_requests(self) -> bool:
        """The client has no request in progress, and the broker owes no answer."""
        requests = self.requests
        return self.responses.quiet and requests.waiting and not requests.mid_frame

    def keep_alive(self, frame: bytes) -> None:
        """Where `is_between_requests`: send a request without regard to its answer. If a login is due, that is sent
        instead.
        """
        if self.broker.renewal is not None and self.broker.login_is_due:
            return self._tasks.start_soon(self.broker.renewal.while_idle)
        try:
            self.broker.post_now(frame)
        except UpstreamLost as error:
            self.abort(CloseCause.UPSTREAM_LOST, str(error))

    async def log_in_again(self) -> None:
        """From the request pump, before it reads the client's next request. Raises UpstreamLost."""
        assert self.broker.renewal is not None
        await self.requests.until_quiet()
        with self.handling_request():
            await self.broker.renewal.renew()

    def _cannot_log_in_again(self, why: str) -> None:
        self.note(CloseCause.UPSTREAM_LOGIN, f"the session has ended, and Shoal cannot log in again: {why}")
        with suppress(OSError):
            self._broker_transport.shutdown(socket.SHUT_RDWR)  # ends both pumps, as the broker does

    async def reply(self, buffers: Sequence[Buffer]) -> None:
        """From a handler: answer the client instead of the broker, after the answers to all earlier requests."""
        if self.meter is not None:
            self.meter.replied(sum(map(len, buffers)))
        if self.responses.quiet:
            await self.client_out.send_all(buffers)
        else:
            self.responses.reply_in_turn(buffers)

    # -- timeouts and statistics -----------------------------------------------------------------------------------

    def check_progress(self, now: float) -> None:
        """Once a second: end if nothing moves, or if the client would reach the right broker by reconnecting."""
        if self.connected:
            self.responses.await_bytes(1)  # if fewer come than are awaited, they wait for a second at most
        found = self.timeouts.check(self._progress(), self.limits, now)
        if found is None:
            found = self.login_at_broker.check(self.responses.opaque if self.connected else 0, now)
        if found is not None:
            self.abort(*found)
        elif self.provisional and not self.bound_port.leads_nowhere:
            self.drain()  # the client reconnects
        elif self.cause in _LOST_ITS_BROKER and self.client_has_left():
            if self.backlog is not None:
                self.backlog.leaves()
            self._end_within(self.limits.close_seconds)
        elif self.connected and self.session is not None and now >= self.session.ends_at:
            assert self.listener.login is not None  # other sessions do not end
            self.requests.use(self.listener.login.expired)

    def _progress(self) -> Progress:
        if not self.connected:
            return Progress()
        requests, responses = self.requests, self.responses
        to_broker, to_client = self.upstream_out, self.client_out
        return Progress(
            received=requests.received,
            answered=responses.received,
            to_broker=to_broker.sent,
            to_client=to_client.sent,
            request_begun=requests.mid_frame and not (to_broker.blocked or requests.is_paced),
            answer_begun=responses.mid_frame and not to_client.blocked,
            broker_blocks=to_broker.blocked,
            client_blocks=to_client.blocked,
            abandoned=(self.handling or requests.holds_back) and self.client_has_left(),
            nothing_due=not self.unanswered and requests.waiting,
        )

    def require_client(self) -> None:
        """Raises PeerLost if it has left, or closed its sending side, which looks the same."""
        if self.client_has_left():
            raise PeerLost(self._client, ConnectionResetError("it has left before its request was handled"))

    def client_has_left(self) -> bool:
        return self.client_out.discarding or peer_has_left(self._client)

    @property
    def unanswered(self) -> int:
        """The client's unanswered requests; a handler's own requests for one of them do not count again."""
        taken = self.backlog.unanswered if self.backlog is not None else 0
        return max(len(self.in_flight), self.handling) + taken

    def traffic(self) -> Traffic:
        if not self.connected:
            return Traffic()
        requests, responses = self.requests, self.responses
        return Traffic(
            requests=requests.requests,
            answers=responses.opaque + responses.edited + responses.held,
            opaque=responses.opaque,
            edited=responses.edited,
            held=responses.held,
            asked=self.broker.asked,
            from_client=requests.received,
            to_upstream=self.upstream_out.sent,
            from_upstream=responses.received,
            to_client=self.client_out.sent,
        )
