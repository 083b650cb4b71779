"""Brokers that close connections instead of serving them: a warning with what was seen and what to check.

A client only sees that its connection has ended, and connects again. Some answer ApiVersions to everybody and close at
the next request, others close at once. `_ENOUGH` such connections of one client, with none in between that was served,
are a warning, for each broker at most one in `_REPORT_SECONDS`.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING

import trio

from shoal.proxy.events.logs import event
from shoal.proxy.statistics import CloseCause

if TYPE_CHECKING:
    from shoal.proxy.cluster.cluster import Cluster
    from shoal.proxy.config.settings import Address
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.events.logs import LogThrottle

__all__ = ["EarlyEnds"]

log = logging.getLogger("shoal.listener")

_ENOUGH = 3
_MOST_ANSWERS = 2  # ApiVersions, perhaps in a second version
_REPORT_SECONDS = 60.0
_MOST_KEPT = 1000
_BY_BROKER = (CloseCause.UPSTREAM_CLOSED, CloseCause.UPSTREAM_LOST)


class EarlyEnds:
    """For one listener."""

    def __init__(self, cluster: Cluster, throttle: LogThrottle) -> None:
        self._cluster = cluster
        self._throttle = throttle
        self._seen: OrderedDict[tuple[Address, str], list[float]] = OrderedDict()

    def ended(self, connection: Connection, cause: CloseCause) -> None:
        if not connection.connected:
            return
        address, host = connection.upstream.address, connection.peer.host
        answers = connection.traffic().answers
        if cause not in _BY_BROKER or answers > _MOST_ANSWERS or not connection.unanswered:
            if answers:
                self._seen.pop((address, host), None)
            return
        what = _AFTER_VERSIONS if answers else _AT_ONCE
        if self._is_enough((address, host)) and self._throttle.is_news((what, address), _REPORT_SECONDS):
            self._log(connection, what)

    def _log(self, connection: Connection, what: str) -> None:
        address = connection.upstream.address
        broker = "a bootstrap broker" if connection.node_id is None else f"broker {connection.node_id}"
        values = event(
            f"cluster {self._cluster.name!r}: {broker} ({address}) {what}: {_ENOUGH} connections in a row, the last "
            f"of {connection.peer}. {self._advice(what)}",
            cluster=self._cluster.name,
            node_id=connection.node_id,
            broker=str(address),
            peer=str(connection.peer),
            answers=connection.traffic().answers,
        )
        log.warning("broker-closes-early", extra=values)

    def _is_enough(self, key: tuple[Address, str]) -> bool:
        """Count the end of a connection, and forget those that are old."""
        now = trio.current_time()
        times = [at for at in self._seen.pop(key, []) if at > now - _REPORT_SECONDS]
        self._seen[key] = [*times, now][-_ENOUGH:]
        if len(self._seen) > _MOST_KEPT:
            self._seen.popitem(last=False)
        return len(self._seen[key]) == _ENOUGH

    def _advice(self, what: str) -> str:
        cluster = self._cluster
        if what is _AFTER_VERSIONS:
            login = "" if cluster.logs_in else _LOGIN
            return f"{login}If the client is older than Kafka 0.11, it needs a listener with legacy = true"
        tls = _TLS if cluster.tls is None else ""
        return f"Check the broker's log and its max.connections.per.ip: for it, all clients have Shoal's address{tls}"


_AT_ONCE = "closes connections before it answers anything"
_AFTER_VERSIONS = "answers ApiVersions and closes connections at the next request"
_LOGIN = (
    "If it wants a login (a SASL port), set the client's security.protocol to SASL_SSL or SASL_PLAINTEXT, or let Shoal "
    "log in ([cluster.sasl]). "
)
_TLS = ". If it is a TLS port, add [cluster.tls]"
