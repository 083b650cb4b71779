"""Fetch v0-v3 for clients that read messages of magic 0 and 1, from brokers that know neither (KIP-283).

    request ── what was left over from the last answer follows? ── yes ──────────────────────────► fill, promise, send
                                 │ no
                                 ▼
               ask the broker (bounded, partitions in turn) ── gate: budget ── answer ── fill ── nothing for the client, and
                                 ▲                                                               time left of its max wait
                                 └───────────── from behind what was left out ◄───────────────────────┘

A connection has one such request under way: nothing else of it is read until the answer has gone out (as a broker does it). While a
broker holds a long poll, nothing is held here; an answer that has come is not read before it is paid for.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from shoal.protocol.legacy.fetch.fetch import read_legacy_fetch
from shoal.proxy.legacy.answer import ClientLeft
from shoal.proxy.legacy.budget import Budget
from shoal.proxy.legacy.reader import FetchSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.protocol.legacy.errors import Release
    from shoal.protocol.schema.headers import RequestHeader
    from shoal.proxy.config.settings import LegacySettings
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.legacy.counters import LegacyStatistics, LegacyTally

__all__ = ["LegacyFetches"]


class LegacyFetches:
    """Of one listener: its clients share one budget. `shown`: how new a connection's client is at least."""

    def __init__(self, settings: LegacySettings, tally: LegacyTally, shown: Callable[[Connection], Release]) -> None:
        self.settings = settings
        self.tally = tally
        self._shown = shown
        self.budget = Budget(settings.budget_bytes)
        self._readers: dict[Connection, FetchSession] = {}

    async def handle(self, connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        reader = self._readers.get(connection)
        if reader is None:
            reader = self._readers[connection] = FetchSession(connection, self.settings, self.budget, self.tally)
        with suppress(ClientLeft):
            await reader.serve(read_legacy_fetch(frame, header), header, self._shown(connection))

    def closed(self, connection: Connection) -> None:
        reader = self._readers.pop(connection, None)
        if reader is not None:
            reader.held.release()

    def statistics(self) -> LegacyStatistics:
        return self.tally.statistics(self.budget.statistics())
