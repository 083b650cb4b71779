"""Fetch v0-v3 for clients that read messages of magic 0 and 1, from brokers that support neither (KIP-283).

    request ── does the rest of the last answer follow? ── yes ──────────────────────────────────► fill, promise, send
                                 │ no
                                 ▼
               ask the broker (bounded, partitions in turn) ── gate: budget ── answer ── fill ── no records, and max
                                 ▲                                                               wait is not over
                                 └───────────── after the skipped offsets ◄───────────────────────────┘

A connection has one such request in progress: no other is read until its answer is sent (brokers do the same). While a
broker holds a long poll, no memory is held here. An answer is not read before its lease is granted.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from shoal.protocol.legacy.fetch.fetch import read_legacy_fetch
from shoal.proxy.legacy.answer import ClientLeft
from shoal.proxy.legacy.budget import Budget
from shoal.proxy.legacy.session import FetchSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.protocol.legacy.errors import Release
    from shoal.protocol.schema.headers import RequestHeader
    from shoal.proxy.config.settings import LegacySettings
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.legacy.counters import LegacyStatistics, LegacyTally

__all__ = ["LegacyFetches"]


class LegacyFetches:
    """The fetches of one listener, whose clients share one budget. `shown`: a connection's oldest possible release.

    `grace`: of the budget; `quiet`: of each connection's KeepAlive; both in seconds.
    """

    def __init__(
        self,
        settings: LegacySettings,
        tally: LegacyTally,
        shown: Callable[[Connection], Release],
        *,
        grace: float,
        quiet: float,
    ) -> None:
        self.settings = settings
        self.tally = tally
        self._shown = shown
        self.budget = Budget(settings.budget_bytes, grace=grace)
        self._quiet = quiet
        self._readers: dict[Connection, FetchSession] = {}

    async def handle(self, connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        reader = self._readers.get(connection)
        if reader is None:
            reader = FetchSession(connection, self.settings, self.budget, self.tally, quiet=self._quiet)
            self._readers[connection] = reader
        with suppress(ClientLeft):
            await reader.serve(read_legacy_fetch(frame, header), header, self._shown(connection))

    def closed(self, connection: Connection) -> None:
        reader = self._readers.pop(connection, None)
        if reader is not None:
            reader.held.release()

    def statistics(self) -> LegacyStatistics:
        return self.tally.statistics(self.budget.statistics())
