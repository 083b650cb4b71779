"""Replaces `shoal.proxy.connection.connection.Connection` for a route's handler: frames in, frames out, no sockets.

A connection's requests are handled one at a time, as by `RequestPump`; answers go to the client in request order. The
broker, too, takes a connection's next request only after answering the last (it mutes the channel). What a broker has
received when a connection ends may still be appended much later: such requests are in the world's `late`.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import trio

from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import read_request_header
from shoal.proxy.config.settings import Address
from shoal.proxy.connection.pending import EditAnswer, OwnAnswer, OwnRequest, OwnRequests, PendingAnswer
from shoal.proxy.connection.routes import Decision
from shoal.proxy.events.logs import LogThrottle
from shoal.proxy.net.transport import PeerLost
from shoal.proxy.net.upstream import UpstreamLost
from tests.torture_models.messages import head_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.proxy.cluster.cluster import Cluster
    from shoal.proxy.shallow.unwrap.path import UnwrapPath

__all__ = ["Link"]

_numbers = count(1)
_NO_SOCKET: Any = None


class Link:
    """One connection of a client to Shoal, and its connection to a broker.

    `to_client` gets answer frames, and None when the connection ends; `upstream` has the requests that the broker has
    not answered.
    """

    tap = None
    provisional = False
    cause = None
    draining = False
    guest = SimpleNamespace(is_stranger=False)
    """A client of a cluster that demands no login."""
    shown_client_id = "client id the mirror's producer"

    def __init__(
        self, path: UnwrapPath, cluster: Cluster, listener: Any, node: int, to_client: Callable[[bytes | None], None]
    ) -> None:
        self.path = path
        self.cluster = cluster
        self.listener = listener
        self.node = node
        self.node_id = node
        self.bound_port = SimpleNamespace(node_id=node, cluster=listener.cluster)
        self.throttle = LogThrottle()
        self.number = next(_numbers)
        self.client_id = "the mirror's producer"
        self.peer = Address("10.0.0.1", 40_000)
        self.context: object = None
        self.routes = path.routes
        self.limits = listener.limits
        self.upstream: deque[bytes] = deque()
        self.busy = False  # the broker has taken the first of `upstream` and not answered it
        self.asks = 0
        self.closed = False
        self.upstream_ended = False
        self.client_left = False
        self.handling = False
        self.to_client = to_client
        self.errors: list[BaseException] = []
        self._inbox: deque[bytes] = deque()
        self._news = trio.Event()
        self.in_flight: deque[PendingAnswer | OwnAnswer] = deque()
        self.broker_round_trip = 0.0 if node % 2 else math.inf  # near brokers, and some that are far away
        self.responses = SimpleNamespace(await_bytes=self._await_bytes)
        self._unread: list[bytes] = []  # answers that have arrived
        self._awaited = 1  # bytes
        self._scope = trio.CancelScope()
        self._bursts = 0
        self._late: OwnRequests | None = None

    # -- the client's end ----------------------------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        self._inbox.append(frame)
        self._news.set()

    def leave(self, *, unread: bool) -> None:
        """The client closes; `unread`: requests that Shoal has not read yet are lost."""
        self.client_left = True
        if unread:
            self._inbox.clear()
        self._news.set()

    async def run(self, versions: bytes, answer: bytes) -> None:
        """The client first requests the broker's API versions, as every client does."""
        self.path.opened(self)  # type: ignore[arg-type]
        try:
            with self._scope:
                await self._handle(versions)
                self.answered(answer)
                await self._serve()
        except (UpstreamLost, PeerLost):
            pass
        except Exception as error:
            self.errors.append(error)
        finally:
            self.closed = True
            self._fail_asked()
            self.path.closed(self)  # type: ignore[arg-type]
            self.cluster.proofs.ended(self)
            if not self.client_left:
                self.to_client(None)

    async def _serve(self) -> None:
        while True:
            while not self._inbox and not (self.upstream_ended or (self.client_left and not self.in_flight)):
                self._news = trio.Event()
                await self._news.wait()
            if self.upstream_ended or not self._inbox:
                return
            await self._handle(self._inbox.popleft())

    async def _handle(self, frame: bytes) -> None:
        route = self.routes[head_of(frame).key]
        answer = route.decide(self, memoryview(frame)) if route.decide is not None else Decision.HOLD  # type: ignore[arg-type]
        if answer is not Decision.HOLD:
            return await self.forward([frame], answer)
        assert route.handle is not None
        self.handling = True
        try:
            await route.handle(self, bytearray(frame), read_request_header(frame))  # type: ignore[arg-type]
        finally:
            self.handling = False
        return None

    def kill(self) -> None:
        """Shoal dies."""
        self._scope.cancel()

    # -- the broker's end ----------------------------------------------------------------------------------------------

    def answered(self, frame: bytes) -> None:
        """Answers the first request. Answers are read when as many bytes are there as are awaited."""
        self.upstream.popleft()
        self.busy = False
        self._unread.append(frame)
        if sum(map(len, self._unread)) >= self._awaited:
            self._read()

    def _await_bytes(self, size: int) -> None:
        self._awaited = size
        if self._unread and sum(map(len, self._unread)) >= size:
            self._read()

    def _read(self) -> None:
        """All that is there, in one step of the pump."""
        unread, self._unread = self._unread, []
        delivered = [self._passed(frame) for frame in unread]
        if unread and isinstance(delivered[-1], OwnRequests):
            delivered[-1].flush()
        self._news.set()

    def _passed(self, frame: bytes) -> OwnRequest | None:
        entry = self.in_flight.popleft()
        assert isinstance(entry, PendingAnswer)
        asked = entry.answer if isinstance(entry.answer, OwnRequest) else None
        if asked is not None:
            asked.deliver(bytearray(frame))
        elif isinstance(entry.answer, EditAnswer):
            edited = entry.answer.edit(self, entry, bytearray(frame))
            self._tell(bytes(edited) if isinstance(edited, (bytes, bytearray, memoryview)) else b"".join(edited))
        else:
            self._tell(frame)
        while self.in_flight and isinstance(self.in_flight[0], OwnAnswer):
            local = self.in_flight.popleft()
            assert isinstance(local, OwnAnswer)
            self._tell(b"".join(local.buffers))
        return asked

    def lose(self) -> list[bytes]:
        """The connection to the broker ends; -> requests that the broker may have received and not answered."""
        self._read()
        self.upstream_ended = True
        left, self.upstream = list(self.upstream), deque()
        self.busy = False
        self._fail_asked()
        self._news.set()
        return left

    def _fail_asked(self) -> None:
        for entry in self.in_flight:
            if isinstance(entry, PendingAnswer) and isinstance(entry.answer, OwnRequest):
                entry.answer.deliver(None)
        self.in_flight.clear()

    def _tell(self, frame: bytes) -> None:
        if not self.client_left:
            self.to_client(frame)

    # -- for the routes ------------------------------------------------------------------------------------------------

    def require_client(self) -> None:
        """Raises PeerLost."""
        if self.client_left:
            raise PeerLost(_NO_SOCKET, ConnectionResetError("it has left"))

    def lookup(self, node_id: int, host: str, port: int) -> tuple[str, int]:
        return host, port

    @property
    def broker(self) -> Link:
        """The requests to the broker are its own."""
        return self

    async def forward(self, buffers: Sequence[Any], answer: Any = None, *, note: object = None) -> None:
        assert answer is not Decision.SILENT, "acks=0 is not modelled"
        await self._send(buffers, answer)

    async def post(self, buffers: Sequence[Any], *, note: object = None, gate: object = None) -> OwnRequest:
        asked = OwnRequest()
        await self._send(buffers, asked)
        return asked

    login_is_due = False

    async def log_in_if_due(self) -> None: ...

    def post_at_once(self, requests: Sequence[Any], asked: OwnRequests, note: object = None) -> list[Any]:
        """Every third time the last request has to wait for `post_rest`."""
        if self.upstream_ended:
            raise UpstreamLost("the connection to the broker has ended")
        *now, last = requests
        for buffers in now:
            self._sent(buffers, asked)
        self._bursts += 1
        if self._bursts % 3:
            self._sent(last, asked)
            return []
        self._late = asked
        return list(last)

    async def post_rest(self, buffers: Sequence[Any]) -> None:
        await self._send(buffers, self._late)

    async def ask(self, buffers: Sequence[Any]) -> bytearray:
        return await (await self.post(buffers)).frame()

    async def reply(self, buffers: Sequence[Any]) -> None:
        if self.in_flight:
            self.in_flight.append(OwnAnswer(buffers))
        else:
            self._tell(b"".join(buffers))

    async def _send(self, buffers: Sequence[Any], answer: Any) -> None:
        await trio.lowlevel.checkpoint()
        if self.upstream_ended:
            raise UpstreamLost("the connection to the broker has ended")
        self._sent(buffers, answer)

    def _sent(self, buffers: Sequence[Any], answer: Any) -> None:
        frame = b"".join(buffers)
        key, version, number = head_of(frame)
        self.in_flight.append(PendingAnswer(number, key, version, answer))
        self.upstream.append(frame)
        self.asks += key == ApiKey.PRODUCE
