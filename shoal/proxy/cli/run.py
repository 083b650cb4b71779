"""Run the proxy: `serve`, and a task that logs traffic summaries.

run ──┬── serve (until SIGTERM or SIGINT)
      ├── stall watch (a thread that detects a blocked event loop)
      ├── ticks (every second, for the interlocks: a mirror that cannot produce does not fetch either)
      └── report (every `report_every` seconds; once more, with the totals, at the end)
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from shoal.proxy.cli.report import Snapshot, report
from shoal.proxy.cli.stall_watch import StallWatch
from shoal.proxy.coalesce.path import CoalescePath
from shoal.proxy.config.doubts import doubts
from shoal.proxy.config.parse import LOOPBACK
from shoal.proxy.config.settings import Address, Mode
from shoal.proxy.legacy.path import LegacyPath
from shoal.proxy.listener.plain import PlainPath
from shoal.proxy.logs import event, fields
from shoal.proxy.server import serve
from shoal.proxy.shallow.paths import shallow_paths
from shoal.proxy.statistics import ServerStatistics

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.proxy.config.settings import ListenerSettings, Settings
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.listener_api import Path
    from shoal.proxy.listener.listener import Listener
    from shoal.proxy.server import Server

__all__ = ["run"]

log = logging.getLogger("shoal")

_TICK_SECONDS = 1.0
_NOTHING = ServerStatistics(listeners=())


def run(settings: Settings, ready: Callable[[], None]) -> None:
    """Returns after a signal and the drain. Calls `ready` once the ports are open. Raises OperatorError (in groups)."""
    trio.run(_run, settings, ready)


async def _run(settings: Settings, ready: Callable[[], None]) -> None:
    async with trio.open_nursery() as nursery:
        server: Server = await nursery.start(_serve, settings, nursery.cancel_scope)
        for listener in settings.listeners:
            _announce(listener)
        for doubt in doubts(settings):
            log.warning("%s", doubt)
        ready()
        limits = settings.limits
        nursery.start_soon(StallWatch(report=limits.stall_report, end=limits.stall_exit).run)
        nursery.start_soon(_tick, server)
        await _report(server, settings.log.report_every)


def _announce(listener: ListenerSettings) -> None:
    address = str(Address(listener.host, listener.port))
    log.info("listening", extra=fields(listener=listener.name, mode=listener.mode, address=address, pair=listener.pair))
    if listener.host in LOOPBACK and (listener.advertised_host or listener.host) not in LOOPBACK:
        what = "advertised host differs, but the listener is on loopback: remote clients cannot connect"
        log.warning(what, extra=fields(listener=listener.name, address=address, advertise=listener.advertised_host))


async def _serve(
    settings: Settings,
    everything: trio.CancelScope,
    *,
    task_status: trio.TaskStatus[Server] = trio.TASK_STATUS_IGNORED,
) -> None:
    paths = {**shallow_paths(settings), Mode.PLAIN: _plain_path}
    await serve(settings, paths=paths, task_status=task_status)
    everything.cancel()


def _plain_path(listener: Listener) -> Path[Connection]:
    path: Path[Connection] = CoalescePath(listener) if listener.settings.coalesce else PlainPath(listener)
    return LegacyPath(listener, path) if listener.settings.legacy else path


async def _tick(server: Server) -> None:
    while True:
        await trio.sleep(_TICK_SECONDS)
        for listener in server.listeners.values():
            listener.tick(trio.current_time())


async def _report(server: Server, every: float) -> None:
    """Runs forever; logs the totals when cancelled."""
    first = Snapshot(at=trio.current_time(), server=_NOTHING)
    before = first
    try:
        while True:
            await trio.sleep(every or float("inf"))
            before = _log_report(server, before, "flow")
    finally:
        _log_report(server, first, "total")


def _log_report(server: Server, before: Snapshot, name: str) -> Snapshot:
    now = Snapshot(at=trio.current_time(), server=server.statistics())
    for line in report(before, now):
        text = line.text if name == "flow" else f"{name} {line.text}"
        log.info(name, extra=event(text, **line.values))
    return now
