"""The composition root: clusters, listeners, timeouts, signals.

    serve ──┬── signals: SIGTERM and SIGINT drain, a second one ends at once; SIGHUP reads files again
            ├── the watch for TLS files that change or expire
            ├── timeouts of all connections
            ├── one metadata request per listener (so that brokers' ports are bound before a client asks)
            └── one listener each ──┬── accept, one task per port
                                    └── one task per connection, which has two pumps

Drain: ports are closed, no further requests are read, and a connection ends when its requests are answered, or after
`drain_seconds`.
"""

from __future__ import annotations

import logging
import secrets
import signal
from contextlib import nullcontext
from itertools import chain, count
from typing import TYPE_CHECKING

import trio

from shoal.proxy.capture.frames import FrameCapture
from shoal.proxy.capture.index import Capture
from shoal.proxy.cluster.cluster import Cluster
from shoal.proxy.cluster.state_files import require_state_dir
from shoal.proxy.config.reread import summary
from shoal.proxy.connection.timeouts import CHECK_SECONDS, watch
from shoal.proxy.listener.admission import Strangers
from shoal.proxy.listener.listener import Listener
from shoal.proxy.listener.plain import PlainPath
from shoal.proxy.net.fast_lane import FastLane
from shoal.proxy.net.tls.reload import TlsReload
from shoal.proxy.statistics import ServerStatistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from shoal.proxy.config.settings import Mode, Settings
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.listener_api import Path
    from shoal.proxy.errors import OperatorError

__all__ = ["Server", "serve"]

log = logging.getLogger("shoal.server")

Paths = "Mapping[Mode, Callable[[Listener], Path[Connection]]]"
"""The path of each mode; a missing mode is served as plain."""


class Server:
    """Binds all ports when created. `check_seconds`: interval of the timeout checks. Raises OperatorError."""

    def __init__(
        self,
        settings: Settings,
        paths: Mapping[Mode, Callable[[Listener], Path[Connection]]] | None = None,
        *,
        learn: bool = True,
        check_seconds: float = CHECK_SECONDS,
    ) -> None:
        require_state_dir(settings.state_dir)
        _require_tls_files(settings)
        self.settings = settings
        self._learns = learn
        self._check_seconds = check_seconds
        self.capture = None if settings.capture is None else Capture(settings.capture, settings.tags, self._topic_name)
        self.clusters = {
            cluster.name: Cluster(cluster, settings.limits, capture=self.capture, will_be_asked=learn)
            for cluster in settings.clusters
        }
        self.raw_capture = _raw_capture(settings, self.capture)
        self.listeners: dict[str, Listener] = {}
        self._scope = trio.CancelScope()
        self._draining = False
        self._error: OperatorError | None = None
        strangers = Strangers(settings.limits)
        numbers = count(1)  # of client connections, in both captures
        try:
            for listener in settings.listeners:
                path = (paths or {}).get(listener.mode, PlainPath)
                made = Listener(
                    listener,
                    self.clusters[listener.cluster],
                    settings.limits,
                    path,
                    strangers,
                    numbers=numbers,
                    raw_capture=self.raw_capture,
                    fail=self._fail,
                )
                self.listeners[listener.name] = made
                made.bind()
        except BaseException:
            self.close()
            raise

        contexts = [cluster.tls for cluster in self.clusters.values()]
        contexts += [listener.tls for listener in self.listeners.values()]
        self._tls = TlsReload([tls for tls in contexts if tls is not None])

    def _fail(self, error: OperatorError) -> None:
        """End with an error that only the operator can fix."""
        self._error = self._error or error
        self._scope.cancel()

    async def run(self, *, task_status: trio.TaskStatus[Server] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until drained or stopped; then all connections and ports are closed. Raises OperatorError."""
        try:
            with self._scope, FastLane.open(), self.raw_capture or nullcontext():
                await self._serve(task_status)
        finally:
            self.close()
            if self.capture is not None:
                self.capture.close()
        if self._error is not None:
            raise self._error

    async def _serve(self, task_status: trio.TaskStatus[Server]) -> None:
        """Run the services until the last listener has ended."""
        async with trio.open_nursery() as services:
            services.start_soon(watch, self.connections, self._check_seconds)
            services.start_soon(self._tls.run)
            if self.capture is not None:
                services.start_soon(self.capture.run)
            for listener in self.listeners.values() if self._learns else ():
                services.start_soon(listener.ports.ask_for_brokers)
            async with trio.open_nursery() as serving:
                for listener in self.listeners.values():
                    serving.start_soon(listener.run)
                task_status.started(self)
            services.cancel_scope.cancel()

    def _topic_name(self, cluster: str, topic_id: bytes) -> str | None:
        return self.clusters[cluster].topic_name(topic_id)

    def connections(self) -> Iterator[Connection]:
        return chain.from_iterable(listener.connections for listener in self.listeners.values())

    def drain(self) -> None:
        """Stop accepting, answer pending requests, end. A second call ends at once."""
        if self._draining:
            self._scope.cancel()
        self._draining = True
        self._scope.deadline = trio.current_time() + self.settings.limits.drain_seconds
        for listener in self.listeners.values():
            listener.drain()

    async def reload(self) -> None:
        """Read all certificates, keys, users and secrets again, for new connections and logins. Wrong ones are an error
        in the log, and the former ones stay.
        """
        found = await self._tls.reload()
        for cluster in self.clusters.values():
            found += await trio.to_thread.run_sync(cluster.reread_secrets)
        for listener in self.listeners.values():
            found += [] if listener.login is None else await listener.login.reread()
        log.info("SIGHUP: %s", summary(found))

    def close(self) -> None:
        for listener in self.listeners.values():
            listener.close()

    def statistics(self) -> ServerStatistics:
        return ServerStatistics(
            listeners=tuple(listener.statistics() for listener in self.listeners.values()),
            capture=None if self.capture is None else self.capture.statistics(),
            raw_capture=None if self.raw_capture is None else self.raw_capture.statistics(),
        )


def _require_tls_files(settings: Settings) -> None:
    """All problems with files are reported together. Raises OperatorError."""
    if settings.has_tls:
        from shoal.proxy.net.tls.contexts import read_all

        read_all(settings)


def _raw_capture(settings: Settings, capture: Capture | None) -> FrameCapture | None:
    if settings.raw_capture is None:
        return None
    proxy = secrets.token_hex(4) if capture is None else capture.proxy
    return FrameCapture(settings.raw_capture, proxy, settings.limits.frame_bytes)


async def serve(
    settings: Settings,
    *,
    paths: Mapping[Mode, Callable[[Listener], Path[Connection]]] | None = None,
    task_status: trio.TaskStatus[Server] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run until drained by SIGTERM or SIGINT; SIGHUP reloads. Raises OperatorError for a wrong port or state file."""
    server = Server(settings, paths)
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_obey_signals, server, signals)
            await server.run(task_status=task_status)
            nursery.cancel_scope.cancel()


async def _obey_signals(server: Server, signals: object) -> None:
    async for number in signals:  # type: ignore[attr-defined]
        if number == signal.SIGHUP:
            await server.reload()
            continue
        log.info("%s: draining for at most %g s", signal.Signals(number).name, server.settings.limits.drain_seconds)
        server.drain()
