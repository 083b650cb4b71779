"""Broker -> client. An answer passes as it comes unless its request's `PendingAnswer` entry says otherwise."""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, NoReturn

from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.framing import FIRST_BYTES, check_frame_size
from shoal.proxy.connection.in_flight import Edit, Hold, OwnAnswer, OwnRequest, PendingAnswer, Token
from shoal.proxy.connection.pump import FrameStop, Pump

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.in_flight import Gate, Skimmer
    from shoal.proxy.net.transport import Buffer, SendSide, Transport

__all__ = ["ResponsePump"]

_PREFIX = Struct(
    ">"
    "i"  # size of what follows
    "i"  # CorrelationId
)
_SIZE = Struct(">i")
_SMALLEST = _PREFIX.size - _SIZE.size
_LARGEST = 0x7FFFFFFF  # answers are streamed: their size is the broker's business


class ResponsePump(Pump):
    __slots__ = ("_connection", "_current", "_in_flight", "_skimmer", "edited", "held", "locals", "opaque")

    def __init__(self, connection: Connection, source: Transport, out: SendSide) -> None:
        super().__init__(source, out)
        self._connection = connection
        self._in_flight = connection.in_flight
        self._skimmer: Skimmer | None = None
        self._current: PendingAnswer | None = None  # the last entry that was not passed unread
        self.locals = 0  # answers of Shoal's own in the queue
        self.opaque = self.edited = self.held = 0

    async def run(self) -> None:
        """Until the broker closes, or the last answer has gone out after the last request."""
        connection = self._connection
        while not self.ended and (not connection.requests_ended or self._in_flight or self.mid_frame):
            if self._may_send_local():
                await self._send_locals()
            else:
                self.attention = bool(self.locals) or connection.requests_ended or connection.requests.answered()
                await self.turn()
                connection.requests.answered()

    def check_end(self) -> None:
        """A broker that wants TLS says so in seven bytes and closes."""
        if self.ended and len(self.carry) >= FIRST_BYTES:
            check_frame_size(_SIZE.unpack_from(self.carry)[0], self.carry, _LARGEST)
        super().check_end()

    @property
    def quiet(self) -> bool:
        """Nothing is owed to the client, and nothing is on its way to it."""
        return self.waiting and not self._in_flight and not self.mid_frame

    def _may_send_local(self) -> bool:
        """The next answer is one of Shoal's own. (Behind an incomplete prefix of the broker's it waits for the rest of that.)"""
        return self.locals > 0 and _is(self._in_flight[0], OwnAnswer) and not self.mid_frame

    async def _send_locals(self) -> None:
        entry = self._in_flight.popleft()
        self.locals -= 1
        assert isinstance(entry, PendingAnswer)
        assert isinstance(entry.answer, OwnAnswer)
        await self.out.send_all(entry.answer.buffers)

    def scan(self, view: memoryview, pos: int, end: int) -> tuple[int, FrameStop | None]:
        if self.remaining:
            pos, interruption = self._go_on(view, pos, end)
            if interruption is not None:
                return pos, interruption
        queue = self._in_flight
        while end - pos >= _PREFIX.size:
            size, correlation_id = _PREFIX.unpack_from(view, pos)
            if not queue:
                raise RemoteProtocolError(f"the broker sent an answer (correlation id {correlation_id}) to no request")
            entry = queue.popleft()
            if isinstance(entry, int):
                if correlation_id != entry or size < _SMALLEST:
                    _refuse(f"{entry}", size, correlation_id, view[pos:end])
                self.opaque += 1
            elif isinstance(entry.answer, Token):
                queue.appendleft(entry)
                pos = self._token(view, pos, end)
                continue
            elif isinstance(entry.answer, OwnAnswer):
                self.locals -= 1
                return pos, FrameStop(0, entry.answer.buffers, None)
            else:
                if correlation_id != entry.correlation_id or size < _SMALLEST:
                    which = f"{entry.correlation_id} (API key {entry.api_key} v{entry.api_version})"
                    _refuse(which, size, correlation_id, view[pos:end])
                interruption = self._special(entry, view[pos : min(end, pos + _SIZE.size + size)], _SIZE.size + size)
                if interruption is not None:
                    return pos, interruption
                if self._skimmer is not None:
                    self.remaining = _SIZE.size + size
                    return self.scan(view, pos, end)
            pos += _SIZE.size + size
            if pos > end:
                self.remaining = pos - end
                pos = end
        if end - pos >= _SIZE.size and queue and _is(queue[0], Token):
            return self._token(view, pos, end), None
        return pos, None

    def _go_on(self, view: memoryview, pos: int, end: int) -> tuple[int, FrameStop | None]:
        """With an answer that has begun; -> where what passes of it ends."""
        remaining = self.remaining
        if self._skimmer is not None:
            passed, interruption = self._skim(view[pos : min(end, pos + remaining)])
            if interruption is not None:
                return pos + passed, interruption
        step = min(remaining, end - pos)
        self.remaining = remaining - step
        return pos + step, None

    def _skim(self, piece: memoryview) -> tuple[int, FrameStop | None]:
        """-> how much of the piece passes, and what is done with the rest of the answer where that is not all."""
        skimmer = self._skimmer
        assert skimmer is not None
        passed, interruption = skimmer.feed(piece), None
        if passed < len(piece):
            rest = self.remaining - passed
            self._check_held(rest, "the end of a streamed answer")
            self.remaining, interruption = 0, FrameStop(rest, None, partial(self._finish, skimmer))
        if interruption or len(piece) == self.remaining:
            self._skimmer = None
        return passed, interruption

    async def _finish(self, skimmer: Skimmer, rest: bytearray) -> None:
        await self.out.send_all([skimmer.finish(rest)])

    def _check_held(self, size: int, what: str) -> None:
        limit = self._connection.limits.held_response_bytes
        if size > limit:
            raise RemoteProtocolError(
                f"{what} of {size} bytes is larger than what is held (limits.held_response_bytes = {limit})"
            )

    def _special(self, entry: PendingAnswer, part: memoryview, size: int) -> FrameStop | None:
        """`part` is as much of the answer's `size` bytes as is there. None: it passes as it is."""
        answer = entry.answer
        self._current = entry
        limit = self._connection.limits.held_response_bytes
        if isinstance(answer, Hold) and answer.too_large is not None and size > limit:
            answer = answer.too_large
        if isinstance(answer, Edit):
            self.edited += 1
            if len(part) == size:
                edited = answer.edit(self._connection, entry, part)
                return None if edited is part else FrameStop(size, _pieces(edited), None)
            if answer.skimmer is not None:
                self._skimmer = answer.skimmer(entry, size)
                return None
        self._check_held(size, f"an answer to API key {entry.api_key}")
        if isinstance(answer, OwnRequest) and answer.gate is not None:
            self._in_flight.appendleft(entry)
            return FrameStop(0, None, partial(self._pass_gate, answer, answer.gate, size))
        if isinstance(answer, OwnRequest) and len(part) == size:
            self._current = None
            answer.deliver(bytearray(part))
            return FrameStop(size, (), None)
        return FrameStop(size, None, partial(self._complete, entry))

    async def _complete(self, entry: PendingAnswer, frame: bytearray) -> None:
        """Deal with an answer that was held whole."""
        answer = entry.answer
        self._current = None
        if isinstance(answer, OwnRequest):
            answer.deliver(frame)
        elif isinstance(answer, Hold):
            self.held += 1
            await self.out.send_all(await answer.edit(self._connection, entry, frame))
        elif isinstance(answer, Edit):
            await self.out.send_all(_pieces(answer.edit(self._connection, entry, frame)))

    def read_to_gate(self) -> None:
        """Of the answer that comes next, which has a gate, read its prefix only."""
        self._receive_into = self._receive_prefix

    def _receive_prefix(self, view: memoryview) -> int:
        return self.source.recv_into(view[: _PREFIX.size - len(self.carry)])

    async def _pass_gate(self, asked: OwnRequest, gate: Gate, size: int, _: bytearray) -> None:
        await gate(size)
        asked.gate = None
        self._receive_into = self.source.recv_into

    def fail_asked(self) -> None:
        """No more answers will come: tell those who wait inside Shoal, also for one that has begun."""
        for entry in (self._current, *self._in_flight):
            if isinstance(entry, PendingAnswer) and isinstance(entry.answer, OwnRequest):
                entry.answer.deliver(None)

    def _token(self, view: memoryview, pos: int, end: int) -> int:
        (size,) = _SIZE.unpack_from(view, pos)
        if size < 0:
            raise RemoteProtocolError(f"the broker sent a SASL token of {size} bytes")
        self._in_flight.popleft()
        self.opaque += 1
        pos += _SIZE.size + size
        self.remaining = max(pos - end, 0)
        return min(pos, end)


def _pieces(edited: Buffer | Sequence[Buffer]) -> Sequence[Buffer]:
    return [edited] if isinstance(edited, (bytes, bytearray, memoryview)) else edited


def _is(entry: int | PendingAnswer, kind: type[object]) -> bool:
    return isinstance(entry, PendingAnswer) and isinstance(entry.answer, kind)


def _refuse(due: str, size: int, correlation_id: int, first: memoryview) -> NoReturn:
    check_frame_size(size, first, _LARGEST)
    raise RemoteProtocolError(f"the broker answered correlation id {correlation_id} ({size} bytes) where {due} was due")
