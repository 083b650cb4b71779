"""The composition root: clusters, listeners, timeouts.

    Server.run ──┬── the watch for TLS files that change or expire
                 ├── timeouts of all connections
                 ├── one metadata request per listener (so that brokers' ports are bound before a client asks)
                 └── one listener each ──┬── accept, one task per port
                                         └── one task per connection, which has two pumps

Drain: ports are closed, no further requests are read, and a connection ends when its requests are answered, or after
`drain_seconds`. With drain = "until-clients-gone" Shoal first serves on until its clients have gone. The states of the
server are those of `state`.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import trio

from shoal.proxy.capture.frames import FrameCapture
from shoal.proxy.capture.index import Capture
from shoal.proxy.cluster.cluster import Cluster
from shoal.proxy.cluster.state_files import require_state_dir
from shoal.proxy.config.changes import diff
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.reread import summary
from shoal.proxy.config.settings import Drain, Mode
from shoal.proxy.connection.timeouts import CHECK_SECONDS, watch
from shoal.proxy.events.logs import event
from shoal.proxy.lifecycle.reload import Prepared, Reload, Serving, as_fields, as_text, checked_in_force
from shoal.proxy.lifecycle.state import ServerEvent, ServerState, after
from shoal.proxy.lifecycle.supervisor import STOPPING, notify
from shoal.proxy.lifecycle.waiting import until_clients_gone
from shoal.proxy.listener.admission import Strangers
from shoal.proxy.listener.listener import Listener, Shared
from shoal.proxy.listener.plain import PlainPath
from shoal.proxy.listener.sockets import ListeningSockets
from shoal.proxy.net.fast_lane import FastLane
from shoal.proxy.net.tls.reload import TlsReload
from shoal.proxy.net.trio_internals import explain
from shoal.proxy.statistics import ServerStatistics

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Mapping

    from shoal.proxy.config.settings import ClusterSettings, Limits, ListenerSettings, Settings
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.listener_api import Path
    from shoal.proxy.lifecycle.taking import Taking
    from shoal.proxy.net.tls.contexts import TlsContext

__all__ = ["Paths", "Server"]

log = logging.getLogger("shoal.server")

_STOPS = frozenset({ServerEvent.WAIT, ServerEvent.DRAIN, ServerEvent.END})
_UNSTOPPED = frozenset({ServerState.STARTING, ServerState.SERVING})
_REFUSALS = (OperatorError, OSError, ImportError)  # of a reload; at the limit of open files no module can be loaded

Paths: TypeAlias = "Mapping[Mode, Callable[[Listener], Path[Connection]]]"
"""The path of each mode; a missing mode is served as plain."""


class Server:
    """Binds all ports when created. `check_seconds`: interval of the timeout checks. Raises OperatorError.

    `taking`: another Shoal still serves, and this one takes over from it. `accepts` and `leads` are False only with
    workers (shoal/proxy/workers): other processes accept at these ports; another process checks the settings, and logs
    the result of a reload.
    """

    def __init__(
        self,
        settings: Settings,
        paths: Paths | None = None,
        *,
        learn: bool = True,
        check_seconds: float = CHECK_SECONDS,
        sockets: ListeningSockets | None = None,
        taking: Taking | None = None,
        accepts: bool = True,
        leads: bool = True,
    ) -> None:
        require_state_dir(settings.state_dir)
        _require_tls_files(settings)
        self._learns = learn
        self._check_seconds = check_seconds
        self._accepts = accepts
        self._leads = leads
        captures = settings if accepts else replace(settings, capture=None, raw_capture=None)
        self.capture = None if captures.capture is None else Capture(captures.capture, settings.tags, self._topic_name)
        self.raw_capture = _raw_capture(captures, self.capture)
        self._serving = Serving(settings=settings, clusters={}, listeners={}, sockets=sockets or ListeningSockets())
        for cluster in settings.clusters:
            self.clusters[cluster.name] = self._cluster(settings.limits, cluster)
        self._scope = trio.CancelScope()
        self._services: trio.Nursery | None = None
        self._starting = trio.CancelScope()
        self._taking = taking
        self.when_taken_over: list[Callable[[], None]] = []
        self.state = ServerState.STARTING
        self.started = trio.Event()  # all listeners accept
        self.last_reload: Mapping[str, object] = {}  # result, text, and the fields of the log line
        self._ports_are_free = trio.Event()  # else another Shoal is about to take over
        self._ports_are_free.set()
        self._was_signalled = False
        self.draining = trio.Event()
        self._also_listening: dict[str, socket.socket] = {}
        self._error: OperatorError | None = None
        self._shared = Shared(
            strangers=Strangers(settings.limits),
            sockets=self._serving.sockets,
            raw_capture=self.raw_capture,
            accepts=accepts,
        )
        self.clients = self._shared.clients
        self._running: trio.Nursery | None = None  # the listeners
        try:
            for listener in settings.listeners:
                cluster_of = self.clusters[listener.cluster]
                made = self._listener(paths or {}, settings, self._fail, listener, cluster_of, None)
                self.listeners[listener.name] = made
                made.bind(begin=taking is None)
        except BaseException:
            self.close()
            raise
        self._tls = TlsReload(self.tls)

    @property
    def settings(self) -> Settings:
        return self._serving.settings

    @property
    def clusters(self) -> dict[str, Cluster]:
        return self._serving.clusters

    @property
    def listeners(self) -> dict[str, Listener]:
        return self._serving.listeners

    @property
    def tls(self) -> list[TlsContext]:
        """The contexts of all clusters and listeners."""
        contexts = [cluster.tls for cluster in self.clusters.values()]
        contexts += [listener.tls for listener in self.listeners.values()]
        return [tls for tls in contexts if tls is not None]

    def _cluster(self, limits: Limits, settings: ClusterSettings) -> Cluster:
        return Cluster(settings, limits, capture=self.capture, will_be_asked=self._learns)

    def _listener(
        self,
        paths: Paths,
        settings: Settings,
        fail: Callable[[OperatorError], None],
        listener: ListenerSettings,
        cluster: Cluster,
        former: Listener | None,
    ) -> Listener:
        return Listener(
            listener,
            cluster,
            settings.limits,
            paths.get(listener.mode, PlainPath),
            self._shared,
            former=former,
            counts_apis=settings.admin.listen is not None,
            fail=fail,
        )

    def _fail(self, error: OperatorError) -> None:
        """End with an error that only the operator can fix."""
        self._error = self._error or error
        self._end()

    def _report(self, event: ServerEvent) -> None:
        self.state = after(self.state, event)
        if event in _STOPS:
            notify(STOPPING)

    async def run(self, *, task_status: trio.TaskStatus[Server] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until drained or stopped; then all connections and ports are closed. Raises OperatorError."""
        try:
            with self._scope, FastLane.open() as lane, self.raw_capture or nullcontext():
                if lane is None:
                    log.warning("no-fast-lane", extra=event(explain(), trio=trio.__version__))
                await self._serve(task_status)
        finally:
            self.close()
            self._report(ServerEvent.CLOSED)
            if self.capture is not None:
                self.capture.close()
        if self._error is not None:
            raise self._error

    async def _serve(self, task_status: trio.TaskStatus[Server]) -> None:
        """Run the services until it drains, and the last listener has ended."""
        async with trio.open_nursery() as self._services:
            services = self._services
            services.start_soon(watch, self.connections, self._check_seconds)
            services.start_soon(self._tls.run)
            if self.capture is not None:
                services.start_soon(self.capture.run)
            async with trio.open_nursery() as serving:
                self._running = serving
                serving.start_soon(self.draining.wait)
                await self._start(services, serving, task_status)
            services.cancel_scope.cancel()

    async def _start(self, services: trio.Nursery, serving: trio.Nursery, task_status: trio.TaskStatus[Server]) -> None:
        """Accept clients, those of mirrors when the Shoal before has closed its files. Raises OperatorError."""
        taking, listeners = self._taking, list(self.listeners.values())
        with self._starting:
            if taking is not None:
                await taking.commit()
        task_status.started(self)
        if self._is_stopping():  # a signal was faster
            return
        for listener in listeners if self._learns else ():
            services.start_soon(listener.ports.ask_for_brokers)
        later = [] if taking is None else [x for x in listeners if x.settings.mode is not Mode.PLAIN]
        for listener in listeners:
            if listener not in later:
                serving.start_soon(self._run, listener)
        if taking is not None and later:
            self._starting = trio.CancelScope()
            with self._starting:
                await taking.released(self.settings.locked_files)
            if self._is_stopping():
                return
            for listener in later:
                listener.path.begin()
                serving.start_soon(self._run, listener)
        if taking is not None:
            services.start_soon(taking.ended)
        self._report(ServerEvent.STARTED)
        self.started.set()

    def _is_stopping(self) -> bool:
        return not self.state.accepts

    def _topic_name(self, cluster: str, topic_id: bytes) -> str | None:
        known = self.clusters.get(cluster)
        return None if known is None else known.topic_name(topic_id)

    async def _run(self, listener: Listener) -> None:
        await listener.run()
        leaving = self._serving.leaving
        if listener in leaving:
            leaving.remove(listener)
            if listener.name in self.listeners:
                self.listeners[listener.name].former_ended(listener)

    def all_listeners(self) -> Iterator[Listener]:
        """Also those that a reload has removed or replaced, and that drain."""
        return chain(self.listeners.values(), self._serving.leaving)

    def connections(self) -> Iterator[Connection]:
        return chain.from_iterable(listener.connections for listener in self.all_listeners())

    def stop(self, signal_name: str) -> None:
        """The first signal ends in order: at once, or when the clients have gone. The second one ends at once."""
        limits = self.settings.limits
        was_signalled, self._was_signalled = self._was_signalled, True
        if self.state is ServerState.DRAINING and not was_signalled:  # since another Shoal has taken over
            return self._log_draining(signal_name, round(self._scope.deadline - trio.current_time(), 1), "already, ")
        if self.state not in _UNSTOPPED:
            log.info("ending-at-once", extra=event(f"{signal_name}: ending at once", signal=signal_name.lower()))
            return self._end()
        if limits.drain is Drain.AT_ONCE or self._services is None or self.state is ServerState.STARTING:
            return self._drain_after(signal_name)
        self._report(ServerEvent.WAIT)
        return self._services.start_soon(self._drain_without_clients, signal_name)

    async def _drain_without_clients(self, signal_name: str) -> None:
        await until_clients_gone(self.connections, self.settings.limits.drain_wait_seconds)
        if self.state is ServerState.WAITING_FOR_CLIENTS:  # else another Shoal has taken over, or a second signal came
            self._drain_after(signal_name)

    def _drain_after(self, signal_name: str) -> None:
        self._log_draining(signal_name, self.settings.limits.drain_seconds)
        self.drain()

    def _log_draining(self, signal_name: str, seconds: float, already: str = "") -> None:
        text = f"{signal_name}: draining {already}for at most {seconds:g} s"
        log.info("draining", extra=event(text, signal=signal_name.lower(), seconds=seconds))

    def drain(self) -> None:
        """Stop accepting, answer pending requests, end. A second call ends at once."""
        if not self.state.accepts:
            return self._end()
        self._report(ServerEvent.DRAIN)
        self._scope.deadline = trio.current_time() + self.settings.limits.drain_seconds
        self._starting.cancel()
        self.draining.set()
        for listener in self.all_listeners():
            listener.drain()
        return None

    def end(self) -> None:
        """At once."""
        if self.state is not ServerState.ENDED:
            self._end()

    def _end(self) -> None:
        self._report(ServerEvent.END)
        self._scope.cancel()

    async def reconfigure(
        self,
        load: Callable[[], Settings],
        paths: Callable[[Settings], Paths],
        prepare: Callable[[Settings], Prepared] | None = None,
    ) -> Reload | None:
        """Use the settings that `load` reads, as far as they need no restart. None: they are refused, and the log has
        all findings; the former settings stay, as a whole. `prepare`: what else takes part; raises OperatorError.

        Waits while another Shoal is about to take over.
        """
        try:
            wanted = await trio.to_thread.run_sync(_load_and_check, load)
            await self._ports_are_free.wait()
            if not self.state.is_ready:
                text = "the configuration is not reloaded: Shoal is ending"
                self.last_reload = {"result": "ignored", "text": text}
                log.info("reload-ignored", extra=event(text))
                return None
            former = self.settings
            used = checked_in_force(former, wanted) if self._leads else wanted
            part = None if prepare is None else prepare(used)
            try:
                reload = self._prepare(used, paths)
            except BaseException:
                if part is not None:
                    part.undo()
                raise
        except _REFUSALS as error:
            self._refuse(_findings(error))
            return None
        self._apply(reload)
        if part is not None:
            part.apply()
        if findings := await self._share():
            findings += await self._go_back(former, paths, prepare)
            self._refuse(findings)
            return None
        values = as_fields(diff(former, wanted), reload.changes, self.settings)
        self.last_reload = {"result": "reloaded", "text": as_text(values), **values}
        if self._leads:
            log.info("reloaded", extra=event(as_text(values), **values))
        return reload

    def _refuse(self, findings: list[str]) -> None:
        text = f"the configuration is not reloaded, the former one stays in use: {'; '.join(findings)}"
        self.last_reload = {"result": "refused", "text": text, "findings": findings}
        if self._leads:
            log.error("reload-refused", extra=event(text, findings=findings))

    async def _go_back(
        self, former: Settings, paths: Callable[[Settings], Paths], prepare: Callable[[Settings], Prepared] | None
    ) -> list[str]:
        """All processes use the settings as before the reload; -> why that cannot be: then they use the new ones."""
        if not self.state.is_ready:
            return []
        findings: list[str] = []
        try:
            self._apply(self._prepare(former, paths))
            if prepare is not None:
                prepare(former).apply()
        except _REFUSALS as error:
            findings = _findings(error)
        await self._share(or_end=True)
        return findings

    async def _share(self, *, or_end: bool = False) -> list[str]:
        """Let other processes use the settings; -> why one of them cannot. `or_end`: then that one ends."""
        return []

    def _prepare(self, settings: Settings, paths: Callable[[Settings], Paths]) -> Reload:
        return Reload(
            self._serving,
            settings,
            make_cluster=partial(self._cluster, settings.limits),
            make_listener=partial(self._listener, paths(settings) if self._accepts else {}, settings, _log_failure),
        )

    def _apply(self, reload: Reload) -> None:
        assert self._running is not None
        assert self._services is not None
        begun = reload.apply()
        self._shared.strangers.use(self.settings.limits)
        self._tls.use(self.tls)
        if self.capture is not None:
            self.capture.use_tags(self.settings.tags)
        for listener in self.listeners.values():
            listener.count_apis(counted=self.settings.admin.listen is not None)
        for listener in begun:
            self._running.start_soon(self._run, listener)
        asked = {change.cluster for change in reload.changes if change.cluster is not None}
        for listener in self.listeners.values() if self._learns else ():
            if listener in begun or listener.cluster.name in asked:
                self._services.start_soon(listener.ports.ask_for_brokers)

    # -- another Shoal takes over (lifecycle/giving.py) ----------------------------------------------------------------

    def listening(self) -> list[tuple[str, socket.socket]]:
        """All sockets that listen, and what each is for: a listener's mode, or what `also_listens` says.

        A drain has closed those of listeners.
        """
        of_clients = [(x.settings.mode.value, sock) for x in self.listeners.values() for sock in x.ports.listening()]
        return [(use, sock) for use, sock in (*of_clients, *self._also_listening.items()) if sock.fileno() >= 0]

    def also_listens(self, use: str, sock: socket.socket | None) -> None:
        """One socket for each use; None: no longer."""
        self._also_listening.pop(use, None)
        if sock is not None:
            self._also_listening[use] = sock

    def freeze_ports(self, *, frozen: bool) -> None:
        """While another Shoal takes over, no port is bound, and none is written to the state directory."""
        if frozen:
            self._ports_are_free = trio.Event()
        else:
            self._ports_are_free.set()
        for listener in self.all_listeners():
            listener.ports.freeze(frozen=frozen)

    def hand_over(self) -> None:
        """Another process accepts clients from now on: accept nothing, and drain."""
        for act in self.when_taken_over:
            act()
        if self.state.accepts:
            self.drain()
        self._ports_are_free.set()

    async def until_released(self) -> None:
        """Wait until the mirrors' listeners have ended and their files are closed."""
        for listener in list(self.all_listeners()):
            if listener.settings.mode is not Mode.PLAIN:
                await listener.closed.wait()

    async def reread_files(self) -> None:
        """Read all certificates, keys, users and secrets again, for new connections and logins. Wrong ones are an error
        in the log, and the former ones stay.
        """
        refused = self.last_reload.get("findings", ())  # the configuration names the same files
        found = await self._tls.reload(refused if isinstance(refused, list) else ())
        for cluster in self.clusters.values():
            found += await trio.to_thread.run_sync(cluster.reread_secrets)
        for listener in self.listeners.values():
            found += [] if listener.login is None else await listener.login.reread()
        counts = Counter(file.outcome.name.lower() for file in found)
        text = f"SIGHUP: {summary(found)}"
        values = {"loaded": counts["loaded"], "unchanged": counts["unchanged"], "refused": counts["refused"]}
        if self._leads:
            log.info("files-reread", extra=event(text, **values))

    def close(self) -> None:
        for listener in self.all_listeners():
            listener.close()

    def statistics(self) -> ServerStatistics:
        return ServerStatistics(
            listeners=tuple(
                listener.statistics()
                for listener in self.all_listeners()
                if self.listeners.get(listener.name, listener) is listener
            ),
            capture=None if self.capture is None else self.capture.statistics(),
            raw_capture=None if self.raw_capture is None else self.raw_capture.statistics(),
        )


def _findings(error: Exception) -> list[str]:
    if isinstance(error, OperatorError):
        return [str(problem) for problem in error.problems]
    return [f"what it needs cannot be loaded: {getattr(error, 'strerror', None) or error}"]


def _load_and_check(load: Callable[[], Settings]) -> Settings:
    """With all the files that it names. Raises OperatorError."""
    settings = load()
    _require_tls_files(settings)
    if any(listener.sasl is not None for listener in settings.listeners):
        from shoal.proxy.listener.login.files import require_login_files

        require_login_files(settings)
    return settings


def _log_failure(error: OperatorError) -> None:
    """What would end Shoal at its start does not end it after a reload."""
    log.error("reloaded-listener-failed", extra=event(str(error), findings=[str(x) for x in error.problems]))


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
