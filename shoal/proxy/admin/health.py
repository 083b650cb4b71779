"""/livez and /readyz.

/livez is answered by the proxy's own event loop: any answer shows that the loop turns. (`limits.stall-exit` ends a
process whose loop does not.) It has no other condition: a restart of Shoal does not mend a broker.

/readyz: the ports of every listener are open, every cluster has answered lately, and Shoal is serving (SIGTERM ends
that, before connections end). A cluster counts as answering for `FRESH_SECONDS` after it has answered a client that is
still connected, or was asked here; otherwise, or if a connection has failed since, it is asked now, over a
connection of Shoal's own, within `PATIENCE_SECONDS`. The question goes on after that, and the next request gets its
result. A connection alone shows nothing: the kernel of a broker that hangs accepts it.
"""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import trio

from shoal.proxy.admin.json import as_json
from shoal.proxy.cluster.cluster import NotAnswered, NotLearned, NotReached
from shoal.proxy.net.transport import heard_ago

if TYPE_CHECKING:
    from shoal.proxy.admin.http import Request, Response
    from shoal.proxy.admin.lag import LoopLag
    from shoal.proxy.cluster.cluster import Cluster
    from shoal.proxy.lifecycle.server import Server

__all__ = ["FRESH_SECONDS", "PATIENCE_SECONDS", "Health", "closed_listeners"]

FRESH_SECONDS: Final = 10.0
PATIENCE_SECONDS: Final = 0.8  # Kubernetes waits for a second


class Health:
    def __init__(
        self,
        server: Server,
        lag: LoopLag,
        tasks: trio.Nursery,
        *,
        patience: float = PATIENCE_SECONDS,
        fresh: float = FRESH_SECONDS,
    ) -> None:
        self._fresh = fresh
        self._patience = patience
        self._server = server
        self._lag = lag
        self._tasks = tasks
        self._asking: dict[str, trio.Event] = {}
        self._answered_at: dict[str, float] = {}  # by name of the cluster

    async def live(self, request: Request) -> Response:
        return as_json({"status": "live", "loop_lag_seconds": round(self._lag.last, 6)})

    async def ready(self, request: Request) -> Response:
        since = trio.current_time()
        answering = {name for name, cluster in self._server.clusters.items() if self._answers(cluster)}
        with trio.move_on_after(self._patience):
            async with trio.open_nursery() as waiting:
                for name, cluster in self._server.clusters.items():
                    if name not in answering:
                        waiting.start_soon(self._ask(cluster).wait)
        found: dict[str, dict[str, str | None]] = {  # by name, why it is not ready; None: it is
            "clusters": {
                name: None if name in answering else self._why_not(cluster, since)
                for name, cluster in self._server.clusters.items()
            },
            "listeners": closed_listeners(self._server),
        }
        state = self._server.state
        is_ready = state.is_ready and all(
            reason is None for part in ("clusters", "listeners") for reason in found[part].values()
        )
        document = {"ready": is_ready, "state": state.name.lower(), **found}
        return as_json(document, HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE)

    def _why_not(self, cluster: Cluster, since: float) -> str | None:
        """What it has answered `since` counts: meanwhile clients may have tried another broker, which is down."""
        if self._answered_at.get(cluster.name, -math.inf) >= since or self._answers(cluster):
            return None
        return cluster.contact.problem or "no answer yet"

    def _answers(self, cluster: Cluster) -> bool:
        if cluster.contact.problem is not None or cluster.name in self._asking:
            return False
        is_fresh = trio.current_time() - self._answered_at.get(cluster.name, -math.inf) < self._fresh
        return is_fresh or self._answers_clients(cluster)

    def _answers_clients(self, cluster: Cluster) -> bool:
        return any(
            connection.connected
            and connection.cluster is cluster
            and connection.responses.received
            and heard_ago(connection.upstream.transport) < self._fresh
            for connection in self._server.connections()
        )

    def _ask(self, cluster: Cluster) -> trio.Event:
        """-> set when the cluster has answered, or not: one question at a time."""
        asking = self._asking.get(cluster.name)
        if asking is None:
            asking = self._asking[cluster.name] = trio.Event()
            self._tasks.start_soon(self._ask_until, cluster, asking)
        return asking

    async def _ask_until(self, cluster: Cluster, done: trio.Event) -> None:
        try:
            await self._ask_for_metadata(cluster)
        finally:
            del self._asking[cluster.name]
            done.set()

    async def _ask_for_metadata(self, cluster: Cluster) -> None:
        try:
            await cluster.ask_metadata()
        except NotLearned as error:
            # A broker that demands a login closes the connection, and answers clients that log in.
            if isinstance(error, (NotAnswered, NotReached)) or not cluster.demands_login:
                return cluster.contact.note(str(error))
        else:
            cluster.contact.note()
        self._answered_at[cluster.name] = trio.current_time()
        return None


def closed_listeners(server: Server) -> dict[str, str | None]:
    """By name, why a listener is not ready; None: it is."""
    return {name: None if x.is_bound else "its ports are closed" for name, x in server.listeners.items()}
