"""One client connection and its own connection to a broker.

    run ── wait for first bytes ── connect ──┬── request pump  (client -> broker)
                                             └── response pump (broker -> client)

Requests and answers stay one to one and in order, so what belongs to a connection at the broker (SASL, quotas, fetch sessions,
transactions) belongs to this one client. How it ends, by who goes first:

    client closes          the broker is told (FIN); what it still answers is passed on for `close_seconds`
    client resets          so is the broker reset, where nothing of Shoal's own is under way: what it has not begun is discarded
    broker closes          what it has said is passed on, then the client's socket is closed
    drain                  no further request is read; ends when every request that was read has been answered
    either breaks rules    both sockets are closed at once

A route's handler may be in the middle of an exchange with the broker when one side goes. It learns of a lost broker by
`UpstreamLost`, and does not learn of a lost client: it finishes what it does (so that what was appended is known), for at most
`linger_seconds`, and its answer is dropped.
"""

from __future__ import annotations

import logging
import math
import socket
from collections import deque
from contextlib import contextmanager, suppress
from struct import Struct
from typing import TYPE_CHECKING

import trio
from trio.lowlevel import wait_readable

from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.capture.annotations import OWN
from shoal.proxy.cluster.ports import NoPort
from shoal.proxy.config.settings import Address, Mode
from shoal.proxy.connection.in_flight import OwnAnswer, OwnRequest, PendingAnswer
from shoal.proxy.connection.request_pump import RequestPump
from shoal.proxy.connection.response_pump import ResponsePump
from shoal.proxy.connection.routes import Decision
from shoal.proxy.connection.watchdog import Timeouts
from shoal.proxy.errors import UpstreamFault, UpstreamLost
from shoal.proxy.net.connect import UpstreamUnreachable
from shoal.proxy.net.transport import VIEW, PeerLost, SendSide, has_nothing_to_say, make_reset, peer_has_left
from shoal.proxy.statistics import GENTLE, LOUD, PATIENT, CloseCause, Traffic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from shoal.protocol.capture.index.pending import RequestAnnotation
    from shoal.proxy.cluster.bound_port import BoundPort
    from shoal.proxy.cluster.cluster import Cluster
    from shoal.proxy.connection.in_flight import Answer, Backlog, Gate
    from shoal.proxy.connection.pump import Pump
    from shoal.proxy.listeners import Listener
    from shoal.proxy.net.transport import Buffer

__all__ = ["Connection"]

log = logging.getLogger("shoal.connection")

_REQUEST_IDS = Struct(">hhi")  # api key, api version, correlation id
_REQUEST_IDS_AT = 4


class Connection:
    """`number`: in this process, from 1; captures have it. `context` is for the routes of a wrapping or unwrapping listener: what they
    know of this connection."""

    def __init__(self, client: socket.socket, door: BoundPort, number: int) -> None:
        self.client = client
        self.number = number
        self.door = door
        self.listener: Listener = door.listener
        self.cluster: Cluster = door.listener.cluster
        self.limits = door.listener.limits
        self.routes = door.listener.path.routes
        self.peer = Address(*client.getpeername()[:2])
        self.local_host: str = client.getsockname()[0]
        self.client_id: str | None = None
        self.context: object = None
        self.backlog: Backlog | None = None  # what the listener's path takes and answers itself
        self.in_flight: deque[int | PendingAnswer] = deque()
        self.asked = 0
        self.draining = False
        self.stopping = False  # no further request is read
        self.handling = False  # a route's handler runs
        self.requests_ended = self.upstream_ended = False
        self.connected = False
        self.provisional = False  # leads to any broker, until somebody says where the right one is
        self._was_reset = False  # by the client, which had not closed before
        self.cause: CloseCause | None = None
        self.detail = ""
        self.vigil = Timeouts()
        self.scope = trio.CancelScope()
        self._request_scope = trio.CancelScope()

    def __repr__(self) -> str:
        return f"<Connection {self.peer} ({self.client_id}) -> {self.door}>"

    # -- life ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        try:
            with self.scope:
                await self._serve()
            if self.cause in GENTLE:
                await self._close_gently()
        except Exception as error:  # an error in one connection must not end the others
            log.exception("%r: unexpected error", self)
            self.note(CloseCause.INTERNAL, repr(error))
        finally:
            self._close()

    async def _serve(self) -> None:
        await wait_readable(self.client)  # a port scan or a health check never reaches the broker
        if has_nothing_to_say(self.client):
            return self.note(CloseCause.CLIENT_CLOSED)
        try:
            upstream, self.provisional = await self.door.connect()
        except UpstreamUnreachable as error:
            return self.note(CloseCause.UPSTREAM_UNREACHABLE, str(error))
        self._connected(upstream)
        async with trio.open_nursery() as self._tasks:
            self._tasks.start_soon(self._run_responses)
            self._tasks.start_soon(self._run_requests)

    def _connected(self, upstream: socket.socket) -> None:
        self.upstream = upstream
        self.tap, self._broker = self.cluster.watched(upstream, self.listener.name, self.door.node_id, self.number)
        self.client_out, self.upstream_out = SendSide(self.client), SendSide(self._broker)
        self.requests = RequestPump(self, self.client, self.upstream_out)
        self.responses = ResponsePump(self, self._broker, self.client_out)
        self.connected = True
        self.listener.path.opened(self)

    async def _run_requests(self) -> None:
        with self._request_scope:
            await self._run(self.requests, CloseCause.CLIENT_CLOSED, CloseCause.CLIENT_PROTOCOL)
        if self.backlog is not None and self.cause in PATIENT and not self.upstream_ended:
            await self._settle(self.backlog)
        self.requests_ended = self.responses.attention = True
        if self.upstream_ended or self.responses.quiet:
            self.abort(CloseCause.DRAINED)
        elif self.cause is CloseCause.CLIENT_CLOSED:
            self._end_within(self.limits.close_seconds)
            with suppress(OSError):
                self.upstream.shutdown(socket.SHUT_WR)
        elif self.cause is not None:
            self.scope.cancel()

    async def _settle(self, backlog: Backlog) -> None:
        """A client that has closed may still read; a drain has its own deadline."""
        with trio.move_on_after(math.inf if self.draining else self.limits.close_seconds):
            await backlog.settled()

    async def _run_responses(self) -> None:
        try:
            await self._run(self.responses, CloseCause.UPSTREAM_CLOSED, CloseCause.UPSTREAM_PROTOCOL)
        finally:
            self.upstream_ended = True
            self.responses.fail_asked()
        if self.handling:
            self._end_within(self.limits.linger_seconds)
        self._end_requests()

    async def _run(self, pump: Pump, ended: CloseCause, fault: CloseCause) -> None:
        try:
            await pump.run()
        except RemoteProtocolError as error:
            self.note(fault, str(error))
        except PeerLost as error:
            by_client = error.side is self.client
            self._was_reset |= by_client and error.is_reset and not self.requests.ended
            self.note(CloseCause.CLIENT_LOST if by_client else CloseCause.UPSTREAM_LOST, str(error))
        except UpstreamLost as error:
            self.note(CloseCause.UPSTREAM_LOST, str(error))
        except UpstreamFault as error:
            self.note(CloseCause.UPSTREAM_PROTOCOL, str(error))
        except NoPort as error:
            self.note(CloseCause.NO_PORT, str(error))
        else:
            if self.client_out.discarding:
                self.note(CloseCause.CLIENT_LOST)
            elif self.draining and not self.in_flight:
                self.note(CloseCause.DRAINED)
            elif not self.draining or pump is self.responses:
                self.note(ended)

    def note(self, cause: CloseCause, detail: str = "") -> None:
        """Why this connection ends. The first cause is the one that counts."""
        if self.cause is None:
            self.cause, self.detail = cause, detail

    def abort(self, cause: CloseCause, detail: str = "") -> None:
        """End at once."""
        self.note(cause, detail)
        self.scope.cancel()

    def drain(self) -> None:
        """Read no further request, and end when those that were read have been answered."""
        self.draining = self.stopping = True
        if not self.connected:
            self.abort(CloseCause.DRAINED)
            return
        self.requests.attention = True
        if self.requests.waiting and not self.requests.mid_frame:
            self._request_scope.cancel()

    def _end_requests(self) -> None:
        """The broker has gone: a handler may still come to its end, but nothing more is read."""
        self.stopping = self.requests.attention = True
        self.requests.no_more_answers()
        if not self.handling:
            self._request_scope.cancel()

    def _end_within(self, seconds: float) -> None:
        self.scope.deadline = min(self.scope.deadline, trio.current_time() + seconds)

    async def _close_gently(self) -> None:
        """FIN, then read until the client's FIN: closing with unread bytes would be a reset."""
        with trio.move_on_after(self.limits.close_seconds), suppress(OSError):
            self.client.shutdown(socket.SHUT_WR)
            while True:
                await wait_readable(self.client)
                if not self.client.recv_into(VIEW):
                    return

    @property
    def _nothing_of_ours(self) -> bool:
        """The broker has been sent what the client has sent, and nothing else that it may still have to work on."""
        taken = self.backlog is not None and self.backlog.unanswered
        asked = any(
            isinstance(entry, PendingAnswer) and isinstance(entry.answer, OwnRequest) for entry in self.in_flight
        )
        return self.listener.settings.mode is Mode.PLAIN and not (taken or asked or self.handling)

    def _close(self) -> None:
        if self.connected:
            self.requests.close()
            self.responses.close()
            if self._was_reset and self._nothing_of_ours:
                make_reset(self.upstream)
            self._broker.close()
        self.client.close()
        if self.connected:
            self.listener.path.closed(self)
        self.note(CloseCause.SHUTDOWN)
        self.cluster.proofs.ended(self)
        assert self.cause is not None
        is_loud = self.cause in LOUD and self.listener.is_news(f"{self.door} {self.cause} {self.detail}")
        log.log(
            logging.WARNING if is_loud else logging.DEBUG,
            "listener %r: connection of %s (client id %s) to %s ended: %s%s",
            self.listener.name,
            self.peer,
            self.client_id,
            self.door,
            self.cause,
            f": {self.detail}" if self.detail else "",
        )
        self.listener.ended(self, self.cause)

    # -- for the routes --------------------------------------------------------------------------------------------

    @contextmanager
    def handling_request(self) -> Iterator[None]:
        self.handling = self.client_out.tolerant = True
        try:
            yield
        finally:
            self.handling = self.client_out.tolerant = False

    def lookup(self, node_id: int, host: str, port: int) -> tuple[str, int]:
        """The address under which the client finds a broker; its port is bound when this returns. Raises NoPort."""
        return self.listener.advertise(Address(host, port), node_id, self.local_host)

    def spawn(self, task: Callable[[bytes], Awaitable[None]], argument: bytes) -> None:
        """Run a task that ends with this connection at the latest."""
        self._tasks.start_soon(task, argument)

    async def forward(
        self,
        buffers: Sequence[Buffer],
        answer: Answer | Decision | None = None,
        *,
        note: RequestAnnotation | None = None,
    ) -> None:
        """From a handler: send a request frame to the broker for the client. `Decision.SILENT`: it has no answer."""
        if not isinstance(answer, Decision):
            self._expect(buffers, answer)
        await self._send_upstream(buffers, note)

    async def post(
        self, buffers: Sequence[Buffer], *, note: RequestAnnotation = OWN, gate: Gate | None = None
    ) -> OwnRequest:
        """From a handler: send a request frame of Shoal's own. With a `gate` the connection must be quiet. Raises UpstreamLost."""
        asked = OwnRequest(gate)
        self._expect(buffers, asked)
        self.asked += 1
        if gate is not None:
            self.responses.read_to_gate()
        await self._send_upstream(buffers, note)
        return asked

    async def ask(self, buffers: Sequence[Buffer]) -> bytearray:
        """From a handler: `post`, and wait for the answer frame. All earlier answers have then gone out. Raises UpstreamLost."""
        return await (await self.post(buffers)).frame()

    async def reply(self, buffers: Sequence[Buffer]) -> None:
        """From a handler: answer the client in the broker's place, after the answers to all earlier requests."""
        if self.responses.quiet:
            await self.client_out.send_all(buffers)
        else:
            self.in_flight.append(PendingAnswer(0, -1, 0, OwnAnswer(buffers)))
            self.responses.locals += 1
            self.responses.attention = True

    def _expect(self, buffers: Sequence[Buffer], answer: Answer | None) -> None:
        key, version, correlation_id = _REQUEST_IDS.unpack_from(buffers[0], _REQUEST_IDS_AT)
        self.in_flight.append(correlation_id if answer is None else PendingAnswer(correlation_id, key, version, answer))

    async def _send_upstream(self, buffers: Sequence[Buffer], note: RequestAnnotation | None) -> None:
        if self.upstream_ended:
            raise UpstreamLost("the connection to the broker has ended")
        if self.tap is not None and note is not None:
            self.tap.note(_REQUEST_IDS.unpack_from(buffers[0], _REQUEST_IDS_AT)[2], note)
        try:
            await self.upstream_out.send_all(buffers)
        except PeerLost as error:
            raise UpstreamLost(str(error)) from error

    # -- for the watchdog and whoever counts -----------------------------------------------------------------------

    def client_has_left(self) -> bool:
        return self.client_out.discarding or peer_has_left(self.client)

    @property
    def unanswered(self) -> int:
        """Requests without an answer so far; what a handler asks of the broker for one of them is not counted twice."""
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
            asked=self.asked,
            from_client=requests.received,
            to_upstream=self.upstream_out.sent,
            from_upstream=responses.received,
            to_client=self.client_out.sent,
        )
