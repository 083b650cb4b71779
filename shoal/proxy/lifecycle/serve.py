"""A server with the signals that it obeys: SIGTERM and SIGINT drain, a second one ends at once; SIGHUP reloads."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import trio

from shoal.proxy.lifecycle.giving import Giving
from shoal.proxy.lifecycle.reloads import Reloads
from shoal.proxy.lifecycle.server import Server
from shoal.proxy.lifecycle.supervisor import reloading
from shoal.proxy.lifecycle.tenure import Tenure
from shoal.proxy.listener.sockets import ListeningSockets

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shoal.proxy.config.settings import Settings
    from shoal.proxy.lifecycle.server import Paths
    from shoal.proxy.lifecycle.state_directory import StateDirectory

__all__ = ["serve"]


async def serve(
    settings: Settings,
    *,
    paths: Paths | None = None,
    held: Tenure | None = None,
    reconfigure: Callable[[Server], Awaitable[None]] | None = None,
    begun: Callable[[Server, Reloads], None] = lambda server, reloads: None,
    make: Callable[[Settings, Paths | None, Tenure], Server] | None = None,
    task_status: trio.TaskStatus[Server] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run until drained by SIGTERM or SIGINT; SIGHUP reloads. Raises OperatorError for a wrong port or state file.

    `reconfigure`: of a reload; None: the settings are no file. `begun` is called when signals are received. `make`: a
    server of another kind.
    """
    held = held or Tenure(None, None, ListeningSockets())
    if make is None:
        server = Server(settings, paths, sockets=held.sockets, taking=held.taking)
    else:
        server = make(settings, paths, held)
    held.sockets.withdraw()

    async def reload(files_too: bool) -> None:
        with reloading():
            if reconfigure is not None:
                await reconfigure(server)
            if files_too:
                await server.reread_files()

    reloads = Reloads(server.started, reload)
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reloads.run)
            nursery.start_soon(_obey_signals, server, reloads, signals)
            if held.directory is not None:
                nursery.start_soon(_hand_over_when_asked, server, held.directory)
            begun(server, reloads)
            await server.run(task_status=task_status)
            nursery.cancel_scope.cancel()


async def _hand_over_when_asked(server: Server, directory: StateDirectory) -> None:
    await server.started.wait()
    await Giving(directory, server).run()


async def _obey_signals(server: Server, reloads: Reloads, signals: object) -> None:
    async for number in signals:  # type: ignore[attr-defined]
        if number == signal.SIGHUP:
            reloads.ask(files_too=True)
            continue
        server.stop(signal.Signals(number).name)
