"""What a coalescing listener owes one client: the requests it has taken, in order, until each is answered.

A client's own connection to its broker stays as it is. At any time the client has either requests that were taken, or requests
at that broker, never both: a broker works on the requests of one connection one after the other, so neither kind may overtake
the other. Therefore answers leave in the order of the requests by construction, and nobody but this class sends to the client
while something is owed here.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

import trio

from shoal.protocol.messages.produce import encode_produce_response
from shoal.proxy.net.transport import PeerLost
from shoal.proxy.statistics import CloseCause

if TYPE_CHECKING:
    from shoal.protocol.coalesce.joinable import Joinable, Target
    from shoal.protocol.wire.types import Buffer, Topic
    from shoal.proxy.coalesce.lane import Lane
    from shoal.proxy.connection.connection import Connection

__all__ = ["CoalescedClient", "TakenRequest"]


MAX_TAKEN = 1000  # requests of one client without an answer; a client's default is 5


class TakenRequest:
    """A produce request that was taken, and what the brokers have said of its partitions so far."""

    __slots__ = (
        "_node_endpoints",
        "_parts",
        "_throttle_ms",
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
        self.number = 0 if member.connection.tap is None else member.connection.tap.next_number()
        self._parts: dict[Topic, list[Buffer]] = {}
        self._throttle_ms = 0
        self._node_endpoints: Buffer = b""

    def said(self, target: Target, content: bytes, throttle_ms: int, node_endpoints: Buffer) -> None:
        """`content`: the element of PartitionResponses."""
        self.missing -= 1
        self._parts.setdefault(target.topic, []).append(content)
        self._throttle_ms = max(self._throttle_ms, throttle_ms)
        self._node_endpoints = node_endpoints or self._node_endpoints

    def answer(self) -> list[Buffer]:
        """None where nobody asked for one."""
        if self.silent:
            return []
        return encode_produce_response(
            self.version,
            self.correlation_id,
            list(self._parts.items()),
            throttle_ms=self._throttle_ms,
            node_endpoints=self._node_endpoints,
        )


class CoalescedClient:
    """One client connection of a coalescing listener."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.own_way: str | None = None  # why this connection is never joined
        self.alone_until = -math.inf  # its requests may be retries until then
        self.behind: float | None = None  # its next request goes alone, behind what was taken from others until then
        self.lane: Lane | None = None  # where what is unanswered was put
        self.asked_names = False  # the topics of its next request, just now
        self.ended = False
        self.heard = -1  # bytes that its own broker connection has received,
        self.heard_at = 0.0  # and when that last changed
        self._taken: deque[TakenRequest] = deque()
        self._sending = False
        self._moved = trio.Event()

    @property
    def unanswered(self) -> int:
        return len(self._taken)

    def take(self, joinable: Joinable, correlation_id: int) -> TakenRequest:
        taken = TakenRequest(self, joinable, correlation_id)
        self._taken.append(taken)
        return taken

    @property
    def is_full(self) -> bool:
        """The client does not read its answers, or has asked too much at once: nothing more is taken meanwhile."""
        return self._sending or len(self._taken) >= MAX_TAKEN

    async def settled(self) -> None:
        """Until nothing is owed, and nothing is on its way."""
        while self._taken or self._sending:
            await self._moved.wait()

    async def until_room(self) -> None:
        while self.is_full:
            await self._moved.wait()

    def deliver(self) -> None:
        """Send what is complete. Synchronous: what the kernel does not take at once is sent by a task."""
        if self._sending or self.ended:
            return
        buffers: list[Buffer] = []
        while self._taken and not self._taken[0].missing:
            answer = self._taken.popleft().answer()
            self.connection.responses.held += bool(answer)
            buffers += answer
        if buffers:
            self._send(buffers)
        self._move()

    def _send(self, buffers: list[Buffer]) -> None:
        connection = self.connection
        try:
            unsent = connection.client_out.gather_now([b"".join(buffers)])
        except PeerLost as error:
            connection.abort(CloseCause.CLIENT_LOST, str(error))
            return
        if unsent:
            self._sending = True
            connection.spawn(self._finish, unsent)

    async def _finish(self, unsent: bytes) -> None:
        try:
            await self.connection.client_out.send_all([unsent])
        except PeerLost as error:
            self.connection.abort(CloseCause.CLIENT_LOST, str(error))
        self._sending = False
        self.deliver()

    def end(self) -> None:
        """The client's connection is closed: nobody waits any more."""
        self.ended = True
        self._taken.clear()
        self._sending = False
        self._move()

    def _move(self) -> None:
        self._moved.set()
        self._moved = trio.Event()
