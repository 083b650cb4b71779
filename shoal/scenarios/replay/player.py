"""Plays arrivals: every captured connection is a connection again (one to each leader that it needs), in order and in time.

Open loop: a request leaves when it is due, whether the ones before are answered or not, as the clients did whose pace it was; up to
IN_FLIGHT unanswered requests for each connection, beyond which it waits and is late. What is late is counted (`Played.lags`).
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import trio

from shoal.protocol.errors import RemoteProtocolError
from shoal.protocol.messages.produce import encode_partition, encode_plain_produce, read_produce_response
from shoal.protocol.multibatch.dialogue import error_name
from shoal.scenarios.kafka.errors import TrafficFailed
from shoal.scenarios.replay.played import Played
from shoal.scenarios.replay.wire import open_wire

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shoal.protocol.sasl import Credentials
    from shoal.scenarios.replay.arrivals import Arrival, Part
    from shoal.scenarios.replay.clock import Clock
    from shoal.scenarios.replay.ledger import Ledger
    from shoal.scenarios.replay.made_up import Maker
    from shoal.scenarios.replay.wire import Address, Wire

__all__ = ["IN_FLIGHT", "Player"]

IN_FLIGHT = 64
_QUEUED = 1_000  # requests of one connection that are due and not sent
_TIMEOUT_MS = 30_000
_FINISH_S = 60.0
_MICRO = 1_000_000


class _Asked(NamedTuple):
    version: int
    at: float
    batches: int


class _Due(NamedTuple):
    arrival: Arrival
    parts: tuple[Part, ...]


class Player:
    """`leaders`: (topic, partition) -> address. `ledger` is told of every batch that leaves."""

    def __init__(
        self,
        leaders: Mapping[tuple[str, int], Address],
        maker: Maker,
        ledger: Ledger,
        *,
        credentials: Credentials | None = None,
    ) -> None:
        self.leaders = leaders
        self.maker = maker
        self.ledger = ledger
        self.credentials = credentials
        self.played = Played()

    async def play(self, arrivals: Iterable[Arrival], clock: Clock) -> Played:
        """Returns when all is answered. Raises TrafficFailed where it is not within a minute of the last request."""
        lanes: dict[tuple[int, Address], _Lane] = {}
        async with trio.open_nursery() as nursery:
            for arrival in arrivals:
                late = await clock.until(arrival.at)
                for address, parts in self._by_leader(arrival).items():
                    key = arrival.connection, address
                    if key not in lanes:
                        lanes[key] = _Lane(self, arrival.connection, address)
                        nursery.start_soon(lanes[key].run)
                    self.played.lags.append(min(int(late * _MICRO), 2**32 - 1))
                    await lanes[key].put(_Due(arrival, parts))
            for lane in lanes.values():
                lane.close()
            nursery.cancel_scope.deadline = trio.current_time() + _FINISH_S
        if nursery.cancel_scope.cancelled_caught:
            raise TrafficFailed(f"the replay's last requests were not answered within {_FINISH_S:g} s")
        self.played.connections = len(lanes)
        self.played.seconds = clock.elapsed()
        return self.played

    def _by_leader(self, arrival: Arrival) -> dict[Address, tuple[Part, ...]]:
        found: dict[Address, list[Part]] = {}
        for part in arrival.parts:
            found.setdefault(self.leaders[part.topic, part.partition], []).append(part)
        return {address: tuple(parts) for address, parts in found.items()}


class _Lane:
    """One connection: what is due waits in a queue, what is sent and not answered in `_asked`."""

    def __init__(self, player: Player, connection: int, address: Address) -> None:
        self._player = player
        self._connection = connection
        self._address = address
        self._in, self._out = trio.open_memory_channel[_Due](_QUEUED)
        self._asked: deque[_Asked] = deque()
        self._room = trio.Semaphore(IN_FLIGHT)
        self._answer_due = trio.Event()
        self._sent_all = False
        self._number = 0

    async def put(self, due: _Due) -> None:
        try:
            await self._in.send(due)
        except trio.BrokenResourceError:
            self._player.played.errors["connection lost"] += len(due.parts)

    def close(self) -> None:
        self._in.close()

    async def run(self) -> None:
        """Until everything is answered, or the connection is lost."""
        with self._out:
            try:
                async with open_wire(self._address, self._player.credentials) as wire, trio.open_nursery() as nursery:
                    nursery.start_soon(self._answers, wire)
                    await self._requests(wire)
            except* (trio.BrokenResourceError, OSError, RemoteProtocolError):
                self._lost()

    def _lost(self) -> None:
        """What has no answer, and what is still in the queue."""
        lost = sum(asked.batches for asked in self._asked)
        with suppress(trio.WouldBlock, trio.EndOfChannel):
            while True:
                lost += len(self._out.receive_nowait().parts)
        self._player.played.errors["connection lost"] += lost

    async def _requests(self, wire: Wire) -> None:
        async for due in self._out:
            await self._room.acquire()
            frame = self._frame(due)
            if due.arrival.acks:
                self._asked.append(_Asked(due.arrival.version, trio.current_time(), len(due.parts)))
                self._answer_due.set()
            else:
                self._room.release()
            await wire.send(frame)
        self._sent_all = True
        self._answer_due.set()

    def _frame(self, due: _Due) -> bytes:
        player, played, arrival = self._player, self._player.played, due.arrival
        topics: dict[str, list[bytes]] = {}
        for part in due.parts:
            batch = player.maker.batch(part, player.ledger.sent(part, self._connection))
            topics.setdefault(part.topic, []).append(encode_partition(arrival.version, part.partition, [batch]))
            played.records += part.records
            played.bytes += len(batch)
            played.wanted_bytes += part.size
        played.requests += 1
        played.batches += len(due.parts)
        self._number += 1
        elements = list(topics.items())
        return encode_plain_produce(
            arrival.version, self._number, arrival.client_id, arrival.acks, _TIMEOUT_MS, elements
        )

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
            self._answered(asked, frame)

    def _answered(self, asked: _Asked, frame: bytes) -> None:
        played = self._player.played
        played.latencies.append(int((trio.current_time() - asked.at) * _MICRO))
        for one in read_produce_response(frame, asked.version).partitions:
            if one.error_code:
                played.errors[error_name(one.error_code)] += 1
