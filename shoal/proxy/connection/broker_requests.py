"""What the routes of a connection send to its broker: a client's requests, edited or not, and requests of Shoal's own.

Each request is sent after those before it, and its answer is expected in the same order (`in_flight`). Before a
request, Shoal logs in again if that is due (`broker_session`).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from shoal.protocol.schema.headers import read_request_prefix
from shoal.proxy.capture.annotations import OWN
from shoal.proxy.connection.broker_session import SessionRenewal
from shoal.proxy.connection.pending import OwnRequest, PendingAnswer
from shoal.proxy.connection.routes import Decision
from shoal.proxy.net.transport import PeerLost
from shoal.proxy.net.upstream import UpstreamLost

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.protocol.capture.index.pending import Request, RequestAnnotation
    from shoal.protocol.capture.index.record_sets import RecordSets
    from shoal.protocol.capture.index.tap import Tap
    from shoal.proxy.connection.meter import Meter
    from shoal.proxy.connection.pending import Answer, Gate, InFlight, OwnRequests
    from shoal.proxy.connection.pumps.request_pump import RequestPump
    from shoal.proxy.connection.pumps.response_pump import ResponsePump
    from shoal.proxy.net.transport import Buffer, SendSide
    from shoal.proxy.net.upstream import Session

__all__ = ["BrokerRequests"]

C = TypeVar("C")


class BrokerRequests(Generic[C]):
    """Those of one connection, of class C. All methods that send raise UpstreamLost."""

    __slots__ = ("_in_flight", "_meter", "_out", "_requests", "_responses", "_tap", "asked", "renewal")

    def __init__(
        self,
        requests: RequestPump[Any],
        responses: ResponsePump,
        out: SendSide,
        in_flight: list[InFlight],
        tap: Tap | None,
    ) -> None:
        self._requests = requests
        self._responses = responses
        self._out = out
        self._in_flight = in_flight
        self._meter: Meter | None = requests.meter
        self._tap = tap
        self.asked = 0  # requests of Shoal's own
        self.renewal: SessionRenewal | None = None  # None: Shoal has not logged in at the broker

    # -- Shoal's session -------------------------------------------------------------------------------------------

    def has_logged_in(self, session: Session, fail: Callable[[str], None]) -> None:
        """`fail` is called if Shoal cannot log in again."""
        self.renewal = SessionRenewal(session, self._requests, self._ask_to_log_in, fail)

    async def _ask_to_log_in(self, frame: bytes) -> bytearray:
        return await (await self._post([frame], OWN, None)).frame()

    @property
    def login_is_due(self) -> bool:
        return self.renewal is not None and self.renewal.is_due

    async def log_in_if_due(self) -> None:
        """From a handler, before it sends something."""
        if self.renewal is not None and self.renewal.is_due:
            await self.renewal.before_request(answers_are_due=bool(self._in_flight))

    # -- requests --------------------------------------------------------------------------------------------------

    async def forward(
        self,
        buffers: Sequence[Buffer],
        answer: Answer[C] | Decision | None = None,
        *,
        note: RequestAnnotation | None = None,
    ) -> None:
        """From a handler: send a request frame for the client. `Decision.SILENT`: it has no answer."""
        await self.log_in_if_due()
        if not isinstance(answer, Decision):
            self._expect(buffers, answer)
        await self._send(buffers, note)
        if self._meter is not None and answer is not Decision.SILENT:
            self._meter.forwarded(read_request_prefix(buffers[0])[3])

    async def ask(self, buffers: Sequence[Buffer]) -> bytearray:
        """From a handler: `post`, and wait for the answer, which follows all earlier ones."""
        return await (await self.post(buffers)).frame()

    async def post(
        self, buffers: Sequence[Buffer], *, note: RequestAnnotation = OWN, gate: Gate | None = None
    ) -> OwnRequest:
        """From a handler: send a request of Shoal's own. A `gate` needs a quiet connection."""
        await self.log_in_if_due()
        return await self._post(buffers, note, gate)

    async def _post(self, buffers: Sequence[Buffer], note: RequestAnnotation, gate: Gate | None) -> OwnRequest:
        asked = OwnRequest(gate)
        self._expect(buffers, asked)
        self.asked += 1
        if gate is not None:
            self._responses.read_to_gate()
        if self._meter is not None:
            self._meter.own_sent()
        await self._send(buffers, note)
        return asked

    def post_at_once(
        self,
        requests: Sequence[Sequence[Buffer]],
        asked: OwnRequests,
        indexed: Sequence[tuple[Request, RecordSets]] = (),
    ) -> Sequence[Buffer]:
        """`post` for requests with one header, without waiting; -> what must be sent by `post_rest` before more.

        `indexed`: each for `Tap.post`, if there is an index. Not where `login_is_due`.
        """
        self._require_broker()
        _, key, version, correlation_id = read_request_prefix(requests[0][0])
        entry = PendingAnswer(correlation_id, key, version, asked)
        for _ in requests:
            self._in_flight.append(entry)
            if self._meter is not None:
                self._meter.own_sent()
        self.asked += len(requests)
        if self._tap is not None:
            for request, record_sets in indexed:
                self._tap.post(request, record_sets)
        try:
            return self._out.begin([*chain.from_iterable(requests)])
        except PeerLost as error:
            raise UpstreamLost(str(error)) from error

    async def post_rest(self, buffers: Sequence[Buffer]) -> None:
        self._require_broker()
        try:
            await self._out.send_all(buffers)
        except PeerLost as error:
            raise UpstreamLost(str(error)) from error

    def post_now(self, frame: bytes) -> None:
        """`post` where the broker owes no answer, without waiting, and without regard to the answer."""
        self._expect([frame], OwnRequest())
        self.asked += 1
        self._note_for_index(frame, OWN)
        try:
            rest = self._out.gather_now([frame])
        except PeerLost as error:
            raise UpstreamLost(str(error)) from error
        if rest:
            raise UpstreamLost("it takes no more bytes")

    def _expect(self, buffers: Sequence[Buffer], answer: Answer[C] | None) -> None:
        _, key, version, correlation_id = read_request_prefix(buffers[0])
        if answer is not None:
            self._in_flight.append(PendingAnswer(correlation_id, key, version, answer))
        else:
            self._in_flight.append(correlation_id if self._meter is None else (correlation_id, self._meter.apis[key]))

    async def _send(self, buffers: Sequence[Buffer], note: RequestAnnotation | None) -> None:
        self._require_broker()
        self._note_for_index(buffers[0], note)
        await self.post_rest(buffers)

    def _require_broker(self) -> None:
        if self._requests.without_answers:  # not the state: an abort of our own shows nothing of the broker
            raise UpstreamLost("the connection to the broker has ended")

    def _note_for_index(self, frame: Buffer, note: RequestAnnotation | None) -> None:
        if self._tap is not None and note is not None:
            self._tap.note(read_request_prefix(frame)[3], note)
