"""Broker -> client. An answer passes unchanged unless the queue has a `PendingAnswer` for its request."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NoReturn, Protocol

from shoal.protocol.schema.headers import RESPONSE_PREFIX, SIZE_BYTES, read_response_prefix, read_size
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.framing import FIRST_BYTES, Sender, check_frame_size
from shoal.proxy.connection.pending import EditAnswer, Hold, OwnAnswer, OwnRequest, OwnRequests, PendingAnswer, Token
from shoal.proxy.connection.pumps.pump import FrameStop, Pump

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.proxy.config.settings import Limits
    from shoal.proxy.connection.client_session import LoginAtBroker
    from shoal.proxy.connection.pending import Gate, InFlight, Skimmer
    from shoal.proxy.connection.pumps.pump import Unfinished
    from shoal.proxy.events.logs import LogThrottle
    from shoal.proxy.net.transport import Buffer, SendSide, Transport

__all__ = ["ResponsePump"]

_SMALLEST = RESPONSE_PREFIX - SIZE_BYTES
_LARGEST = 0x7FFFFFFF  # answers are streamed, so their size has no other limit


class Requests(Protocol):
    """The request pump, for this one."""

    def answered(self) -> bool: ...


class Owner(Protocol):
    """The connection, for this pump."""

    @property
    def in_flight(self) -> list[InFlight]: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def throttle(self) -> LogThrottle: ...
    @property
    def requests(self) -> Requests: ...

    @property
    def login_at_broker(self) -> LoginAtBroker: ...


class ResponsePump(Pump):
    __slots__ = (
        "_connection",
        "_current",
        "_delivered",
        "_finishing",
        "_in_flight",
        "_locals",
        "_skimmer",
        "edited",
        "held",
        "opaque",
    )

    def __init__(self, connection: Owner, source: Transport, out: SendSide) -> None:
        super().__init__(source, out, connection.throttle)
        self._connection = connection
        self._in_flight = connection.in_flight
        self._skimmer: Skimmer | None = None
        self._current: PendingAnswer | None = None  # entry of the last answer that did not pass unread
        self._delivered: OwnRequests | None = None  # not flushed
        self._finishing = False  # no more requests follow
        self._locals = 0  # answers of Shoal's own in the queue
        self.opaque = self.edited = self.held = 0

    async def run(self) -> None:
        """Runs until the broker closes, or the answer to the last request is sent."""
        requests = self._connection.requests
        while not self.ended and (not self._finishing or self._in_flight or self.mid_frame):
            if self._may_send_local():
                await self._send_locals()
            else:
                self.must_yield = bool(self._locals) or self._finishing or requests.answered()
                await self.turn()
                requests.answered()

    def no_more_requests(self) -> None:
        """End when the last answer is sent."""
        self._finishing = True
        self.give_way()

    def reply_in_turn(self, buffers: Sequence[Buffer]) -> None:
        """Send an answer of Shoal's own, after the answers to all earlier requests."""
        self._in_flight.append(PendingAnswer(0, -1, 0, OwnAnswer(buffers)))
        self._locals += 1
        self.give_way()

    def check_end(self) -> None:
        """A broker that expects TLS sends an alert of seven bytes and closes."""
        if self.ended and len(self.carry) >= FIRST_BYTES:
            check_frame_size(read_size(self.carry)[0], self.carry, _LARGEST, Sender.BROKER)
        super().check_end()

    @property
    def quiet(self) -> bool:
        """True if no answer is due, and none is on its way to the client."""
        return self.waiting and not self._in_flight and not self.mid_frame

    def _may_send_local(self) -> bool:
        """True if the next answer is Shoal's own, and no byte of a broker's answer has arrived."""
        return self._locals > 0 and _is(self._in_flight[0], OwnAnswer) and not self.mid_frame

    async def _send_locals(self) -> None:
        entry = self._in_flight.pop(0)
        self._locals -= 1
        assert isinstance(entry, PendingAnswer)
        assert isinstance(entry.answer, OwnAnswer)
        await self.out.send_all(entry.answer.buffers)

    def scan(self, view: memoryview, pos: int, end: int) -> tuple[int, FrameStop | None]:
        if self.remaining:
            pos, frame_stop = self._go_on(view, pos, end)
            if frame_stop is not None:
                return pos, frame_stop
        queue, meter = self._in_flight, self.meter
        while end - pos >= RESPONSE_PREFIX:
            size, correlation_id = read_response_prefix(view, pos)
            if not queue:
                check_frame_size(size, view[pos:end], _LARGEST, Sender.BROKER)  # an SSH server speaks first
                raise RemoteProtocolError(f"the broker sent an answer (correlation id {correlation_id}) to no request")
            entry = queue.pop(0)
            if isinstance(entry, int):
                if correlation_id != entry or size < _SMALLEST:
                    _refuse(f"{entry}", size, correlation_id, view[pos:end])
                self.opaque += 1
            elif isinstance(entry, PendingAnswer):
                answer = entry.answer
                if isinstance(answer, Token):
                    queue.insert(0, entry)
                    pos = self._token(view, pos, end)
                    continue
                if isinstance(answer, OwnAnswer):
                    self._locals -= 1
                    return pos, FrameStop(0, answer.buffers, None)
                if correlation_id != entry.correlation_id or size < _SMALLEST:
                    which = f"{entry.correlation_id} (API key {entry.api_key} v{entry.api_version})"
                    _refuse(which, size, correlation_id, view[pos:end])
                if meter is not None:
                    meter.special(self, entry, SIZE_BYTES + size)
                if stop := self._special(entry, view[pos : min(end, pos + SIZE_BYTES + size)], SIZE_BYTES + size):
                    return pos, stop
                if self._skimmer is not None:
                    self.remaining = SIZE_BYTES + size
                    return self.scan(view, pos, end)
            else:
                due, counters = entry
                if correlation_id != due or size < _SMALLEST:
                    _refuse(f"{due}", size, correlation_id, view[pos:end])
                self.opaque += 1
                counters.answers += 1
                counters.answer_bytes += SIZE_BYTES + size
                if meter is not None and correlation_id in meter.samples:
                    meter.answer_begins(self, correlation_id)
            pos += SIZE_BYTES + size
            if pos > end:
                self.remaining = pos - end
                pos = end
        if end - pos >= SIZE_BYTES and queue and _is(queue[0], Token):
            return self._token(view, pos, end), None
        return pos, None

    @property
    def unread(self) -> int:
        return self.remaining if self._skimmer is None else self._skimmer.unread

    def passed(self, size: int) -> None:
        super().passed(size)
        if self._skimmer is not None:
            self._skimmer.passed(size)

    def _move(self, view: memoryview, pos: int, end: int, scanned: tuple[int, FrameStop | None]) -> Unfinished | None:
        rest = super()._move(view, pos, end, scanned)
        self._flush()
        if rest is not None or self.mid_frame:
            self.await_bytes(1)  # for the rest of an answer that is longer than all that were awaited
        return rest

    def _flush(self) -> None:
        if self._delivered is not None:
            delivered, self._delivered = self._delivered, None
            delivered.flush()

    def _deliver(self, asked: OwnRequest, frame: bytearray) -> None:
        asked.deliver(frame)
        if isinstance(asked, OwnRequests):
            self._delivered = asked

    def _go_on(self, view: memoryview, pos: int, end: int) -> tuple[int, FrameStop | None]:
        """Continue with an incomplete answer; -> end of the part that passes."""
        remaining = self.remaining
        if self._skimmer is not None:
            passed, frame_stop = self._skim(view[pos : min(end, pos + remaining)])
            if frame_stop is not None:
                return pos + passed, frame_stop
        step = min(remaining, end - pos)
        self.remaining = remaining - step
        return pos + step, None

    def _skim(self, piece: memoryview) -> tuple[int, FrameStop | None]:
        """-> bytes of the piece that pass; if these are not all, what happens to the rest of the answer."""
        skimmer = self._skimmer
        assert skimmer is not None
        passed, frame_stop = skimmer.feed(piece), None
        if passed < len(piece):
            rest = self.remaining - passed
            self._check_held(rest, "the end of a streamed answer")
            self.remaining, frame_stop = 0, FrameStop(rest, None, partial(self._finish, skimmer))
        if frame_stop or len(piece) == self.remaining:
            self._skimmer = None
        return passed, frame_stop

    async def _finish(self, skimmer: Skimmer, rest: bytearray) -> None:
        await self.out.send_all([skimmer.finish(rest)])

    def _may_hold(self, size: int) -> bool:
        return size <= self._connection.limits.held_response_bytes

    def _check_held(self, size: int, what: str) -> None:
        limit = self._connection.limits.held_response_bytes
        if size > limit:
            raise RemoteProtocolError(f"{what} of {size} bytes is above limits.held-response-bytes ({limit}): raise it")

    def _special(self, entry: PendingAnswer, part: memoryview, size: int) -> FrameStop | None:
        """`part`: the bytes of the answer that have arrived, of `size`. None: it passes unchanged."""
        answer = entry.answer
        self._current = entry
        if isinstance(answer, Hold) and answer.too_large is not None and not self._may_hold(size):
            answer = answer.too_large
            if self.meter is not None:
                self.meter.is_complete(self, entry)
        if isinstance(answer, EditAnswer):
            self.edited += 1
            if len(part) == size:
                edited = answer.edit(self._connection, entry, part)
                return None if edited is part else FrameStop(size, _pieces(edited), None)
            if answer.skimmer is not None and not (answer.holds and self._may_hold(size)):
                self._skimmer = answer.skimmer(entry, size)
                return None
        self._check_held(size, f"an answer to API key {entry.api_key}")
        if isinstance(answer, OwnRequest) and answer.gate is not None:
            self._in_flight.insert(0, entry)
            return FrameStop(0, None, partial(self._pass_gate, answer, answer.gate, size))
        if isinstance(answer, OwnRequest) and len(part) == size:
            self._current = None
            self._deliver(answer, bytearray(part))
            return FrameStop(size, (), None)
        return FrameStop(size, None, partial(self._complete, entry))

    async def _complete(self, entry: PendingAnswer, frame: bytearray) -> None:
        """Process a held answer that is complete."""
        answer = entry.answer
        self._current = None
        if self.meter is not None:
            self.meter.is_complete(self, entry)
        if isinstance(answer, OwnRequest):
            self._deliver(answer, frame)
        elif isinstance(answer, Hold):
            self.held += 1
            await self.out.send_all(await answer.edit(self._connection, entry, frame))
        elif isinstance(answer, EditAnswer):
            await self.out.send_all(_pieces(answer.edit(self._connection, entry, frame)))

    def read_to_gate(self) -> None:
        """Read only the prefix of the next answer, which has a gate."""
        self._receive_into = self._receive_prefix

    def _receive_prefix(self, view: memoryview) -> int:
        return self.source.recv_into(view[: RESPONSE_PREFIX - len(self.carry)])

    async def _pass_gate(self, asked: OwnRequest, gate: Gate, size: int, _: bytearray) -> None:
        await gate(size)
        asked.gate = None
        self._receive_into = self.source.recv_into

    def fail_asked(self) -> None:
        """No more answers will arrive: wake the handlers that wait for one, also for an incomplete one."""
        self._flush()
        for entry in (self._current, *self._in_flight):
            if isinstance(entry, PendingAnswer) and isinstance(entry.answer, OwnRequest):
                entry.answer.deliver(None)

    def _token(self, view: memoryview, pos: int, end: int) -> int:
        (size,) = read_size(view, pos)
        if size < 0:
            raise RemoteProtocolError(f"the broker sent a SASL token of {size} bytes")
        entry = self._in_flight.pop(0)
        assert isinstance(entry, PendingAnswer)
        assert isinstance(entry.answer, Token)
        self._connection.login_at_broker.token_answered(entry.answer.is_last)
        self.opaque += 1
        pos += SIZE_BYTES + size
        self.remaining = max(pos - end, 0)
        return min(pos, end)


def _pieces(edited: Buffer | Sequence[Buffer]) -> Sequence[Buffer]:
    return [edited] if isinstance(edited, (bytes, bytearray, memoryview)) else edited


def _is(entry: InFlight, kind: type[object]) -> bool:
    return isinstance(entry, PendingAnswer) and isinstance(entry.answer, kind)


def _refuse(due: str, size: int, correlation_id: int, first: memoryview) -> NoReturn:
    check_frame_size(size, first, _LARGEST, Sender.BROKER)
    raise RemoteProtocolError(f"the broker answered correlation id {correlation_id} ({size} bytes) where {due} was due")
