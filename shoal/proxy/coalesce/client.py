"""One client of a coalescing listener: its taken requests, in order, until each is answered.

The client's own connection to its broker is unchanged. At any time the client has either taken requests or requests at
that broker, never both: a broker handles the requests of one connection one by one, so neither kind may overtake the
other. Therefore answers are in the order of the requests by construction, and only this class sends to the client while
a taken request is unanswered.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

import trio

from shoal.protocol.coalesce.repeated import MOST_MODELS, RepeatedRequest
from shoal.protocol.messages.produce import encode_produce_response, encode_single_produce_response
from shoal.protocol.schema.api import ApiKey
from shoal.proxy.connection.keep_alive import KeepAlive
from shoal.proxy.net.transport import PeerLost
from shoal.proxy.statistics import CloseCause

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.protocol.coalesce.joinable import Joinable, WhyAlone
    from shoal.protocol.wire.types import Buffer, PartitionRef, Topic
    from shoal.proxy.connection.connection import Connection

__all__ = ["NOT_KNOWN", "CoalescedClient", "TakenRequest"]

NOT_KNOWN = ("", "")

MAX_TAKEN = 1000  # unanswered requests of one client; a client's default is 5
_QUIET_SECONDS = 120.0  # for a client's unused connection: connections.max.idle.ms of a broker is 600 s


class TakenRequest:
    """A taken Produce request, and the results of its partitions so far."""

    __slots__ = (
        "_node_endpoints",
        "_parts",
        "_throttle_ms",
        "broker_seconds",
        "correlation_id",
        "member",
        "missing",
        "number",
        "silent",
        "version",
    )

    def __init__(self, member: CoalescedClient, joinable: Joinable, correlation_id: int) -> None:
        self.member = member
        self.correlation_id = correlation_id
        self.version = joinable.key.version
        self.silent = not joinable.key.acks
        self.missing = len(joinable.parts)
        self.broker_seconds = 0.0  # for the slowest of the joined requests with its batches
        self.number = 0 if member.connection.tap is None else member.connection.tap.next_number()
        self._parts: list[tuple[Topic, Buffer]] = []
        self._throttle_ms = 0
        self._node_endpoints: Buffer = b""

    def add_result(
        self, target: PartitionRef, content: bytes, throttle_ms: int, node_endpoints: Buffer, seconds: float
    ) -> None:
        """`content`: the element of PartitionResponses. `seconds`: that the joined request was at the broker."""
        self.missing -= 1
        self._parts.append((target.topic, content))
        if throttle_ms > self._throttle_ms:
            self._throttle_ms = throttle_ms
        if seconds > self.broker_seconds:
            self.broker_seconds = seconds
        self._node_endpoints = node_endpoints or self._node_endpoints

    def answer(self) -> bytes:
        """Empty with acks=0."""
        if self.silent:
            return b""
        if len(self._parts) == 1 and not self._node_endpoints:
            ((topic, content),) = self._parts
            return encode_single_produce_response(self.version, self.correlation_id, topic, content, self._throttle_ms)
        topics: dict[Topic, list[Buffer]] = {}
        for topic, content in self._parts:
            topics.setdefault(topic, []).append(content)
        return b"".join(
            encode_produce_response(
                self.version,
                self.correlation_id,
                list(topics.items()),
                throttle_ms=self._throttle_ms,
                node_endpoints=self._node_endpoints,
            )
        )


class CoalescedClient:
    """One client connection of a coalescing listener."""

    def __init__(self, connection: Connection, left: Callable[[], None]) -> None:
        """`left` is called when the client has closed its sending side."""
        self.connection = connection
        self.client = NOT_KNOWN  # address and client id, with its first Produce request
        self.has_left = False
        self._left = left
        self.never_joined_because: WhyAlone | None = None  # why this connection is never joined
        self.alone: int | None = None  # the correlation id of its last request that was sent alone
        self.alone_until = -math.inf  # until then its requests may be retries
        # its next request is sent alone, after requests taken from clients like it before that time
        self.behind: float | None = None
        self.lane: object | None = None  # the lane with its unanswered requests; only its identity counts
        self.held_bytes = 0  # of its batches without an answer, as in CoalescePath
        self._models: list[RepeatedRequest] = []  # of its last joinable requests, the newest first
        self.asked_names = False  # for the topics of its next request
        self.ended = False
        self.keep_alive = KeepAlive(connection, quiet=_QUIET_SECONDS)
        self._taken: deque[TakenRequest] = deque()
        self._sending = False
        self._waiting: trio.Event | None = None

    @property
    def unanswered(self) -> int:
        """Those whose answer is not sent as a whole: until then nothing else may send to the client."""
        return len(self._taken) + self._sending

    def leaves(self) -> None:
        """Its requests that are still answered may come again over another connection."""
        self.has_left = True
        self._left()

    def read_again(self, frame: memoryview) -> Joinable | WhyAlone | None:
        """A whole request, if it is like an earlier one of this client."""
        for model in self._models:
            if (found := model.read(frame)) is not None:
                return found
        return None

    def keep(self, frame: memoryview, found: Joinable) -> None:
        """A request that may be repeated."""
        model = RepeatedRequest.of(frame, found)
        if model is not None:
            self._models = [model, *self._models[: MOST_MODELS - 1]]

    def forget(self) -> None:
        """Read its next requests from the start."""
        self._models = []

    def take(self, joinable: Joinable, correlation_id: int) -> TakenRequest:
        taken = TakenRequest(self, joinable, correlation_id)
        self._taken.append(taken)
        return taken

    @property
    def is_full(self) -> bool:
        """True while the client does not read its answers or has too many requests: no more are taken."""
        return self._sending or len(self._taken) >= MAX_TAKEN

    async def settled(self) -> None:
        """Wait until all requests are answered and all answers sent."""
        while self._taken or self._sending:
            await self._change()

    async def until_room(self) -> None:
        while self.is_full:
            await self._change()

    async def _change(self) -> None:
        if self._waiting is None:
            self._waiting = trio.Event()
        await self._waiting.wait()

    def deliver(self) -> None:
        """Send complete answers. Synchronous: a task sends what the kernel does not take at once."""
        if self._sending or self.ended:
            return
        connection, answers = self.connection, list[bytes]()
        while self._taken and not self._taken[0].missing:
            taken = self._taken.popleft()
            answer = taken.answer()
            connection.responses.held += bool(answer)
            if connection.meter is not None:
                connection.meter.made(ApiKey.PRODUCE, taken.correlation_id, len(answer), taken.broker_seconds)
            answers.append(answer)
        if answers:
            self._send(b"".join(answers))
        self._move()

    def _send(self, answers: bytes) -> None:
        if not answers:
            return
        connection = self.connection
        try:
            sent = connection.client_out.send_now(answers)
        except PeerLost as error:
            connection.abort(CloseCause.CLIENT_LOST, str(error))
            return
        if sent < len(answers):
            self._sending = True
            connection.spawn(self._finish, answers[sent:])

    async def _finish(self, unsent: bytes) -> None:
        try:
            await self.connection.client_out.send_all([unsent])
        except PeerLost as error:
            self.connection.abort(CloseCause.CLIENT_LOST, str(error))
        self._sending = False
        self.deliver()

    def end(self) -> None:
        """The client's connection is closed."""
        self.ended = True
        self._taken.clear()
        self._sending = False
        self._move()

    def _move(self) -> None:
        if self._waiting is not None:
            self._waiting.set()
            self._waiting = None
