"""Replays arrivals: each captured connection becomes one per leader that it needs, in order and in time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shoal.protocol.messages.produce import encode_partition, encode_plain_produce
from shoal.scenarios.replay.sending.connections import DueRequest, open_connections
from shoal.scenarios.replay.sending.statistics import ReplayStatistics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shoal.protocol.wire.types import TopicPartition
    from shoal.scenarios.replay.arrivals import Arrival, ArrivedBatch
    from shoal.scenarios.replay.clock import Clock
    from shoal.scenarios.replay.index.synthetic_batches import Maker
    from shoal.scenarios.replay.ledger import ReplayLedger
    from shoal.scenarios.replay.sending.wire import Address

__all__ = ["Player"]

_TIMEOUT_MS = 30_000


class Player:
    """`leaders`: partition -> address. `ledger` records every batch that is sent."""

    def __init__(
        self,
        leaders: Mapping[TopicPartition, Address],
        maker: Maker,
        ledger: ReplayLedger,
    ) -> None:
        self.leaders = leaders
        self.maker = maker
        self.ledger = ledger
        self.played = ReplayStatistics()

    async def play(self, arrivals: Iterable[Arrival], clock: Clock) -> ReplayStatistics:
        """Returns when all is answered. Raises TrafficFailed if an answer is a minute late after the last request."""
        async with open_connections(self.played) as connections:
            for arrival in arrivals:
                late = await clock.until(arrival.at)
                for address, parts in self._by_leader(arrival).items():
                    await connections.put(arrival.connection, address, self._due(arrival, parts), late)
        self.played.seconds = clock.elapsed()
        return self.played

    def _by_leader(self, arrival: Arrival) -> dict[Address, list[ArrivedBatch]]:
        found: dict[Address, list[ArrivedBatch]] = {}
        for part in arrival.parts:
            found.setdefault(self.leaders[part.topic_partition], []).append(part)
        return found

    def _due(self, arrival: Arrival, parts: list[ArrivedBatch]) -> DueRequest:
        answered = partial(self.played.produced, arrival.version) if arrival.acks else None
        return DueRequest(partial(self._frame, arrival, parts), len(parts), answered)

    def _frame(self, arrival: Arrival, parts: list[ArrivedBatch], correlation_id: int) -> bytes:
        played, version = self.played, arrival.version
        topics: dict[str, list[bytes]] = {}
        for part in parts:
            batch = self.maker.batch(part, self.ledger.sent(part, arrival.connection))
            topics.setdefault(part.topic, []).append(encode_partition(version, part.partition, [batch]))
            played.sent(part.records, len(batch), part.size)
        played.requests += 1
        elements = list(topics.items())
        return encode_plain_produce(version, correlation_id, arrival.client_id, arrival.acks, _TIMEOUT_MS, elements)
