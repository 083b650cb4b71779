"""Client -> broker. Only the first 12 bytes of most requests are read: size, API key, API version, correlation id."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import trio

from shoal.protocol.schema.headers import (
    REQUEST_PREFIX,
    SIZE_BYTES,
    read_request_api,
    read_request_header,
    read_request_prefix,
    read_size,
)
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.framing import check_frame_size
from shoal.proxy.connection.clients import may_be_read
from shoal.proxy.connection.pending import PendingAnswer, Token, pending_answer
from shoal.proxy.connection.pumps.pump import FrameStop, Pump
from shoal.proxy.connection.routes import Decision, Wait
from shoal.proxy.net.upstream import UpstreamLost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from shoal.proxy.config.settings import Limits
    from shoal.proxy.connection.pace import Pace
    from shoal.proxy.connection.pending import Answer, Backlog, InFlight
    from shoal.proxy.connection.routes import Route, RouteTable
    from shoal.proxy.events.logs import LogThrottle
    from shoal.proxy.net.transport import SendSide, Transport

__all__ = ["RequestPump"]

_SMALLEST = REQUEST_PREFIX - SIZE_BYTES  # request header v0 (ControlledShutdown v0) has no client id

# Limit of the first bytes that a route may ask for: in Produce, acks follow two strings of at most 32 KiB.
_PEEK_LIMIT = 128 * 1024

# Routes that a connection keeps by API and version. Clients use some ten, tools for administration some forty.
_MOST_KNOWN = 64


class Answers(Protocol):
    """The response pump, for this one."""

    @property
    def quiet(self) -> bool: ...
    @property
    def mid_frame(self) -> bool: ...

    def give_way(self) -> None: ...


class Guest(Protocol):
    @property
    def is_stranger(self) -> bool:
        """It has yet to log in."""


class Owner(Protocol):
    """The connection, for this pump."""

    def first_use(self, first: memoryview) -> None:
        """The client uses this API and version for the first time."""

    @property
    def guest(self) -> Guest: ...
    @property
    def pace(self) -> Pace | None: ...
    @property
    def in_flight(self) -> list[InFlight]: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def throttle(self) -> LogThrottle: ...
    @property
    def routes(self) -> RouteTable[Any]: ...
    @property
    def backlog(self) -> Backlog | None: ...
    @property
    def responses(self) -> Answers: ...
    @property
    def client_out(self) -> SendSide: ...

    def handling_request(self) -> AbstractContextManager[None]: ...

    async def log_in_again(self) -> None: ...


C = TypeVar("C", bound=Owner)
_Repeated = tuple[int, bytes, "Answer[Any] | Decision | Wait | None"]
"""The last request of an API and version: `Route.head`, its bytes after the prefix, the decision."""


class RequestPump(Pump, Generic[C]):
    __slots__ = (
        "_connection",
        "_enough",
        "_frame_limit",
        "_in_flight",
        "_known",
        "_limits",
        "_repeated",
        "_room",
        "_routes",
        "_stopping",
        "holds_back",
        "login_due",
        "requests",
        "tokens",
        "without_answers",
    )

    def __init__(self, connection: C, source: Transport, out: SendSide) -> None:
        super().__init__(source, out, connection.throttle)
        self._connection = connection
        self._in_flight = connection.in_flight
        self._routes: RouteTable[C] = connection.routes
        self._known: dict[int, Route[C] | None] = {}  # by `read_request_api`: the versions used so far; None: it passes
        self._repeated: dict[int, _Repeated] = {}  # by the same
        self._limits = connection.limits
        self._frame_limit = connection.limits.frame_bytes
        if connection.guest.is_stranger:
            self._frame_limit = min(self._frame_limit, connection.limits.login_frame_bytes)
        self._room: trio.Event | None = None
        self._enough = 0  # `_room` is set when the queue has at most this many entries
        self._stopping = False  # no further request is read
        self.holds_back = False  # a request waits, and nothing is read
        self._pace = connection.pace
        if self._pace is not None:
            self._receive_into = self._receive_paced
            self._pipe = None
        self.without_answers = False  # the broker is lost
        self.login_due: float | None = None
        self.requests = 0
        self.tokens = 0  # frames still to come that are SASL tokens without a Kafka header

    def _receive_paced(self, view: memoryview) -> int:
        pace = self._pace
        assert pace is not None
        now = trio.current_time()
        size = self.source.recv_into(view[: pace.allowance(now)])
        pace.charge(size, now)
        self.must_yield |= pace.in_debt
        return size

    @property
    def is_paced(self) -> bool:
        """It does not read, because of a limit of bytes per second."""
        return self._pace is not None and self._pace.waiting

    async def run(self) -> None:
        """Runs until the client closes or, after `stop`, until the end of a frame."""
        most = self._limits.in_flight
        while not self.ended and (not self._stopping or self.mid_frame):
            if self._pace is not None and self._pace.in_debt:
                await self._pace.turn()
            elif len(self._in_flight) > most:
                await self._wait_for_room()
            else:
                self.must_yield = self._stopping
                await self.turn()

    def use(self, routes: RouteTable[C]) -> None:
        """From the next request on."""
        self._routes = routes
        self._known, self._repeated = {}, {}

    def log_in_at(self, due: float | None) -> None:
        """Shoal must log in again at that time, before another request; None: never."""
        self.login_due = due

    def stop(self) -> None:
        """Complete the current request, and read no other."""
        self._stopping = True
        self.give_way()

    def answered(self) -> bool:
        """The response pump took entries from the queue; -> whether this pump waits until it takes more."""
        is_enough = len(self._in_flight) <= self._enough
        if self._room is not None and is_enough and (self._enough or not self._connection.responses.mid_frame):
            self._room.set()
            self._room = None
        return self._room is not None

    async def _wait_for_room(self) -> None:
        self._room = room = trio.Event()
        self._enough = max(self._limits.in_flight // 2, 1)  # the last request may not have arrived whole
        if self.answered():
            self._connection.responses.give_way()
        await room.wait()

    async def until_quiet(self) -> None:
        """Wait until no answer is due, and none is on its way to the client. Raises UpstreamLost."""
        responses = self._connection.responses
        while not responses.quiet:
            if self.without_answers:
                raise UpstreamLost("the connection to the broker has ended")
            self._room = room = trio.Event()
            self._enough = 0
            responses.give_way()
            await room.wait()

    def no_more_answers(self) -> None:
        """The broker is lost: stop reading, and end all waits for its answers."""
        self.without_answers = True
        self.stop()
        if self._room is not None:
            self._room.set()
            self._room = None

    def allow_large_frames(self) -> None:
        """The client has logged in."""
        self._frame_limit = self._limits.frame_bytes

    def expect_tokens(self, count: int) -> None:
        """The next frames are SASL tokens without a Kafka header."""
        self.tokens = count

    def scan(self, view: memoryview, pos: int, end: int) -> tuple[int, FrameStop | None]:
        remaining = self.remaining
        if remaining:
            if remaining >= end - pos:
                self.remaining = remaining - (end - pos)
                return end, None
            self.remaining = 0
            pos += remaining
        if self.login_due is not None and end - pos >= REQUEST_PREFIX and trio.current_time() >= self.login_due:
            return pos, self._wait_before_frame(self._connection.log_in_again)
        limit, known, repeated, queue = self._frame_limit, self._known, self._repeated, self._in_flight
        backlog, meter = self._connection.backlog, self.meter
        while end - pos >= REQUEST_PREFIX and not self.tokens:
            size, api, correlation_id = read_request_api(view, pos)
            if not _SMALLEST <= size <= limit:
                self._refuse(size, view[pos:end])
            try:
                route = known[api]
            except KeyError:
                first = view[pos : min(end, pos + SIZE_BYTES + size)]
                if not may_be_read(first):
                    return pos, None
                route = self._first_use(api, first)
            if backlog is not None and (route is None or not route.takes) and backlog.unanswered:
                return pos, self._wait_before_frame(backlog.settled)
            decision = None
            if route is not None:
                last = repeated.get(api)
                if (
                    last is not None
                    and (head_end := pos + last[0]) <= end
                    and last[0] <= SIZE_BYTES + size
                    and view[pos + REQUEST_PREFIX : head_end] == last[1]
                ):
                    decision = last[2]
                else:
                    decision = self._decide(api, route, view[pos : min(end, pos + SIZE_BYTES + size)], size)
            if route is None or decision is None:
                queue.append(correlation_id)
            else:
                if isinstance(decision, Wait):
                    return pos, self._wait_before_frame(decision.until)
                if not isinstance(decision, Decision):
                    queue.append(pending_answer((correlation_id, api >> 16, api & 0xFFFF, decision)))
                elif decision is not Decision.SILENT:
                    return pos, self._stopped(decision, route, size, api >> 16, correlation_id)
            if meter is not None:
                counters = meter.apis[api >> 16]
                counters.requests += 1
                counters.request_bytes += SIZE_BYTES + size
                if decision is None:
                    queue[-1] = correlation_id, counters
                if not counters.requests & counters.mask and decision is not Decision.SILENT:
                    incomplete = pos + SIZE_BYTES + size > end
                    meter.sample(self, counters, correlation_id, is_incomplete=incomplete)
            self.requests += 1
            pos += SIZE_BYTES + size
            if pos > end:
                self.remaining = pos - end
                pos = end
        if len(queue) > self._limits.in_flight:
            self.must_yield = True
        return self._tokens(view, pos, end), None

    def _first_use(self, api: int, first: memoryview) -> Route[C] | None:
        """-> the route of this API and version; None: it passes."""
        _, key, version, _ = read_request_prefix(first)
        route = self._routes.get(key)
        if route is not None and version < route.since:
            route = None
        self._connection.first_use(first)
        if len(self._known) < _MOST_KNOWN:
            self._known[api] = route
        return route

    def _stopped(
        self, decision: Decision, route: Route[C], size: int, key: int, correlation_id: int
    ) -> FrameStop | None:
        if decision is Decision.MORE:
            return None
        stop = self._held(route, size) if decision is Decision.HOLD else FrameStop(SIZE_BYTES + size, (), None)
        self.requests += 1
        if self.meter is not None:
            counters = self.meter.apis[key]
            counters.requests += 1
            counters.request_bytes += SIZE_BYTES + size
            if decision is Decision.TAKEN and not counters.requests & counters.mask:
                self.meter.take(counters, correlation_id)
        return stop

    def _decide(self, api: int, route: Route[C], first: memoryview, size: int) -> Answer[C] | Decision | Wait | None:
        if route.decide is None:
            return Decision.HOLD if route.handle is not None else route.answer
        decision = route.decide(self._connection, first)
        if decision is Decision.MORE and len(first) >= min(_PEEK_LIMIT, size + SIZE_BYTES):
            raise RemoteProtocolError(f"a request's first {len(first)} bytes do not hold what they should")
        if route.head is not None and (head := route.head(first)):
            if len(self._repeated) >= _MOST_KNOWN:
                self._repeated.clear()
            self._repeated[api] = head, bytes(first[REQUEST_PREFIX:head]), decision
        return decision

    def _wait_before_frame(self, until: Callable[[], Awaitable[None]]) -> FrameStop:
        """Wait before a frame, without reading; then it is scanned again."""
        return FrameStop(0, None, partial(self._wait, until))

    async def _wait(self, until: Callable[[], Awaitable[None]], _: bytearray) -> None:
        self.holds_back = True
        try:
            await until()
        finally:
            self.holds_back = False

    def _held(self, route: Route[C], size: int) -> FrameStop:
        if size > self._limits.held_request_bytes:
            raise RemoteProtocolError(
                f"a request of {size} bytes is above limits.held-request-bytes ({self._limits.held_request_bytes}): "
                "raise it, or lower the producer's max.request.size"
            )
        return FrameStop(SIZE_BYTES + size, None, partial(self._handle, route))

    async def _handle(self, route: Route[C], frame: bytearray) -> None:
        connection = self._connection
        assert route.handle is not None
        meter = self.meter
        handled = None if meter is None else meter.handler_begins(frame)
        sent = 0 if meter is None else connection.client_out.sent
        with connection.handling_request():
            await route.handle(connection, frame, read_request_header(frame))
        if meter is not None and handled is not None:
            meter.handler_ends(handled, connection.client_out.sent - sent)

    def _tokens(self, view: memoryview, pos: int, end: int) -> int:
        """Pass SASL tokens; -> end of the last one."""
        while self.tokens and end - pos >= SIZE_BYTES and not self.remaining:
            (size,) = read_size(view, pos)
            if not 0 <= size <= self._frame_limit:
                self._refuse(size, view[pos:end])
            self.tokens -= 1
            self._in_flight.append(PendingAnswer(0, -1, 0, Token(is_last=not self.tokens)))
            pos += SIZE_BYTES + size
            self.remaining = max(pos - end, 0)
        return min(pos, end)

    def _refuse(self, size: int, first: memoryview) -> None:
        check_frame_size(size, first, self._limits.frame_bytes)
        if size > self._frame_limit:
            what = f"a request of {size} bytes before a login (limits.login-frame-bytes = {self._frame_limit})"
            raise RemoteProtocolError(what)
        raise RemoteProtocolError(f"a request of {size} bytes is too short for its header")
