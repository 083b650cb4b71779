"""Client -> broker. Of most requests only the first 12 bytes are read: size, API key, API version, correlation id."""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import TYPE_CHECKING

import trio

from shoal.protocol.schema.headers import read_request_header
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.framing import check_frame_size
from shoal.proxy.connection.in_flight import PendingAnswer, Token
from shoal.proxy.connection.pump import FrameStop, Pump
from shoal.proxy.connection.routes import Decision, Wait
from shoal.proxy.errors import UpstreamLost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shoal.proxy.config.settings import Limits
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.in_flight import Answer
    from shoal.proxy.connection.routes import Route
    from shoal.proxy.net.transport import SendSide, Transport

__all__ = ["RequestPump"]

_PREFIX = Struct(
    ">"
    "i"  # size of what follows
    "h"  # RequestApiKey
    "h"  # RequestApiVersion
    "i"  # CorrelationId
)
_SIZE = Struct(">i")
_CLIENT_ID_AT = _PREFIX.size
_SMALLEST = _PREFIX.size - _SIZE.size  # request header v0 (ControlledShutdown v0) has no client id

# How many first bytes of a request a route may ask to see: a Produce request has its acks behind two strings of at most 32 KiB.
_PEEK_LIMIT = 128 * 1024


class RequestPump(Pump):
    __slots__ = (
        "_connection",
        "_enough",
        "_frame_limit",
        "_in_flight",
        "_limits",
        "_room",
        "_routes",
        "requests",
        "tokens",
    )

    def __init__(self, connection: Connection, source: Transport, out: SendSide) -> None:
        super().__init__(source, out)
        self._connection = connection
        self._in_flight = connection.in_flight
        self._routes = connection.routes
        self._limits: Limits = connection.limits
        self._frame_limit = connection.limits.frame_bytes
        self._room: trio.Event | None = None
        self._enough = 0  # entries in the queue with which `_room` is there
        self.requests = 0
        self.tokens = 0  # frames still to come that are SASL tokens without a Kafka header

    async def run(self) -> None:
        """Until the client closes, or until there is a frame's end when the connection stops reading."""
        connection, most = self._connection, self._limits.in_flight
        while not self.ended and (not connection.stopping or self.mid_frame):
            if len(self._in_flight) > most:
                await self._wait_for_room()
            else:
                self.attention = connection.stopping
                await self.turn()

    def answered(self) -> bool:
        """The response pump has taken entries from the queue; -> whether this pump waits for more of that."""
        is_enough = len(self._in_flight) <= self._enough
        if self._room is not None and is_enough and (self._enough or not self._connection.responses.mid_frame):
            self._room.set()
            self._room = None
        return self._room is not None

    async def _wait_for_room(self) -> None:
        self._room = room = trio.Event()
        self._enough = self._limits.in_flight // 2
        if self.answered():
            self._connection.responses.attention = True
        await room.wait()

    async def until_quiet(self) -> None:
        """Wait until the broker owes the client nothing, and nothing is on its way to the client. Raises UpstreamLost."""
        responses = self._connection.responses
        while not responses.quiet:
            if self._connection.upstream_ended:
                raise UpstreamLost("the connection to the broker has ended")
            self._room = room = trio.Event()
            self._enough = 0
            responses.attention = True
            await room.wait()

    def no_more_answers(self) -> None:
        """The broker has gone: whoever waits for its answers waits no longer."""
        if self._room is not None:
            self._room.set()
            self._room = None

    def scan(self, view: memoryview, pos: int, end: int) -> tuple[int, FrameStop | None]:
        remaining = self.remaining
        if remaining:
            if remaining >= end - pos:
                self.remaining = remaining - (end - pos)
                return end, None
            self.remaining = 0
            pos += remaining
        limit, routes, queue = self._frame_limit, self._routes, self._in_flight
        backlog = self._connection.backlog
        while end - pos >= _CLIENT_ID_AT and not self.tokens:
            size, key, version, correlation_id = _PREFIX.unpack_from(view, pos)
            if not _SMALLEST <= size <= limit:
                self._refuse(size, view[pos:end])
            route = routes.get(key)
            if backlog is not None and backlog.unanswered and (route is None or not route.takes):
                return pos, _standing(backlog.settled)
            if route is None or version < route.since:
                queue.append(correlation_id)
            else:
                decision = self._decide(route, view[pos : min(end, pos + _SIZE.size + size)], size)
                if isinstance(decision, Wait):
                    return pos, _standing(decision.until)
                if isinstance(decision, Decision):
                    if decision is not Decision.SILENT:
                        return pos, self._stopped(decision, route, size)
                else:
                    queue.append(
                        correlation_id if decision is None else PendingAnswer(correlation_id, key, version, decision)
                    )
            self.requests += 1
            pos += _SIZE.size + size
            if pos > end:
                self.remaining = pos - end
                pos = end
        if len(queue) > self._limits.in_flight:
            self.attention = True
        return self._tokens(view, pos, end), None

    def _stopped(self, verdict: Decision, route: Route, size: int) -> FrameStop | None:
        if verdict is Decision.HOLD:
            return self._held(route, size)
        if verdict is Decision.TAKEN:
            self.requests += 1
            return FrameStop(_SIZE.size + size, (), None)
        return None

    def _decide(self, route: Route, first: memoryview, size: int) -> Answer | Decision | Wait | None:
        if self._connection.client_id is None:
            self._identify(first)
        if route.decide is None:
            return Decision.HOLD if route.handle is not None else route.answer
        decision = route.decide(self._connection, first)
        if decision is Decision.MORE and len(first) >= min(_PEEK_LIMIT, size + _SIZE.size):
            raise RemoteProtocolError(f"a request's first {len(first)} bytes do not hold what they should")
        return decision

    def _identify(self, first: memoryview) -> None:
        """Remember the client id as soon as a request of an edited kind shows it; every client starts with one."""
        body = _CLIENT_ID_AT + 2
        if len(first) >= body:
            length = int.from_bytes(first[_CLIENT_ID_AT:body], "big", signed=True)
            if 0 <= length <= len(first) - body:
                self._connection.client_id = str(first[body : body + length], "utf-8", "replace")

    def _held(self, route: Route, size: int) -> FrameStop:
        if size > self._limits.held_request_bytes:
            raise RemoteProtocolError(
                f"a request of {size} bytes is larger than what is held (limits.held_request_bytes = {self._limits.held_request_bytes})"
            )
        self.requests += 1
        return FrameStop(_SIZE.size + size, None, partial(self._handle, route))

    async def _handle(self, route: Route, frame: bytearray) -> None:
        connection = self._connection
        assert route.handle is not None
        with connection.handling_request():
            await route.handle(connection, frame, read_request_header(frame))

    def _tokens(self, view: memoryview, pos: int, end: int) -> int:
        """SASL tokens: -> where the last one ends."""
        while self.tokens and end - pos >= _SIZE.size and not self.remaining:
            (size,) = _SIZE.unpack_from(view, pos)
            if not 0 <= size <= self._frame_limit:
                self._refuse(size, view[pos:end])
            self.tokens -= 1
            self._in_flight.append(PendingAnswer(0, -1, 0, Token()))
            pos += _SIZE.size + size
            self.remaining = max(pos - end, 0)
        return min(pos, end)

    def _refuse(self, size: int, first: memoryview) -> None:
        check_frame_size(size, first, self._frame_limit)
        raise RemoteProtocolError(f"a request of {size} bytes is too short for its header")


def _standing(until: Callable[[], Awaitable[None]]) -> FrameStop:
    """In front of a frame that is looked at again later; nothing is read meanwhile."""
    return FrameStop(0, None, partial(_stand, until))


async def _stand(until: Callable[[], Awaitable[None]], _: bytearray) -> None:
    await until()
