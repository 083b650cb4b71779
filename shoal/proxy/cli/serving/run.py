"""Run the proxy: `serve`, and a task that logs traffic summaries.

run ──┬── serve (until SIGTERM or SIGINT)
      ├── stall watch (a thread that detects a blocked event loop)
      ├── the admin listener, if it is on (a reload may open, move or close it)
      ├── the watchdog of systemd, if it has one
      ├── ticks (every second, for the interlocks: a mirror that cannot produce does not fetch either)
      ├── the socket of `shoal reload`, in the state directory
      ├── the watch for a configuration that changes (`--watch`)
      └── report (every `report_every` seconds; once more, with the totals, at the end)
"""

from __future__ import annotations

import gc
import logging
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING

import trio

from shoal.proxy.admin.service import AdminService
from shoal.proxy.cli.serving.report import Kind, Snapshot, report
from shoal.proxy.cli.serving.stall_watch import StallWatch
from shoal.proxy.coalesce.path import CoalescePath
from shoal.proxy.config.parse import LOOPBACK
from shoal.proxy.config.rules.doubts import doubts
from shoal.proxy.config.settings import Address, Mode
from shoal.proxy.events.logs import event, fields, set_up_logs
from shoal.proxy.legacy.path import LegacyPath
from shoal.proxy.lifecycle.control import serve_control
from shoal.proxy.lifecycle.reloads import watch_file
from shoal.proxy.lifecycle.serve import serve
from shoal.proxy.lifecycle.supervisor import READY, keep_alive, notify
from shoal.proxy.lifecycle.tenure import tenure
from shoal.proxy.listener.plain import PlainPath
from shoal.proxy.shallow.paths import ShallowPaths
from shoal.proxy.statistics import ServerStatistics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path as FilePath

    from shoal.proxy.config.settings import ListenerSettings, Settings
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.listener_api import Path
    from shoal.proxy.lifecycle.reloads import Reloads
    from shoal.proxy.lifecycle.server import Paths, Server
    from shoal.proxy.lifecycle.tenure import Tenure
    from shoal.proxy.listener.listener import Listener

__all__ = ["PathsOfModes", "Source", "run", "tick", "tune_garbage_collection", "watch_stalls"]

log = logging.getLogger("shoal")

_TICK_SECONDS = 1.0
_NOTHING = ServerStatistics(listeners=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the settings come from. `load` reads them again, with the flags; None: they are flags only.

    `file` is watched, if it is set; `identity`: when it was read. `hung_up`: SIGHUP has come since the start.
    """

    load: Callable[[], Settings] | None = None
    file: FilePath | None = None
    identity: object = None
    hung_up: Callable[[], bool] = lambda: False
    takeover: bool = False  # from the Shoal that runs


def run(settings: Settings, ready: Callable[[], None], source: Source | None = None) -> None:
    """Returns after a signal and the drain. Calls `ready` once the ports are open. Raises OperatorError (in groups)."""
    tune_garbage_collection()
    trio.run(_Run(source or Source()).run, settings, ready)


def tune_garbage_collection() -> None:
    """Collect less often than the default of every 700 objects.

    A record set of tiny batches makes a thousand tuples that are freed with it. With the default, collections run in
    between, find them alive, and take 6 % of the CPU of such a mirror. Cycles are few, and now live a little longer.
    What the imports have made always stays: no collection looks at it again.
    """
    gc.freeze()
    gc.set_threshold(2_000)


class _Run:
    """The tasks of a process, which use the settings of the time."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._paths = PathsOfModes()
        self._reloaded = trio.Event()  # another one after each reload
        self._admin = AdminService()
        self._make: Callable[[Settings, Paths | None, Tenure], Server] | None = None
        self._control: Callable[[], Awaitable[None]] | None = None

    async def run(self, settings: Settings, ready: Callable[[], None]) -> None:
        async with tenure(settings.state_dir, takeover=self._source.takeover) as held:
            await self._serve_all(settings, held, ready)

    async def _serve_all(self, settings: Settings, held: Tenure, ready: Callable[[], None]) -> None:
        if settings.workers > 1:
            self._use_workers()
        self._admin.prepare(settings, held.sockets).apply()
        async with trio.open_nursery() as nursery:
            server: Server = await nursery.start(self._serve, settings, held, nursery)
            if self._control is not None:  # of a Shoal that takes over: it has the directory now
                nursery.start_soon(self._control)
            await nursery.start(self._admin.run, server)
            for listener in settings.listeners:
                _announce(listener)
            for doubt in doubts(settings):
                log.warning("settings-doubtful", extra=event(doubt))
            ready()
            notify(READY, f"STATUS=serving {len(settings.listeners)} listeners")
            nursery.start_soon(keep_alive)
            nursery.start_soon(watch_stalls, server, lambda: self._reloaded)
            if self._make is None:
                nursery.start_soon(tick, server)
            await self._report(server)

    def _use_workers(self) -> None:
        """This process is their supervisor (shoal/proxy/workers)."""
        from shoal.proxy.workers.pages import serve_admin
        from shoal.proxy.workers.supervisor import Supervisor

        self._admin = AdminService(serve_admin)
        self._make = Supervisor

    async def _serve(
        self,
        settings: Settings,
        held: Tenure,
        everything: trio.Nursery,
        *,
        task_status: trio.TaskStatus[Server] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        source = self._source

        def begun(server: Server, reloads: Reloads) -> None:
            if source.hung_up():
                reloads.ask(files_too=True)
            if source.file is not None:
                everything.start_soon(watch_file, source.file, source.identity, partial(reloads.ask, files_too=False))
            if source.load is not None and settings.state_dir is not None:
                directory, reload = held.directory, partial(_reload_and_tell, server, reloads)
                self._control = partial(
                    serve_control, settings.state_dir, reload, lambda: directory is None or directory.is_ours
                )

        await serve(
            settings,
            paths=self._paths.of(settings),
            held=held,
            make=self._make,
            reconfigure=self._reconfigure,
            begun=begun,
            task_status=task_status,
        )
        everything.cancel_scope.cancel()

    async def _reconfigure(self, server: Server) -> None:
        if self._source.load is None:
            text = "the settings of shoal mirror are flags: only certificates and secrets are read again"
            return log.info("reload-ignored", extra=event(text))
        former = server.settings
        if await server.reconfigure(self._source.load, self._paths.of, self._admin.prepare) is None:
            return None
        settings = server.settings
        if settings.log != former.log:
            set_up_logs(settings.log)
        places = {(x.name, x.host, x.port) for x in former.listeners}
        for listener in settings.listeners:
            if (listener.name, listener.host, listener.port) not in places:
                _announce(listener)
        known = set(doubts(former))
        for doubt in doubts(settings):
            if doubt not in known:
                log.warning("settings-doubtful", extra=event(doubt))
        self._reloaded.set()
        self._reloaded = trio.Event()
        return None

    async def _report(self, server: Server) -> None:
        """Runs forever; logs the totals when cancelled."""
        first = before = Snapshot(at=trio.current_time(), server=_NOTHING)
        try:
            while True:
                every = server.settings.log.report_every
                with trio.move_on_at(before.at + every if every else inf) as waiting:
                    await self._reloaded.wait()
                if waiting.cancelled_caught:
                    before = _log_report(server, before, _FLOW)
        finally:
            _log_report(server, first, _TOTAL, "total ")


async def _reload_and_tell(server: Server, reloads: Reloads) -> Mapping[str, object]:
    await reloads.finish()
    return server.last_reload


async def watch_stalls(server: Server, reloaded: Callable[[], trio.Event]) -> None:
    """Until cancelled. `reloaded`: set after the next reload."""
    while True:
        limits = server.settings.limits
        async with trio.open_nursery() as watching:
            watching.start_soon(StallWatch(report=limits.stall_report, end=limits.stall_exit).run)
            while (limits.stall_report, limits.stall_exit) == _stalls(server):
                await reloaded().wait()
            watching.cancel_scope.cancel()


def _stalls(server: Server) -> tuple[float, float]:
    return server.settings.limits.stall_report, server.settings.limits.stall_exit


def _announce(listener: ListenerSettings) -> None:
    address = str(Address(listener.host, listener.port))
    log.info(
        "listening",
        extra=fields(listener=listener.name, mode=listener.mode.name.lower(), address=address, pair=listener.pair),
    )
    if listener.host in LOOPBACK and (listener.advertised_host or listener.host) not in LOOPBACK:
        text = (
            "advertised host differs, but the listener is on loopback: remote clients cannot connect "
            f"listener={listener.name} address={address} advertise={listener.advertised_host}"
        )
        values = event(text, listener=listener.name, address=address, advertise=listener.advertised_host)
        log.warning("advertised-not-reachable", extra=values)


class PathsOfModes:
    """The paths for settings of the time: an unwrapping one knows the wrapping one of its pair."""

    def __init__(self) -> None:
        self._shallow = ShallowPaths()

    def of(self, settings: Settings) -> Paths:
        return {**self._shallow.of(settings), Mode.PLAIN: _plain_path}


def _plain_path(listener: Listener) -> Path[Connection]:
    path: Path[Connection] = CoalescePath(listener) if listener.settings.coalesce else PlainPath(listener)
    return LegacyPath(listener, path) if listener.settings.legacy else path


async def tick(server: Server) -> None:
    """Until cancelled."""
    while True:
        await trio.sleep(_TICK_SECONDS)
        for listener in server.all_listeners():
            listener.tick(trio.current_time())


_FLOW = {Kind.LISTENER: "flow", Kind.INDEX: "index-flow", Kind.RAW_CAPTURE: "raw-capture-flow"}
_TOTAL = {Kind.LISTENER: "total", Kind.INDEX: "index-total", Kind.RAW_CAPTURE: "raw-capture-total"}


def _log_report(server: Server, before: Snapshot, events: Mapping[Kind, str], first_word: str = "") -> Snapshot:
    now = Snapshot(at=trio.current_time(), server=server.statistics())
    for line in report(before, now):
        log.info(events[line.kind], extra=event(first_word + line.text, **line.values))
    return now
