"""/status: what a running Shoal knows about itself, as one JSON document.

Each owner gives its own facts: `Path.status`, `Listener.status`, `Cluster.status`. Counters are beside them, under the
names that the log's JSON lines have.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import trio

from shoal.proxy.config.identity import host_name, shoal_version
from shoal.proxy.config.quantities import utc

if TYPE_CHECKING:
    from shoal.proxy.admin.lag import LoopLag
    from shoal.proxy.lifecycle.server import Server
    from shoal.proxy.net.tls.contexts import TlsContext
    from shoal.proxy.statistics import ListenerStatistics

__all__ = ["Status"]

_TRAFFIC = ("requests", "answers", "from_client", "to_upstream", "from_upstream", "to_client")


class Status:
    def __init__(self, server: Server, lag: LoopLag) -> None:
        self._server = server
        self._lag = lag
        self._version = shoal_version()
        self._started = time.time()
        self._started_at = trio.current_time()

    def document(self) -> dict[str, object]:
        """Synchronous, so that all figures are of one moment."""
        server = self._server
        statistics = server.statistics()
        counts = {listener.name: listener for listener in statistics.listeners}
        return {
            "version": self._version,
            "pid": os.getpid(),
            "host": host_name(),
            "started": utc(self._started),
            "uptime_seconds": round(trio.current_time() - self._started_at, 3),
            "state": server.state.name.lower(),
            "loop_lag_seconds": round(self._lag.last, 6),
            "state_dir": server.settings.state_dir,
            "listeners": [
                {**listener.status(), **_counters(counts[name])} for name, listener in server.listeners.items()
            ],
            "clusters": [cluster.status() for cluster in server.clusters.values()],
            "certificates": [entry for tls in server.tls for entry in _certificates(tls)],
            "capture": statistics.capture,
            "raw_capture": statistics.raw_capture,
        }


def _counters(found: ListenerStatistics) -> dict[str, object]:
    counters: dict[str, object] = {
        "connections": found.active,
        "opened": found.opened,
        "closed": {cause.name.lower(): count for cause, count in found.closed.items() if count},
        "in_flight": found.in_flight,
        "state_errors": found.state_errors,
        "traffic": {name: getattr(found.traffic, name) for name in _TRAFFIC},
    }
    for statistics in found.path:
        counters |= statistics.values()
    return counters


def _certificates(tls: TlsContext) -> list[dict[str, object]]:
    return [
        {
            "where": tls.where,
            "setting": used.setting,
            "file": str(used.file),
            "subject": used.certificate.subject,
            "expires": utc(used.certificate.not_after),
        }
        for used in tls.loaded.certificates
    ]
