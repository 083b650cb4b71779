"""Connections of a replay, each with a queue of unsent and a queue of unanswered requests.

There is one for each captured connection and broker. Open loop: a request is sent when due, whether or not earlier
ones are answered, at the captured clients' pace; beyond IN_FLIGHT unanswered requests it waits and is late.
"""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import trio

from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.scenarios.kafka.errors import TrafficFailed
from shoal.scenarios.replay.sending.wire import open_wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from shoal.scenarios.replay.sending.statistics import ReplayStatistics
    from shoal.scenarios.replay.sending.wire import Address, Wire

__all__ = ["IN_FLIGHT", "Connections", "DueRequest", "open_connections"]

IN_FLIGHT = 64
_QUEUED = 1_000  # requests of one connection that are due and not sent
_FINISH_S = 60.0
_MICRO = 1_000_000


class DueRequest(NamedTuple):
    """A request to send.

    `frame` encodes it for a correlation id. `batches`: how many are lost with it. `answered` gets the answer and the
    latency in seconds; None: no answer is expected.
    """

    frame: Callable[[int], bytes]
    batches: int
    answered: Callable[[bytes, float], None] | None


class _Asked(NamedTuple):
    at: float
    due: DueRequest


class Connections:
    """Use `open_connections`."""

    def __init__(self, nursery: trio.Nursery, played: ReplayStatistics) -> None:
        self.played = played
        self._nursery = nursery
        self._connections: dict[tuple[int, Address], _QueuedConnection] = {}

    async def put(self, connection: int, address: Address, due: DueRequest, late: float) -> None:
        """`late`: seconds behind the schedule."""
        key = connection, address
        if key not in self._connections:
            opened = self._connections[key] = _QueuedConnection(self, address)
            self._nursery.start_soon(opened.run)
            self.played.connections += 1
        self.played.lags.append(min(int(late * _MICRO), 2**32 - 1))
        await self._connections[key].put(due)

    def close(self) -> None:
        """No more requests follow."""
        for connection in self._connections.values():
            connection.close()


@asynccontextmanager
async def open_connections(played: ReplayStatistics) -> AsyncIterator[Connections]:
    """At the end of the block, all is answered. Raises TrafficFailed if that takes more than a minute."""
    async with trio.open_nursery() as nursery:
        connections = Connections(nursery, played)
        yield connections
        connections.close()
        nursery.cancel_scope.deadline = trio.current_time() + _FINISH_S
    if nursery.cancel_scope.cancelled_caught:
        raise TrafficFailed(f"the replay's last requests were not answered within {_FINISH_S:g} s")


class _QueuedConnection:
    def __init__(self, connections: Connections, address: Address) -> None:
        self._played = connections.played
        self._address = address
        self._in, self._out = trio.open_memory_channel[DueRequest](_QUEUED)
        self._asked: deque[_Asked] = deque()
        self._room = trio.Semaphore(IN_FLIGHT)
        self._answer_due = trio.Event()
        self._sent_all = False
        self._number = 0

    async def put(self, due: DueRequest) -> None:
        try:
            await self._in.send(due)
        except trio.BrokenResourceError:
            self._played.errors["connection lost"] += due.batches

    def close(self) -> None:
        self._in.close()

    async def run(self) -> None:
        """Returns when everything is answered, or the connection is lost."""
        with self._out:
            try:
                async with open_wire(self._address) as wire, trio.open_nursery() as nursery:
                    nursery.start_soon(self._answers, wire)
                    await self._requests(wire)
            except* (trio.BrokenResourceError, OSError, RemoteProtocolError):
                self._lost()

    def _lost(self) -> None:
        """Count requests without an answer, and those still in the queue."""
        lost = sum(asked.due.batches for asked in self._asked)
        with suppress(trio.WouldBlock, trio.EndOfChannel):
            while True:
                lost += self._out.receive_nowait().batches
        self._played.errors["connection lost"] += lost

    async def _requests(self, wire: Wire) -> None:
        with suppress(trio.EndOfChannel):
            while True:
                await self._room.acquire()  # before taking from the queue: a request in hand would be lost uncounted
                await self._send(wire, await self._out.receive())
        self._sent_all = True
        self._answer_due.set()

    async def _send(self, wire: Wire, due: DueRequest) -> None:
        self._number += 1
        frame = due.frame(self._number)
        if due.answered is not None:
            self._asked.append(_Asked(trio.current_time(), due))
            self._answer_due.set()
            await wire.send(frame)
            return
        self._room.release()
        try:
            await wire.send(frame)
        except BaseException:
            self._played.errors["connection lost"] += due.batches
            raise

    async def _answers(self, wire: Wire) -> None:
        while True:
            while not self._asked:
                if self._sent_all:
                    return
                self._answer_due = trio.Event()
                await self._answer_due.wait()
            frame = await wire.receive()
            asked = self._asked.popleft()
            self._room.release()
            if asked.due.answered is not None:
                asked.due.answered(frame, trio.current_time() - asked.at)
