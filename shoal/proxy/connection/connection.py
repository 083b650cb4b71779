"""One client connection and its own connection to a broker, as routes, handlers and the listener see it.

Every request has one answer, in order, and every client has its own broker connection: so the broker's state per
connection (SASL, quotas, fetch sessions, transactions) belongs to one client. `life` runs its two pumps, and says how
it ends.
"""

from __future__ import annotations

import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import trio

from shoal.proxy.config.settings import Address
from shoal.proxy.connection.broker_requests import BrokerRequests
from shoal.proxy.connection.client_session import ClientSession, LoginAtBroker
from shoal.proxy.connection.clients import FirstUses
from shoal.proxy.connection.meter import Meter
from shoal.proxy.connection.pumps.request_pump import RequestPump
from shoal.proxy.connection.pumps.response_pump import ResponsePump
from shoal.proxy.connection.state import Event, State, after
from shoal.proxy.connection.timeouts import Progress, Timeouts
from shoal.proxy.net.transport import PeerLost, SendSide, peer_has_left, round_trip
from shoal.proxy.net.upstream import UpstreamLost
from shoal.proxy.statistics import LOST_ITS_BROKER, CloseCause, Traffic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from shoal.proxy.cluster.bound_port import BoundPort
    from shoal.proxy.connection.client_session import Guest
    from shoal.proxy.connection.listener_api import ListenerApi
    from shoal.proxy.connection.pace import Pace
    from shoal.proxy.connection.pending import Backlog, InFlight
    from shoal.proxy.connection.routes import RouteTable
    from shoal.proxy.net.client import Client
    from shoal.proxy.net.transport import Buffer
    from shoal.proxy.net.upstream import BrokerConnection, Upstream

__all__ = ["Connection"]


class Connection:
    """`number` is unique in this process, starts at 1, and is recorded in captures. `context` is for the path.

    `identity`: who Shoal is at the broker for this client. A reload may change what credentials of a name are, but not
    those of an open connection.
    """

    __slots__ = (
        "__weakref__",
        "_first_routes",
        "backlog",
        "bound_port",
        "broker",
        "broker_transport",
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
        "request_scope",
        "requests",
        "responses",
        "routes",
        "scope",
        "session",
        "state",
        "tap",
        "tasks",
        "throttle",
        "timeouts",
        "upstream",
        "upstream_out",
        "was_reset",
    )

    identity: Upstream
    tasks: trio.Nursery  # while `connected`

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
        self.was_reset = False  # by the client, without a FIN
        self.cause: CloseCause | None = None
        self.detail = ""
        self.timeouts = Timeouts(trio.current_time())
        self.scope = trio.CancelScope()
        self.request_scope = trio.CancelScope()

    def __repr__(self) -> str:
        return f"<Connection {self.peer} ({self.client_id}) -> {self.bound_port}>"

    # -- life ------------------------------------------------------------------------------------------------------

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

    def connected_to(self, upstream: BrokerConnection) -> None:
        self.upstream = upstream
        transport, name, node = upstream.transport, self.listener.name, self.node_id
        self.tap, self.broker_transport = self.cluster.watched(transport, name, node, self.number)
        self.client_out, self.upstream_out = SendSide(self.client.transport), SendSide(self.broker_transport)
        self.requests = RequestPump(self, self.client.transport, self.upstream_out)
        self.responses = ResponsePump(self, self.broker_transport, self.client_out)
        self.requests.meter = self.responses.meter = self.meter
        self.broker = BrokerRequests[Connection](
            self.requests, self.responses, self.upstream_out, self.in_flight, self.tap
        )
        if upstream.session is not None:
            self.broker.has_logged_in(upstream.session, self._cannot_log_in_again)
        self._use_routes()
        self.connected = True
        self.report(Event.CONNECTED)
        self.listener.path.opened(self)

    def note(self, cause: CloseCause, detail: str = "") -> None:
        """Note why this connection ends. The first cause counts."""
        if self.cause is None:
            self.cause, self.detail = cause, detail

    def abort(self, cause: CloseCause, detail: str = "") -> None:
        """End at once."""
        self.report(Event.ABORT)
        self.note(cause, detail)
        self.scope.cancel()

    def drain_within(self, seconds: float) -> None:
        """`drain`, and end after this time whatever is left."""
        self.drain()
        self.end_within(seconds)

    def drain(self) -> None:
        """Read no further request; end when all requests that were read are answered."""
        if self.state.precedes_open:
            return self.abort(CloseCause.DRAINED)
        self.report(Event.DRAIN)
        if self.state is State.DRAINING:
            self.requests.stop()
            if (self.requests.waiting or self.requests.is_paced) and not self.requests.mid_frame:
                self.request_scope.cancel()

    def end_session(self, cause: CloseCause) -> None:
        """Let the client have the answers that are due, and end."""
        if self.cause is not None:
            return
        self.note(cause)
        if self.connected:
            assert self.listener.login is not None
            self.requests.use(self.listener.login.expired)
        self.drain_within(self.limits.drain_seconds)

    def report(self, event: Event) -> None:
        self.state = after(self.state, event)

    def end_within(self, seconds: float) -> None:
        self.scope.deadline = min(self.scope.deadline, trio.current_time() + seconds)

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
        self.tasks.start_soon(task, argument)

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
            return self.tasks.start_soon(self.broker.renewal.while_idle)
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
            self.broker_transport.shutdown(socket.SHUT_RDWR)  # ends both pumps, as the broker does

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
        elif self.cause in LOST_ITS_BROKER and self.client_has_left():
            if self.backlog is not None:
                self.backlog.leaves()
            self.end_within(self.limits.close_seconds)
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
            raise PeerLost(self.client.transport, ConnectionResetError("it has left before its request was handled"))

    def client_has_left(self) -> bool:
        return self.client_out.discarding or peer_has_left(self.client.transport)

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
